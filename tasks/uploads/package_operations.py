"""What can be done with packages: push, find, list, share, deprecate, open and delete them.

A package that a person may not see is to that person as one that does not exist: every answer is
the same. Only its owner changes a package. The archive's blob is stored before the version's row,
and goes once no version and no live request names it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hmac import compare_digest
from pathlib import Path

import structlog

from tasks.bag.runtime import Runtime
from tasks.errors import BlobMissingError, RequestRefusedError, StoreError, SwathmillError
from tasks.packages.package_reference import PackageReference
from tasks.packages.package_uploads import Upload
from tasks.packages.packages import (
    IN_FOLDER,
    OURS,
    FoundPackage,
    NoPackageError,
    PackageError,
    Packages,
    blob_of,
)
from tasks.packages.python_dependencies import environment_blob
from tasks.request.checks import nearest_names
from tasks.request.document import Reduction, Request
from tasks.requests.plan import named_packages
from tasks.requests.request_table import RequestTable
from tasks.storage.blobs import PACKAGES, Blobs
from tasks.storage.store import Delete, Operation, Row
from tasks.uploads import package_table
from tasks.uploads.package_table import (
    BEING_DELETED,
    PACKAGE,
    UNNAMED,
    PackageRow,
    Unnamed,
    UploadedVersion,
    UploadTable,
    Version,
    VersionRow,
    Visibility,
    package_id,
    package_row,
    remove_package,
    remove_version,
    unnamed_row,
    write_package,
    write_unnamed,
)

log = structlog.get_logger("packages")

MOST_VERSIONS = 30  # of a package or a raster: all its rows go in one transaction
MOST_OWNED = 200  # packages of a person, and as many rasters
OTHER_CONTENT = (
    "Version {package.version} of {package.name} is there with other content. "
    "Raise `version` in package.yaml: a version never changes."
)
_SECRET_BITS = 128


class NoSuchPackageError(SwathmillError):
    """There is no such package, or the caller may not see it."""

    def __init__(self, what: str, kind: str = "package") -> None:
        self.kind = kind
        super().__init__(f"there is no {kind} {what}, or you may not see it")


class PackageConflictError(SwathmillError):
    """The package is not in a state that allows the change; says what to do."""


def push(
    runtime: Runtime, owner: str, upload: Upload, archive: Path, environment: Path | None = None
) -> VersionRow:
    """Store an uploaded package as a version of its owner's; the same content again is success.

    `environment` is the archive of its Python dependencies.

    Raises:
        PackageConflictError: the version has other content, or there are too many.
        StoreError: storage failed; push it again.
    """
    table = package_table.packages(runtime)
    table.note_unnamed(upload.digest)
    _put(runtime, upload.digest, archive, environment)
    name = upload.package.name
    new = VersionRow(
        package=package_id(owner, name),
        version=upload.package.version,
        digest=upload.digest,
        size=upload.size,
        files=upload.files,
        manifest=upload.package,
        pushed=runtime.clock.now(),
        source=upload.source if upload.environment else "",
        dependencies=upload.environment.packages if upload.environment else (),
    )

    def change(found: Row | None) -> tuple[Operation, ...]:
        there = table.version(new.package, new.version)
        if there is not None and content_of(there) != upload.source:
            raise PackageConflictError(OTHER_CONTENT.format(package=upload.package))
        if there is not None:
            return ()
        row = replace(
            with_room(table, found, owner, name),
            description=upload.package.description,
            newest=new.version,
            changed=new.pushed,
        )
        return (
            *write_package(found, row),
            table.write_version(new),
            *named_again(table, new.digest),
        )

    table.update(package_row(new.package), change)
    # It may have gone between the first call and the row that names it.
    _put(runtime, upload.digest, archive, environment)
    stored = table.version(new.package, new.version)
    if stored is None:
        raise StoreError(f"{name} was deleted while it was pushed; push it again")
    return stored


def with_room(table: UploadTable[Version], found: Row | None, owner: str, name: str) -> PackageRow:
    """Return the row of an upload, new where none was found, that can have one more version.

    Raises PackageConflictError when there are too many.
    """
    if found is None and len(table.owned(owner)) >= MOST_OWNED:
        raise PackageConflictError(
            f"You have {MOST_OWNED} {table.word}s, the most there may be. Delete one."
        )
    if len(table.versions(package_id(owner, name))) >= MOST_VERSIONS:
        raise PackageConflictError(
            f"{name} has {MOST_VERSIONS} versions, the most there may be. Delete one."
        )
    return PACKAGE.load(found) if found else PackageRow(owner=owner, name=name)


def share(
    table: UploadTable[Version], row: PackageRow, visibility: Visibility, *, renew: bool = False
) -> PackageRow:
    """Say who sees a package. A link that was withdrawn opens nothing any more; `renew` makes one.

    Raises NoSuchPackageError when it was deleted meanwhile.
    """
    secret = f"{table.random.getrandbits(_SECRET_BITS):032x}"

    def change(current: PackageRow) -> PackageRow:
        if visibility is not Visibility.LINK:
            return replace(current, visibility=visibility, secret="")
        kept = current.secret if current.secret and not renew else secret
        return replace(current, visibility=visibility, secret=kept)

    return _change(table, row, change)


def deprecate(table: UploadTable[Version], row: PackageRow, version: str, why: str) -> PackageRow:
    """Deprecate a version, or with "" take that back. Requests that name it still run it.

    Raises NoSuchPackageError when there is no such version.
    """

    def change(found: Row | None) -> tuple[Operation, ...]:
        current = _present(found, row, table.word)
        versions = table.versions(row.id)
        one = next((each for each in versions if each.version == version), None)
        if one is None:
            raise NoSuchPackageError(f"{row.name}@{version}", table.word)
        after = replace(one, deprecated=why[:500])
        newest = _newest([after if each is one else each for each in versions])
        if after == one and newest == current.newest:
            return ()
        changed = replace(current, newest=newest, changed=table.clock.now())
        return *write_package(found, changed), table.write_version(after)

    table.update(package_row(row.id), change)
    return _load(table, row.id, row.name)


def delete(table: UploadTable[Version], row: PackageRow, version: str = "") -> None:
    """Delete a version, or the whole package; what runs by now goes on.

    Raises NoSuchPackageError when there is no such version.
    """
    gone: list[str] = []

    def change(found: Row | None) -> tuple[Operation, ...]:
        if found is None:
            return ()
        current = PACKAGE.load(found)
        versions = table.versions(row.id)
        going = [each for each in versions if version in ("", each.version)]
        if version and not going:
            if gone:  # by an earlier call, whose answer was lost
                return ()
            raise NoSuchPackageError(f"{row.name}@{version}", table.word)
        gone[:] = sorted({each.digest for each in going})
        left = [each for each in versions if each not in going]
        removed = tuple(remove_version(each) for each in going)
        noted = tuple(
            write_unnamed(Unnamed(digest=digest, since=table.clock.now())) for digest in gone
        )
        if not left:
            return *remove_package(current), *removed, *noted
        after = replace(current, newest=_newest(left), changed=table.clock.now())
        return *write_package(found, after), *removed, *noted

    table.update(package_row(row.id), change)


def collect(runtime: Runtime) -> int:
    """Delete the archives that no version names and no live request runs; how many there were."""
    waiting = package_table.packages(runtime).all_unnamed()
    if not waiting:
        return 0
    used = package_table.packages(runtime).digests()
    for request in RequestTable(runtime.store).live():
        row = RequestTable(runtime.store).request(request)
        if row is None or row.state.unplanned:
            return 0  # it may be about to name one
        used.update(digest for _, digest in named_packages(row.package))
    return sum(_remove_archive(runtime, one, used) for one in waiting)


def _remove_archive(runtime: Runtime, one: Unnamed, used: set[str]) -> bool:
    def remove() -> None:
        runtime.blobs.delete(PACKAGES, blob_of(one.digest))
        runtime.blobs.delete(PACKAGES, environment_blob(one.digest))

    return one.digest not in used and remove_unnamed(package_table.packages(runtime), one, remove)


def remove_unnamed(table: UploadTable[Version], one: Unnamed, remove: Callable[[], None]) -> bool:
    """Delete an archive that nothing uses, by `remove`, unless it was pushed again meanwhile."""

    def claim(found: Row | None) -> tuple[Operation, ...]:
        going = found is not None and not UNNAMED.load(found).going
        return (write_unnamed(replace(one, going=True)),) if going else ()

    def forget(found: Row | None) -> tuple[Operation, ...]:
        if found is None or not UNNAMED.load(found).going:
            return ()
        return (Delete(row=found.row, etag=found.etag),)

    row = unnamed_row(one.digest)
    table.update(row, claim)
    now = table.unnamed(one.digest)
    if now is None or not now.going:
        return False
    named = one.digest in table.digests()
    if not named:
        remove()
        log.info("archive deleted", kind=table.word, digest=one.digest)
    table.update(row, forget)
    return not named


def may_see(table: UploadTable[Version], person: str, row: PackageRow) -> bool:
    """Tell whether a person sees a package, and may run and download it."""
    if not person:
        return False
    if row.owner == person or row.visibility is Visibility.EVERYONE:
        return True
    if row.visibility is not Visibility.LINK or not row.secret:
        return False
    opened = table.opened_by(person, row.id)
    return compare_digest(opened.encode(), row.secret.encode())


def load_for(table: UploadTable[Version], person: str, package: str) -> PackageRow:
    """Load a package that a person sees, by its id; raise NoSuchPackageError."""
    row = table.package(package)
    if row is None or not may_see(table, person, row):
        raise NoSuchPackageError(package, table.word)
    return row


def own(table: UploadTable[Version], person: str, package: str) -> PackageRow:
    """Load a person's own package, by its id, to change it; raise NoSuchPackageError."""
    row = table.package(package)
    if row is None or not person or row.owner != person:
        raise NoSuchPackageError(package, table.word)
    return row


