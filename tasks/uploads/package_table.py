"""The tables `packages` and `rasters`: uploads, their versions, and who sees them.

The two have the same rows. Their RowKeys are spelt here alone. By RowKey, in one partition:

| row | is |
|---|---|
| `p|id` | a package: owner, name, who sees it, its newest version |
| `v|id|version` | a version, with its manifest and the digest of its archive |
| `o|owner|name` | a package's place in the list of its owner's |
| `e|name|id` | its place in the list of those that everyone sees |
| `s|person|id` | somebody has opened its link, and which |
| `x|digest` | no version names this archive any more, so its blob may go |

An id is computed from owner and name. A change to a package is one transaction on its row's ETag.
"""

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Generic, TypeVar

from reprojection.catalogue.user_raster import UserRaster
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.packages.packages import Package
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.codec import WORDS_IN_BYTES, Codec, Form, cut
from tasks.storage.limits import can_be_key
from tasks.storage.store import Delete, Operation, Row, Store, Upsert
from tasks.storage.updates import hashed, prefix_range, write

TABLE = "packages"
PARTITION = "packages"
RASTERS = "rasters"
"""The table of rasters, and its partition."""


class Visibility(StrEnum):
    """Who sees a package, and may run and download it, besides its owner."""

    PRIVATE = "private"
    LINK = "link"  # whoever has opened its link, signed in
    EVERYONE = "everyone"


@dataclass(frozen=True, kw_only=True)
class PackageRow:
    """An uploaded package. `secret` is in its link; another secret ends the link."""

    owner: str
    name: str
    description: str = ""
    visibility: Visibility = Visibility.PRIVATE
    secret: str = ""
    newest: str = ""  # the version that its name alone means; "": all are deprecated
    changed: float = 0.0
    etag: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """The identity of this package among all."""
        return package_id(self.owner, self.name)


@dataclass(frozen=True, kw_only=True)
class UploadedVersion:
    """A version of an upload; its content never changes. `deprecated` says why, "": it is not."""

    package: str  # its id
    version: str
    digest: str
    size: int  # bytes of its archive
    pushed: float
    deprecated: str = ""
    etag: str = field(default="", compare=False)


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


@dataclass(frozen=True, kw_only=True)
class RasterVersionRow(UploadedVersion):
    """A version of a raster; `came_from` says which files or address it was made of."""

    raster: UserRaster
    came_from: str = ""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A row that names a package; `secret` is that of the link that was opened."""

    package: str
    secret: str = ""


@dataclass(frozen=True, kw_only=True)
class Unnamed:
    """An archive that no version names any more. `going`: its blob is being deleted."""

    digest: str
    since: float
    going: bool = False
    etag: str = field(default="", compare=False)


PACKAGE = Codec(PackageRow, "package", {"description": cut(2000)})
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


def describe(raster: UserRaster) -> bytes:
    """Return the description of a raster as its row holds it."""
    return zlib.compress(raster.model_dump_json().encode())


RASTER_VERSION = Codec(
    RasterVersionRow,
    "raster version",
    {
        "raster": Form(
            write=describe,
            read=lambda data: UserRaster.model_validate_json(zlib.decompress(data)),
        ),
        "came_from": cut(500, sparse=True),
        "deprecated": cut(500, sparse=True),
    },
)
PLACE = Codec(_Place, "package place")
BEING_DELETED = "the archive of the same content is being deleted; try again"
UNNAMED = Codec(Unnamed, "unnamed archive")


def package_id(owner: str, name: str) -> str:
    """Return the id of an owner's package."""
    return hashlib.sha256(f"{owner}\0{name}".encode()).hexdigest()[:20]


def package_row(package: str) -> str:
    """Return the RowKey of a package."""
    return f"p|{package}"


Version = TypeVar("Version", bound=UploadedVersion)


