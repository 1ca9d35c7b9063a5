"""Packages as uploads: their rows, the push of one, and those that a person may name."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError
from tasks.packages.package_reference import PackageReference
from tasks.packages.package_uploads import Upload
from tasks.packages.packages import (
    IN_FOLDER,
    OURS,
    FoundPackage,
    NoPackageError,
    Package,
    PackageError,
    Packages,
    blob_of,
)
from tasks.packages.python_dependencies import environment_blob
from tasks.refusal_wording import nearest_names
from tasks.request.document import Reduction, Request
from tasks.requests.plan import named_packages
from tasks.requests.request_table import RequestRow
from tasks.storage.blobs import PACKAGES
from tasks.storage.codec import WORDS_IN_BYTES, Codec, Form, cut
from tasks.uploads.upload_operations import Push, UploadConflictError, meant, put_whole, visible
from tasks.uploads.upload_operations import push as push_upload
from tasks.uploads.upload_table import UploadedVersion, UploadKind, UploadRow, upload_id

log = structlog.get_logger("packages")

OTHER_CONTENT = (
    "Version {package.version} of {package.name} is there with other content. "
    "Raise `version` in package.yaml: a version never changes."
)


@dataclass(frozen=True, kw_only=True)
class VersionRow(UploadedVersion):
    """A version of a package.

    `source` is the digest of what was uploaded, "" where that is `digest`; `dependencies` are its
    Python packages with their versions.
    """

    files: int
    manifest: Package
    source: str = ""
    dependencies: tuple[str, ...] = ()


VERSION = Codec(
    VersionRow,
    "package version",
    {
        "manifest": Form(
            write=lambda manifest: manifest.model_dump_json().encode(),
            read=Package.model_validate_json,
        ),
        "deprecated": cut(500, sparse=True),
        "source": cut(64, sparse=True),
        "dependencies": replace(WORDS_IN_BYTES, sparse=True),
    },
)


def _used_by(row: RequestRow) -> Iterable[str]:
    return [digest for _, digest in named_packages(row.package)]


PACKAGE_UPLOADS = UploadKind(
    word="package",
    name="packages",
    codec=VERSION,
    container=PACKAGES,
    blobs=lambda digest: (blob_of(digest), environment_blob(digest)),
    used_by=_used_by,
)


def push(
    runtime: Runtime, owner: str, upload: Upload, archive: Path, environment: Path | None = None
) -> VersionRow:
    """Store an uploaded package as a version of its owner's; the same content again is success.

    `environment` is the archive of its Python dependencies.

    Raises:
        UploadConflictError: the version has other content, or there are too many.
        StoreError: storage failed; push it again.
    """
    package = upload.package

    def choose(versions: list[VersionRow]) -> VersionRow:
        there = next((one for one in versions if one.version == package.version), None)
        if there is not None and content_of(there) != upload.source:
            raise UploadConflictError(OTHER_CONTENT.format(package=package))
        return there or VersionRow(
            package=upload_id(owner, package.name),
            version=package.version,
            digest=upload.digest,
            size=upload.size,
            files=upload.files,
            manifest=package,
            pushed=runtime.clock.now(),
            source=upload.source if upload.environment else "",
            dependencies=upload.environment.packages if upload.environment else (),
        )

    return push_upload(
        PACKAGE_UPLOADS.table(runtime),
        Push(
            owner=owner,
            name=package.name,
            description=package.description,
            digest=upload.digest,
            put=lambda: _put(runtime, upload.digest, archive, environment),
            choose=choose,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A version of an uploaded package, with its package."""

    row: UploadRow
    version: VersionRow

    @property
    def found(self) -> FoundPackage:
        """The version as something that can be run."""
        return FoundPackage(
            package=self.version.manifest, owner=self.row.owner, digest=self.version.digest
        )


def stored(runtime: Runtime, person: str, reference: PackageReference) -> Stored | None:
    """Return the version that a reference means to a person; None: there is none to see."""
    found = meant(PACKAGE_UPLOADS.table(runtime), person, reference)
    return Stored(row=found[0], version=found[1]) if found else None


class PackagesOf:
    """The packages that a person may name: own ones, those of the installation, shared ones."""

    def __init__(self, runtime: Runtime, local: Packages, person: str) -> None:
        self._runtime = runtime
        self._local = local
        self._person = person

    def names(self) -> tuple[str, ...]:
        found = {*self._local.names()}
        for row in visible(PACKAGE_UPLOADS.table(self._runtime), self._person):
            found.add(row.name if row.owner == self._person else f"{row.owner}/{row.name}")
        return tuple(sorted(found))

    def find(self, reference: str) -> FoundPackage:
        try:
            asked = PackageReference.parse(reference)
        except ValueError as error:
            raise NoPackageError(f"{error}.", "See the page of packages.") from None
        if asked.owner not in (OURS, IN_FOLDER):
            found = stored(self._runtime, self._person, asked)
            if found is not None:
                return found.found
        if asked.owner in ("", OURS, IN_FOLDER):
            try:
                return self._local.find(reference)
            except NoPackageError:
                log.debug("no package of the installation", reference=reference)
        names = self.names()
        if reference in names:
            raise NoPackageError(
                f"all versions of {reference} are deprecated.", f"Name one: {reference}@VERSION."
            )
        raise NoPackageError(f"there is no package {reference!r}.", nearest_names(reference, names))


class ExactPackages:
    """The packages of requests whose reference `pinned` has made exact: nobody is asked for."""

    def __init__(self, runtime: Runtime, local: Packages) -> None:
        self._runtime = runtime
        self._local = local

    def names(self) -> tuple[str, ...]:
        return self._local.names()

    def find(self, reference: str) -> FoundPackage:
        asked = PackageReference.parse(reference)
        if not asked.digest:
            return self._local.find(reference)
        found = stored(self._runtime, asked.owner, asked)
        if found is None:
            raise PackageError(f"the package {reference} was deleted. Push it again.")
        if not self._runtime.blobs.exists(PACKAGES, blob_of(asked.digest)):
            raise PackageError(f"storage has lost the package {reference}. Push it again.")
        return found.found


def pinned(runtime: Runtime, owner: str, request: Request) -> Request:
    """Return a request whose reduction names the very version that its owner's reference means.

    A reference to a package of the installation stays as it is.

    Raises:
        RequestRefusedError: the owner may not run such a package, or there is none.
    """
    changed = tuple(_pinned(runtime, owner, step) for step in request.steps)
    return request.model_copy(update={"steps": changed})


def _pinned(runtime: Runtime, owner: str, step: Reduction) -> Reduction:
    asked = PackageReference.parse(step.package)
    if asked.owner in (OURS, IN_FOLDER):
        return step
    found = stored(runtime, owner, asked)
    if found is None:
        if asked.owner or asked.digest:
            raise RequestRefusedError(
                "reduction.package",
                f"there is no package {step.package!r}.",
                "Name one that the page of packages lists.",
            )
        return step
    exact = PackageReference(
        owner=found.row.owner, name=found.row.name, digest=found.version.digest
    )
    return step.model_copy(update={"package": str(exact)})


def content_of(version: VersionRow) -> str:
    """Return the digest of what was uploaded as a version."""
    return version.source or version.digest


def _put(runtime: Runtime, digest: str, archive: Path, environment: Path | None) -> None:
    """Store an archive, and first its environment's."""
    if environment is not None:
        put_whole(runtime.blobs, PACKAGES, environment_blob(digest), environment)
    put_whole(runtime.blobs, PACKAGES, blob_of(digest), archive)
