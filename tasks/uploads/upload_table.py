"""The tables of uploads, one for each kind: uploads, their versions, and who sees them.

All kinds have the same rows, of which only versions differ. Their RowKeys are spelt here alone. By
RowKey, in one partition:

| row | is |
|---|---|
| `p|id` | an upload: owner, name, who sees it, its newest version |
| `v|id|version` | a version, with its content's digest and what its kind says of it |
| `o|owner|name` | an upload's place in the list of its owner's |
| `e|name|id` | its place in the list of those that everyone sees |
| `s|person|id` | somebody has opened its link, and which |
| `x|digest` | no version names this content any more, so its blobs may go |

An id is computed from owner and name. A change to an upload is one transaction on its row's ETag.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

from tasks.answers.uploads import Visibility
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.requests.request_table import RequestRow
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.codec import Codec, cut
from tasks.storage.limits import can_be_key
from tasks.storage.store import Delete, Operation, Row, Store, Upsert
from tasks.storage.updates import hashed, prefix_range, write


@dataclass(frozen=True, kw_only=True)
class UploadRow:
    """An upload. `secret` is in its link; another secret ends the link."""

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
        """The identity of this upload among all of its kind."""
        return upload_id(self.owner, self.name)


@dataclass(frozen=True, kw_only=True)
class UploadedVersion:
    """A version of an upload; its content never changes. `deprecated` says why, "": it is not."""

    package: str  # its id
    version: str
    digest: str
    size: int  # bytes of its content
    pushed: float
    deprecated: str = ""
    etag: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A row that names an upload; `secret` is that of the link that was opened."""

    package: str
    secret: str = ""


@dataclass(frozen=True, kw_only=True)
class Unnamed:
    """Content that no version names any more. `going`: its blobs are being deleted."""

    digest: str
    since: float
    going: bool = False
    etag: str = field(default="", compare=False)


UPLOAD = Codec(UploadRow, "package", {"description": cut(2000)})
PLACE = Codec(_Place, "package place")
BEING_DELETED = "the archive of the same content is being deleted; try again"
UNNAMED = Codec(Unnamed, "unnamed archive")


def upload_id(owner: str, name: str) -> str:
    """Return the id of an owner's upload."""
    return hashlib.sha256(f"{owner}\0{name}".encode()).hexdigest()[:20]


def upload_row(upload: str) -> str:
    """Return the RowKey of an upload."""
    return f"p|{upload}"


Version = TypeVar("Version", bound=UploadedVersion)


@dataclass(frozen=True, kw_only=True)
class UploadKind(Generic[Version]):
    """One kind of uploads: its table, its blobs, and what a request uses of it."""

    word: str  # what one is called
    name: str  # of the table, and its partition
    codec: Codec[Version]
    container: str
    blobs: Callable[[str], tuple[str, ...]]
    """The names of the blobs of a digest."""
    used_by: Callable[[RequestRow], Iterable[str] | None]
    """The digests that a planned request uses; None: it may use any."""

    def table(self, runtime: Runtime) -> "UploadTable[Version]":
        """Return the table of these uploads."""
        return UploadTable(runtime.store, runtime.clock, runtime.random, self)


