"""Packages as the pages and the API show them, and uploads on their way into storage."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal
from urllib.parse import quote

from fastapi import Request

from portal.serving.problems import TooLargeError
from tasks.bag.runtime import Runtime
from tasks.network_hosts import not_allowed
from tasks.packages.package_uploads import Upload, repack
from tasks.packages.packages import (
    IN_FOLDER,
    MAX_BYTES,
    OURS,
    FoundPackage,
    Package,
    PackageArchive,
    PackageError,
    Packages,
    blob_of,
)
from tasks.packages.python_environments import resolve
from tasks.settings import Settings
from tasks.storage.blobs import PACKAGES
from tasks.uploads import package_operations, upload_operations
from tasks.uploads.package_operations import PACKAGE_UPLOADS, VersionRow
from tasks.uploads.upload_operations import NoSuchUploadError, UploadConflictError
from tasks.uploads.upload_table import UploadRow, Visibility, upload_id

MOST_UPLOADED = MAX_BYTES + 16 * 2**20  # bytes of an upload, with the headers of its files
Source = Literal["uploaded", "shipped", "folder"]
_SOURCES: dict[str, Source] = {OURS: "shipped", IN_FOLDER: "folder"}


@dataclass(frozen=True, kw_only=True)
class VersionView:
    """A version of a package. The content of a package in a folder may change: it has no digest."""

    version: str
    manifest: Package
    digest: str = ""
    size: int = 0
    files: int = 0
    pushed: float = 0.0
    deprecated: str = ""
    dependencies: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PackageView:
    """A package as a person sees it.

    `reference` is what that person's request names. `link` is only its owner's to know.
    """

    id: str
    reference: str
    owner: str
    name: str
    description: str
    source: Source
    visibility: Visibility
    newest: str
    mine: bool = False
    link: str = ""
    changed: float = 0.0

    @property
    def title(self) -> str:
        """Name, newest version and owner."""
        by = f" ({self.owner})" if "/" in self.reference else ""
        return f"{self.name} {self.newest}{by}".replace("  ", " ")


def offered(runtime: Runtime, local: Packages, person: str) -> list[PackageView]:
    """List the packages that a person may run: own ones, those of the installation, shared ones.

    A package of the installation that one's own hides is not listed.
    """
    stored = [
        view_of(row, person)
        for row in upload_operations.visible(PACKAGE_UPLOADS.table(runtime), person)
    ]
    mine = {view.name for view in stored if view.mine}
    ours = [_local_view(found) for found in local.every() if found.package.name not in mine]
    usable = [view for view in stored if view.newest or view.mine]
    return sorted([*ours, *usable], key=lambda view: (not view.mine, view.name, view.owner))


def view_of(
    row: UploadRow,
    person: str,
    portal_url: str = "",
    *,
    prefix: str = "",
    place: str = "packages",
) -> PackageView:
    """Show an upload to a person who may see it.

    `prefix` stands before its name in a request; `place` is where its pages are.
    """
    mine = row.owner == person
    linked = mine and row.visibility is Visibility.LINK
    return PackageView(
        id=row.id,
        reference=prefix + (row.name if mine else f"{row.owner}/{row.name}"),
        owner=row.owner,
        name=row.name,
        description=row.description,
        source="uploaded",
        visibility=row.visibility,
        newest=row.newest,
        mine=mine,
        link=link_of(portal_url, row, place) if linked else "",
        changed=row.changed,
    )


def link_of(portal_url: str, row: UploadRow, place: str) -> str:
    """Return the address that gives an upload to whoever opens it, signed in."""
    return f"{portal_url.rstrip('/')}/{place}/open?link={quote(f'{row.id}.{row.secret}')}"


def find_local(local: Packages, package: str) -> FoundPackage | None:
    """Return the package of the installation that has this id."""
    return next((found for found in local.every() if id_of(found) == package), None)


def local_views(found: FoundPackage) -> tuple[PackageView, tuple[VersionView, ...]]:
    """Show a package of the installation and its one version."""
    archive = found.archive() if found.owner == OURS else None
    version = VersionView(
        version=found.package.version,
        manifest=found.package,
        digest=archive.digest if archive else "",
        size=len(archive.data) if archive else 0,
    )
    return _local_view(found), (version,)


def version_view(version: VersionRow) -> VersionView:
    """Show a version of an uploaded package."""
    return VersionView(
        version=version.version,
        manifest=version.manifest,
        digest=version.digest,
        size=version.size,
        files=version.files,
        pushed=version.pushed,
        deprecated=version.deprecated,
        dependencies=version.dependencies,
    )


def archive_of(
    runtime: Runtime, local: Packages, person: str, package: str, version: str
) -> tuple[str, int, Callable[[], Iterator[bytes]]]:
    """Return the digest, the size and the content of a version's archive.

    Raises NoSuchUploadError if there is none or this person may not see it.
    """
    found = find_local(local, package)
    if found is not None and found.owner == OURS and found.package.version == version:
        archive: PackageArchive | None = found.archive()
        if archive is not None:
            return archive.digest, len(archive.data), lambda: iter([archive.data])
    row = upload_operations.load_for(PACKAGE_UPLOADS.table(runtime), person, package)
    stored = PACKAGE_UPLOADS.table(runtime).version(row.id, version)
    if stored is None:
        raise NoSuchUploadError(f"{row.name}@{version}", "package")
    name = blob_of(stored.digest)
    return stored.digest, stored.size, lambda: runtime.blobs.stream(PACKAGES, name)


async def received(request: Request) -> AsyncIterator[Path]:
    """Yield the file in which the body of a call is, until the call has been answered."""
    with tempfile.TemporaryDirectory(prefix="swathmill-") as folder:
        path = Path(folder) / "upload"
        size = 0
        with path.open("xb") as out:
            async for part in request.stream():
                size += len(part)
                check_size(size)
                out.write(part)
        yield path


def check_size(size: int) -> None:
    """Refuse an upload that is too large; raise TooLargeError."""
    if size > MOST_UPLOADED:
        raise TooLargeError(
            f"The upload is larger than {MOST_UPLOADED >> 20} MiB.", "Make the package smaller."
        )


def keep_upload(file: IO[bytes], to: Path) -> None:
    """Copy an uploaded file of a form to a path."""
    size = 0
    with to.open("xb") as out:
        while part := file.read(2**20):
            size += len(part)
            check_size(size)
            out.write(part)


def push(
    runtime: Runtime, settings: Settings, person: str, file: Path
) -> tuple[UploadRow, VersionRow]:
    """Check an uploaded file and store it as a version of a person's package.

    Raises:
        PackageError: it cannot be used, or its dependencies cannot be had; says why.
        UploadConflictError: the version is there with other content, or there are too many.
    """
    if person in _SOURCES:
        raise PackageError(f"The owner {person!r} is for packages of the installation.")
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
        folder = Path(name)
        (folder / "files").mkdir()
        archive = folder / "archive.tar"
        upload: Upload = repack(file, folder / "files", archive)
        environment: Path | None = None
        version = _there(runtime, person, upload)
        if refused := settings.allowed_hosts.refused(upload.package.network):
            raise PackageError(" ".join(not_allowed(upload.package.name, refused)))
        if version is None:
            if upload.needs is not None:
                upload, environment = resolve(upload, archive, folder / "environment", settings)
            version = package_operations.push(runtime, person, upload, archive, environment)
    row = upload_operations.own(PACKAGE_UPLOADS.table(runtime), person, version.package)
    return row, version


def _there(runtime: Runtime, person: str, upload: Upload) -> VersionRow | None:
    """Return the version that has been uploaded before, with what it needs; None: there is none.

    Raises UploadConflictError if it has other content: nothing is resolved then.
    """
    package = upload.package
    found = PACKAGE_UPLOADS.table(runtime).version(upload_id(person, package.name), package.version)
    if upload.needs is None or found is None:
        return None
    if package_operations.content_of(found) != upload.source:
        raise UploadConflictError(package_operations.OTHER_CONTENT.format(package=package))
    return found


def id_of(found: FoundPackage) -> str:
    """Return the id of a package."""
    return upload_id(found.owner, found.package.name)


def _local_view(found: FoundPackage) -> PackageView:
    return PackageView(
        id=id_of(found),
        reference=found.package.name,
        owner=found.owner,
        name=found.package.name,
        description=found.package.description,
        source=_SOURCES[found.owner],
        visibility=Visibility.EVERYONE,
        newest=found.package.version,
    )
