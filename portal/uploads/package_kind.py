"""Packages as a kind of uploads: their answers of the API, and those of the installation."""

from collections.abc import Callable, Sequence
from typing import Self

from portal.serving.portal import Portal
from portal.serving.quantities import moment
from portal.serving.tokens import Person
from portal.uploads.kind import Kind, UploadView
from portal.uploads.state import Uploads
from tasks.answers.uploads import PackageFields, PackageVersionFields, Source, Visibility
from tasks.packages.package_reference import PackageReference
from tasks.packages.packages import IN_FOLDER, OURS, FoundPackage, Package
from tasks.uploads.package_operations import PACKAGE_UPLOADS, VersionRow
from tasks.uploads.upload_table import upload_id

SOURCES: dict[str, Source] = {OURS: "shipped", IN_FOLDER: "folder"}
"""Owners of packages that nobody has uploaded, and where those come from."""


class VersionAnswer(PackageVersionFields[Package]):
    """A version of a package: its manifest, and the digest, bytes and files of its archive."""

    @classmethod
    def of(cls, row: VersionRow) -> Self:
        """Build the answer for a version."""
        return cls(
            version=row.version,
            digest=row.digest,
            size=row.size,
            files=row.files,
            pushed=moment(row.pushed) if row.pushed else None,
            deprecated=row.deprecated,
            dependencies=row.dependencies,
            manifest=row.manifest,
            archive_url=f"/api/packages/{row.package}/versions/{row.version}/archive.tar",
        )


class PackageAnswer(PackageFields[VersionAnswer]):
    """A package. `reference` is what a request names; `link` is told to its owner alone."""

    @classmethod
    def of(cls, view: UploadView, versions: Sequence[VersionRow] = ()) -> Self:
        """Build the answer for a package."""
        return cls(
            id=view.id,
            reference=view.reference,
            owner=view.owner,
            name=view.name,
            description=view.description,
            source=view.source,
            visibility=view.visibility,
            newest=view.newest,
            link=view.link,
            versions=tuple(map(VersionAnswer.of, versions)),
            url=f"/packages/{view.id}",
        )


def _installed(portal: Portal) -> Sequence[UploadView]:
    return [_local_view(one) for one in portal.state(Uploads).library.local.every()]


def find_local(portal: Portal, package: str) -> FoundPackage | None:
    """Return the package of the installation that has this id."""
    found = portal.state(Uploads).library.local.every()
    return next((one for one in found if _id_of(one) == package), None)


def _id_of(found: FoundPackage) -> str:
    return upload_id(found.owner, found.package.name)


def _local_view(found: FoundPackage) -> UploadView:
    return UploadView(
        id=_id_of(found),
        reference=found.package.name,
        owner=found.owner,
        name=found.package.name,
        description=found.package.description,
        source=SOURCES[found.owner],
        visibility=Visibility.EVERYONE,
        newest=found.package.version,
    )


def _find_installed(portal: Portal, package: str) -> tuple[UploadView, Sequence[VersionRow]] | None:
    """Show a package of the installation and its one version.

    The content of one in a folder may change: it has no digest.
    """
    found = find_local(portal, package)
    if found is None:
        return None
    archive = found.archive() if found.owner == OURS else None
    version = VersionRow(
        package=_id_of(found),
        version=found.package.version,
        manifest=found.package,
        digest=archive.digest if archive else "",
        size=len(archive.data) if archive else 0,
        files=0,
        pushed=0.0,
    )
    return _local_view(found), (version,)


def _meant(
    portal: Portal, person: Person, reference: str
) -> tuple[str, Callable[[VersionRow], bool]]:
    found = portal.state(Uploads).library.packages_of(person.owner).find(reference)
    asked = PackageReference.parse(reference)

    def is_meant(one: VersionRow) -> bool:
        return asked.version in ("", one.version) and asked.digest in ("", one.digest)

    return _id_of(found), is_meant


PACKAGES = Kind(
    stored=PACKAGE_UPLOADS,
    use="run",
    sharing="see, run and download a package",
    answer=PackageAnswer,
    answered=PackageAnswer.of,
    meant=_meant,
    installed=lambda portal: [
        _local_view(one) for one in portal.state(Uploads).library.local.every()
    ],
    find_installed=_find_installed,
)