def visible(table: UploadTable[Version], person: str) -> Iterator[PackageRow]:
    """Yield the packages that a person sees: own ones, those opened by a link, everyone's."""
    ids = dict.fromkeys([*table.owned(person), *table.opened(person), *table.for_everyone()])
    for package in ids:
        row = table.package(package)
        if row is not None and may_see(table, person, row):
            yield row


def open_link(table: UploadTable[Version], person: str, package: str, secret: str) -> PackageRow:
    """Give a person who has a package's link the package.

    Raises NoSuchPackageError for a wrong link or one that was withdrawn.
    """
    row = table.package(package)
    if (
        row is None
        or not person
        or row.visibility is not Visibility.LINK
        or not row.secret
        or not compare_digest(row.secret.encode(), secret.encode())
    ):
        raise NoSuchPackageError("of this link", table.word)
    if row.owner != person:
        table.open(person, package, secret)
    return row


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A version of an uploaded package, with its package."""

    row: PackageRow
    version: VersionRow

    @property
    def found(self) -> FoundPackage:
        """The version as something that can be run."""
        return FoundPackage(
            package=self.version.manifest, owner=self.row.owner, digest=self.version.digest
        )


def stored(runtime: Runtime, person: str, reference: PackageReference) -> Stored | None:
    """Return the version that a reference means to a person; None: there is none to see."""
    found = meant(package_table.packages(runtime), person, reference)
    return Stored(row=found[0], version=found[1]) if found else None


def meant(
    table: UploadTable[Version], person: str, reference: PackageReference
) -> tuple[PackageRow, Version] | None:
    """Return the upload and the version that a reference means to a person; None: none to see."""
    row = table.package(package_id(reference.owner or person, reference.name))
    if row is None or not may_see(table, person, row):
        return None
    if reference.digest:
        versions = table.versions(row.id)
        found = next((each for each in versions if each.digest == reference.digest), None)
    else:
        chosen = reference.version or row.newest
        found = table.version(row.id, chosen) if chosen else None
    return (row, found) if found else None


class PackagesOf:
    """The packages that a person may name: own ones, those of the installation, shared ones."""

    def __init__(self, runtime: Runtime, local: Packages, person: str) -> None:
        self._runtime = runtime
        self._local = local
        self._person = person

    def names(self) -> tuple[str, ...]:
        found = {*self._local.names()}
        for row in visible(package_table.packages(self._runtime), self._person):
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


def put_whole(blobs: Blobs, container: str, name: str, file: Path) -> None:
    """Store a file unless it is there whole; one that is there in part is stored again."""
    try:
        if blobs.size(container, name) == file.stat().st_size:
            return
        blobs.delete(container, name)
    except BlobMissingError:
        pass
    blobs.put_file(container, name, file)


def named_again(table: UploadTable[Version], digest: str) -> tuple[Operation, ...]:
    """Take an archive off those that no version names."""
    found = table.unnamed(digest)
    if found is None:
        return ()
    if found.going:
        raise StoreError(BEING_DELETED)
    return (Delete(row=unnamed_row(digest), etag=found.etag),)


def _newest(versions: Sequence[UploadedVersion]) -> str:
    """Return the version last pushed of those that are not deprecated; "" when there is none."""
    left = [version for version in versions if not version.deprecated]
    return max(left, key=lambda version: version.pushed).version if left else ""


def _present(found: Row | None, row: PackageRow, word: str) -> PackageRow:
    if found is None:
        raise NoSuchPackageError(row.name, word)
    return PACKAGE.load(found)


def _change(
    table: UploadTable[Version], row: PackageRow, change: Callable[[PackageRow], PackageRow]
) -> PackageRow:
    def changing(found: Row | None) -> tuple[Operation, ...]:
        current = _present(found, row, table.word)
        after = change(current)
        if after == current:
            return ()
        return write_package(found, replace(after, changed=table.clock.now()))

    table.update(package_row(row.id), changing)
    return _load(table, row.id, row.name)


def _load(table: UploadTable[Version], package: str, name: str) -> PackageRow:
    row = table.package(package)
    if row is None:
        raise NoSuchPackageError(name, table.word)
    return row