class UploadTable(Generic[Version]):
    """The table of one kind of uploads in a store. Every call may raise StoreError."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        random: Random,
        table: str,
        codec: Codec[Version],
        word: str,
    ) -> None:
        self.word = word  # what one is called
        self.clock = clock
        self.random = random  # where secrets come from
        self._store = store
        self._table = table
        self._codec = codec

    def update(self, row: str, change: updates.Change) -> None:
        """Change a row, and others of its transaction, under its ETag, as `updates.update`."""
        updates.update(self._store, self.clock, self._table, self._table, row, change)

    def package(self, package: str) -> PackageRow | None:
        """Return a package by its id."""
        found = self._get(package_row(package))
        return PACKAGE.load(found) if found else None

    def version(self, package: str, version: str) -> Version | None:
        """Return a version of a package."""
        found = self._get(f"v|{package}|{version}")
        return self._codec.load(found) if found else None

    def versions(self, package: str) -> list[Version]:
        """Return a package's versions, the last one pushed first."""
        found = map(self._codec.load, self._scan(f"v|{package}|"))
        return sorted(found, key=lambda version: version.pushed, reverse=True)

    def owned(self, owner: str) -> list[str]:
        """Return the ids of an owner's packages, by name."""
        return [PLACE.load(row).package for row in self._scan(f"o|{hashed(owner)}|")]

    def for_everyone(self) -> list[str]:
        """Return the ids of the packages that everyone sees, by name."""
        return [PLACE.load(row).package for row in self._scan("e|")]

    def opened(self, person: str) -> dict[str, str]:
        """Return the packages whose link a person has opened: their ids, each with the secret."""
        found = (PLACE.load(row) for row in self._scan(f"s|{hashed(person)}|"))
        return {place.package: place.secret for place in found}

    def opened_by(self, person: str, package: str) -> str:
        """Return the secret by which a person has opened a package's link; "": he has not."""
        found = self._get(f"s|{hashed(person)}|{package}")
        return PLACE.load(found).secret if found else ""

    def open(self, person: str, package: str, secret: str) -> None:
        """Note that a person has opened a package's link."""
        row = f"s|{hashed(person)}|{package}"
        entity = PLACE.dump(_Place(package=package, secret=secret))
        self.update(row, lambda _found: (Upsert(row=row, entity=entity),))

    def unnamed(self, digest: str) -> Unnamed | None:
        """Return the note that no version names an archive any more."""
        found = self._get(f"x|{digest}")
        return UNNAMED.load(found) if found else None

    def all_unnamed(self) -> list[Unnamed]:
        """Return all archives that no version names any more."""
        return [UNNAMED.load(row) for row in self._scan("x|")]

    def note_unnamed(self, digest: str) -> None:
        """Note an archive that is about to be stored, so that it goes if no version names it."""

        def change(found: Row | None) -> tuple[Operation, ...]:
            if found is None and digest not in self.digests():
                return (write_unnamed(Unnamed(digest=digest, since=self.clock.now())),)
            if found is not None and UNNAMED.load(found).going:
                raise StoreError(BEING_DELETED)
            return ()

        self.update(unnamed_row(digest), change)

    def digests(self) -> set[str]:
        """Return the digests of all versions."""
        return {self._codec.load(row).digest for row in self._scan("v|")}

    def write_version(self, version: Version) -> Operation:
        """Write a version; its package's ETag guards the transaction."""
        row = f"v|{version.package}|{version.version}"
        return Upsert(row=row, entity=self._codec.dump(version))

    def _get(self, row: str) -> Row | None:
        return self._store.get(self._table, self._table, row) if can_be_key(row) else None

    def _scan(self, prefix: str) -> Iterator[Row]:
        return self._store.scan(self._table, self._table, *prefix_range(prefix))


def write_package(found: Row | None, new: PackageRow) -> tuple[Operation, ...]:
    """Write a package over what was found of it, with its places in the lists."""
    old = PACKAGE.load(found) if found else None
    place = PLACE.dump(_Place(package=new.id))
    shown = f"e|{new.name}|{new.id}"
    operations: list[Operation] = [write(found, package_row(new.id), PACKAGE.dump(new))]
    if old is None:
        operations.append(Upsert(row=f"o|{hashed(new.owner)}|{new.name}", entity=place))
    was = old is not None and old.visibility is Visibility.EVERYONE
    if new.visibility is Visibility.EVERYONE and not was:
        operations.append(Upsert(row=shown, entity=place))
    if new.visibility is not Visibility.EVERYONE and was:
        operations.append(Delete(row=shown))
    return tuple(operations)


def remove_package(row: PackageRow) -> tuple[Operation, ...]:
    """Remove a package's row and its places in the lists."""
    operations: list[Operation] = [
        Delete(row=package_row(row.id), etag=row.etag),
        Delete(row=f"o|{hashed(row.owner)}|{row.name}"),
    ]
    if row.visibility is Visibility.EVERYONE:
        operations.append(Delete(row=f"e|{row.name}|{row.id}"))
    return tuple(operations)


def remove_version(version: UploadedVersion) -> Operation:
    """Remove a version; its package's ETag guards the transaction."""
    return Delete(row=f"v|{version.package}|{version.version}")


def write_unnamed(unnamed: Unnamed) -> Operation:
    """Note that no version names an archive any more, or how far its removal is."""
    return Upsert(row=unnamed_row(unnamed.digest), entity=UNNAMED.dump(unnamed))


def unnamed_row(digest: str) -> str:
    """Return the RowKey of the note that no version names an archive."""
    return f"x|{digest}"


def packages(runtime: Runtime) -> UploadTable[VersionRow]:
    """Return the table `packages`."""
    return UploadTable(runtime.store, runtime.clock, runtime.random, TABLE, VERSION, "package")


def rasters(runtime: Runtime) -> UploadTable[RasterVersionRow]:
    """Return the table `rasters`."""
    return UploadTable(
        runtime.store, runtime.clock, runtime.random, RASTERS, RASTER_VERSION, "raster"
    )