class UploadTable(Generic[Version]):
    """The table of one kind of uploads in a store. Every call may raise StoreError."""

    def __init__(
        self, store: Store, clock: Clock, random: Random, kind: UploadKind[Version]
    ) -> None:
        self.word = kind.word
        self.clock = clock
        self.random = random  # where secrets come from
        self._store = store
        self._table = kind.name
        self._codec = kind.codec

    def update(self, row: str, change: updates.Change) -> None:
        """Change a row, and others of its transaction, under its ETag, as `updates.update`."""
        updates.update(self._store, self.clock, self._table, self._table, row, change)

    def upload(self, upload: str) -> UploadRow | None:
        """Return an upload by its id."""
        found = self._get(upload_row(upload))
        return UPLOAD.load(found) if found else None

    def version(self, upload: str, version: str) -> Version | None:
        """Return a version of an upload."""
        found = self._get(f"v|{upload}|{version}")
        return self._codec.load(found) if found else None

    def versions(self, upload: str) -> list[Version]:
        """Return an upload's versions, the last one pushed first."""
        found = map(self._codec.load, self._scan(f"v|{upload}|"))
        return sorted(found, key=lambda version: version.pushed, reverse=True)

    def owned(self, owner: str) -> list[str]:
        """Return the ids of an owner's uploads, by name."""
        return [PLACE.load(row).package for row in self._scan(f"o|{hashed(owner)}|")]

    def for_everyone(self) -> list[str]:
        """Return the ids of the uploads that everyone sees, by name."""
        return [PLACE.load(row).package for row in self._scan("e|")]

    def opened(self, person: str) -> dict[str, str]:
        """Return the uploads whose link a person has opened: their ids, each with the secret."""
        found = (PLACE.load(row) for row in self._scan(f"s|{hashed(person)}|"))
        return {place.package: place.secret for place in found}

    def opened_by(self, person: str, upload: str) -> str:
        """Return the secret by which a person has opened an upload's link; "": he has not."""
        found = self._get(f"s|{hashed(person)}|{upload}")
        return PLACE.load(found).secret if found else ""

    def open(self, person: str, upload: str, secret: str) -> None:
        """Note that a person has opened an upload's link."""
        row = f"s|{hashed(person)}|{upload}"
        entity = PLACE.dump(_Place(package=upload, secret=secret))
        self.update(row, lambda _found: (Upsert(row=row, entity=entity),))

    def unnamed(self, digest: str) -> Unnamed | None:
        """Return the note that no version names a content any more."""
        found = self._get(f"x|{digest}")
        return UNNAMED.load(found) if found else None

    def all_unnamed(self) -> list[Unnamed]:
        """Return all content that no version names any more."""
        return [UNNAMED.load(row) for row in self._scan("x|")]

    def note_unnamed(self, digest: str) -> None:
        """Note content that is about to be stored, so that it goes if no version names it."""

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
        """Write a version; its upload's ETag guards the transaction."""
        row = f"v|{version.package}|{version.version}"
        return Upsert(row=row, entity=self._codec.dump(version))

    def _get(self, row: str) -> Row | None:
        return self._store.get(self._table, self._table, row) if can_be_key(row) else None

    def _scan(self, prefix: str) -> Iterator[Row]:
        return self._store.scan(self._table, self._table, *prefix_range(prefix))


def write_upload(found: Row | None, new: UploadRow) -> tuple[Operation, ...]:
    """Write an upload over what was found of it, with its places in the lists."""
    old = UPLOAD.load(found) if found else None
    place = PLACE.dump(_Place(package=new.id))
    shown = f"e|{new.name}|{new.id}"
    operations: list[Operation] = [write(found, upload_row(new.id), UPLOAD.dump(new))]
    if old is None:
        operations.append(Upsert(row=f"o|{hashed(new.owner)}|{new.name}", entity=place))
    was = old is not None and old.visibility is Visibility.EVERYONE
    if new.visibility is Visibility.EVERYONE and not was:
        operations.append(Upsert(row=shown, entity=place))
    if new.visibility is not Visibility.EVERYONE and was:
        operations.append(Delete(row=shown))
    return tuple(operations)


def remove_upload(row: UploadRow) -> tuple[Operation, ...]:
    """Remove an upload's row and its places in the lists."""
    operations: list[Operation] = [
        Delete(row=upload_row(row.id), etag=row.etag),
        Delete(row=f"o|{hashed(row.owner)}|{row.name}"),
    ]
    if row.visibility is Visibility.EVERYONE:
        operations.append(Delete(row=f"e|{row.name}|{row.id}"))
    return tuple(operations)


def remove_version(version: UploadedVersion) -> Operation:
    """Remove a version; its upload's ETag guards the transaction."""
    return Delete(row=f"v|{version.package}|{version.version}")


def write_unnamed(unnamed: Unnamed) -> Operation:
    """Note that no version names a content any more, or how far its removal is."""
    return Upsert(row=unnamed_row(unnamed.digest), entity=UNNAMED.dump(unnamed))


def unnamed_row(digest: str) -> str:
    """Return the RowKey of the note that no version names a content."""
    return f"x|{digest}"
