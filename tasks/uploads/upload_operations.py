"""What can be done with uploads of any kind: push, list, share, deprecate, open and delete them.

An upload that a person may not see is to that person as one that does not exist: every answer is
the same. Only its owner changes an upload. Its blobs are stored before the version's row, and go
once no version and no live request names them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Generic

import structlog

from tasks.answers.uploads import Visibility
from tasks.bag.runtime import Runtime
from tasks.errors import BlobMissingError, StoreError, SwathmillError
from tasks.packages.package_reference import PackageReference
from tasks.requests.request_table import RequestTable
from tasks.storage.blobs import Blobs
from tasks.storage.store import Delete, Operation, Row
from tasks.uploads.upload_table import (
    BEING_DELETED,
    UNNAMED,
    UPLOAD,
    Unnamed,
    UploadedVersion,
    UploadKind,
    UploadRow,
    UploadTable,
    Version,
    remove_upload,
    remove_version,
    unnamed_row,
    upload_id,
    upload_row,
    write_unnamed,
    write_upload,
)

log = structlog.get_logger("uploads")

MOST_VERSIONS = 30  # of an upload: all its rows go in one transaction
MOST_OWNED = 200  # uploads of one kind that a person has
_SECRET_BITS = 128


class NoSuchUploadError(SwathmillError):
    """There is no such upload, or the caller may not see it."""

    def __init__(self, what: str, kind: str) -> None:
        self.kind = kind
        super().__init__(f"there is no {kind} {what}, or you may not see it")


class UploadConflictError(SwathmillError):
    """The upload is not in a state that allows the change; says what to do."""


@dataclass(frozen=True, kw_only=True)
class Push(Generic[Version]):
    """A version that is being pushed.

    `put` stores its blobs unless they are there. `choose` returns the version that this push is:
    one of those that are there, or a new one; it raises UploadConflictError.
    """

    owner: str
    name: str
    description: str
    digest: str
    put: Callable[[], None]
    choose: Callable[[list[Version]], Version]


def push(table: UploadTable[Version], new: Push[Version]) -> Version:
    """Store a version of its owner's upload; the same content again is success.

    Raises:
        UploadConflictError: the version has other content, or there are too many.
        StoreError: storage failed; push it again.
    """
    table.note_unnamed(new.digest)
    new.put()
    upload = upload_id(new.owner, new.name)
    made: list[str] = []

    def change(found: Row | None) -> tuple[Operation, ...]:
        versions = table.versions(upload)
        version = new.choose(versions)
        made[:] = [version.version]
        if version in versions:
            return ()
        row = replace(
            with_room(table, found, new.owner, new.name),
            description=new.description,
            newest=version.version,
            changed=version.pushed,
        )
        operation = table.write_version(version)
        return *write_upload(found, row), operation, *named_again(table, new.digest)

    table.update(upload_row(upload), change)
    # It may have gone between the first call and the row that names it.
    new.put()
    stored = table.version(upload, made[0])
    if stored is None:
        raise StoreError(f"{new.name} was deleted while it was pushed; push it again")
    return stored


def with_room(table: UploadTable[Version], found: Row | None, owner: str, name: str) -> UploadRow:
    """Return the row of an upload, new where none was found, that can have one more version.

    Raises UploadConflictError when there are too many.
    """
    if found is None and len(table.owned(owner)) >= MOST_OWNED:
        raise UploadConflictError(
            f"You have {MOST_OWNED} {table.word}s, the most there may be. Delete one."
        )
    if len(table.versions(upload_id(owner, name))) >= MOST_VERSIONS:
        raise UploadConflictError(
            f"{name} has {MOST_VERSIONS} versions, the most there may be. Delete one."
        )
    return UPLOAD.load(found) if found else UploadRow(owner=owner, name=name)


def share(
    table: UploadTable[Version], row: UploadRow, visibility: Visibility, *, renew: bool = False
) -> UploadRow:
    """Say who sees an upload. A link that was withdrawn opens nothing any more; `renew` makes one.

    Raises NoSuchUploadError when it was deleted meanwhile.
    """
    secret = f"{table.random.getrandbits(_SECRET_BITS):032x}"

    def change(current: UploadRow) -> UploadRow:
        if visibility is not Visibility.LINK:
            return replace(current, visibility=visibility, secret="")
        kept = current.secret if current.secret and not renew else secret
        return replace(current, visibility=visibility, secret=kept)

    return _change(table, row, change)


def deprecate(table: UploadTable[Version], row: UploadRow, version: str, why: str) -> UploadRow:
    """Deprecate a version, or with "" take that back. Requests that name it still run it.

    Raises NoSuchUploadError when there is no such version.
    """

    def change(found: Row | None) -> tuple[Operation, ...]:
        current = _present(found, row, table.word)
        versions = table.versions(row.id)
        one = next((each for each in versions if each.version == version), None)
        if one is None:
            raise NoSuchUploadError(f"{row.name}@{version}", table.word)
        after = replace(one, deprecated=why[:500])
        newest = _newest([after if each is one else each for each in versions])
        if after == one and newest == current.newest:
            return ()
        changed = replace(current, newest=newest, changed=table.clock.now())
        return *write_upload(found, changed), table.write_version(after)

    table.update(upload_row(row.id), change)
    return _load(table, row.id, row.name)


def delete(table: UploadTable[Version], row: UploadRow, version: str = "") -> None:
    """Delete a version, or the whole upload; what runs by now goes on.

    Raises NoSuchUploadError when there is no such version.
    """
    gone: list[str] = []

    def change(found: Row | None) -> tuple[Operation, ...]:
        if found is None:
            return ()
        current = UPLOAD.load(found)
        versions = table.versions(row.id)
        going = [each for each in versions if version in ("", each.version)]
        if version and not going:
            if gone:  # by an earlier call, whose answer was lost
                return ()
            raise NoSuchUploadError(f"{row.name}@{version}", table.word)
        gone[:] = sorted({each.digest for each in going})
        left = [each for each in versions if each not in going]
        removed = tuple(remove_version(each) for each in going)
        noted = tuple(
            write_unnamed(Unnamed(digest=digest, since=table.clock.now())) for digest in gone
        )
        if not left:
            return *remove_upload(current), *removed, *noted
        after = replace(current, newest=_newest(left), changed=table.clock.now())
        return *write_upload(found, after), *removed, *noted

    table.update(upload_row(row.id), change)


def collect(runtime: Runtime, kind: UploadKind[Version]) -> int:
    """Delete the blobs that no version names and no live request uses; return how many uploads."""
    table = kind.table(runtime)
    waiting = table.all_unnamed()
    if not waiting:
        return 0
    used = table.digests()
    for request in RequestTable(runtime.store).live():
        row = RequestTable(runtime.store).request(request)
        if row is None or row.state.unplanned:
            return 0  # it may be about to name one
        named = kind.used_by(row)
        if named is None:
            return 0
        used.update(named)

    def remove(digest: str) -> None:
        for name in kind.blobs(digest):
            runtime.blobs.delete(kind.container, name)

    return sum(
        remove_unnamed(table, one, partial(remove, one.digest))
        for one in waiting
        if one.digest not in used
    )


def remove_unnamed(table: UploadTable[Version], one: Unnamed, remove: Callable[[], None]) -> bool:
    """Delete the blobs of a digest that nothing uses, by `remove`, unless it was pushed again."""

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


def may_see(table: UploadTable[Version], person: str, row: UploadRow) -> bool:
    """Tell whether a person sees an upload, and may use it."""
    if not person:
        return False
    if row.owner == person or row.visibility is Visibility.EVERYONE:
        return True
    if row.visibility is not Visibility.LINK or not row.secret:
        return False
    opened = table.opened_by(person, row.id)
    return compare_digest(opened.encode(), row.secret.encode())


def load_for(table: UploadTable[Version], person: str, upload: str) -> UploadRow:
    """Load an upload that a person sees, by its id; raise NoSuchUploadError."""
    row = table.upload(upload)
    if row is None or not may_see(table, person, row):
        raise NoSuchUploadError(upload, table.word)
    return row


def own(table: UploadTable[Version], person: str, upload: str) -> UploadRow:
    """Load a person's own upload, by its id, to change it; raise NoSuchUploadError."""
    row = table.upload(upload)
    if row is None or not person or row.owner != person:
        raise NoSuchUploadError(upload, table.word)
    return row


def visible(table: UploadTable[Version], person: str) -> Iterator[UploadRow]:
    """Yield the uploads that a person sees: own ones, those opened by a link, everyone's."""
    ids = dict.fromkeys([*table.owned(person), *table.opened(person), *table.for_everyone()])
    for upload in ids:
        row = table.upload(upload)
        if row is not None and may_see(table, person, row):
            yield row


def open_link(table: UploadTable[Version], person: str, upload: str, secret: str) -> UploadRow:
    """Give a person who has an upload's link the upload.

    Raises NoSuchUploadError for a wrong link or one that was withdrawn.
    """
    row = table.upload(upload)
    if (
        row is None
        or not person
        or row.visibility is not Visibility.LINK
        or not row.secret
        or not compare_digest(row.secret.encode(), secret.encode())
    ):
        raise NoSuchUploadError("of this link", table.word)
    if row.owner != person:
        table.open(person, upload, secret)
    return row


def meant(
    table: UploadTable[Version], person: str, reference: PackageReference
) -> tuple[UploadRow, Version] | None:
    """Return the upload and the version that a reference means to a person; None: none to see."""
    row = table.upload(upload_id(reference.owner or person, reference.name))
    if row is None or not may_see(table, person, row):
        return None
    if reference.digest:
        versions = table.versions(row.id)
        found = next((each for each in versions if each.digest == reference.digest), None)
    else:
        chosen = reference.version or row.newest
        found = table.version(row.id, chosen) if chosen else None
    return (row, found) if found else None


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
    """Take a digest off those that no version names."""
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


def _present(found: Row | None, row: UploadRow, word: str) -> UploadRow:
    if found is None:
        raise NoSuchUploadError(row.name, word)
    return UPLOAD.load(found)


def _change(
    table: UploadTable[Version], row: UploadRow, change: Callable[[UploadRow], UploadRow]
) -> UploadRow:
    def changing(found: Row | None) -> tuple[Operation, ...]:
        current = _present(found, row, table.word)
        after = change(current)
        if after == current:
            return ()
        return write_upload(found, replace(after, changed=table.clock.now()))

    table.update(upload_row(row.id), changing)
    return _load(table, row.id, row.name)


def _load(table: UploadTable[Version], upload: str, name: str) -> UploadRow:
    row = table.upload(upload)
    if row is None:
        raise NoSuchUploadError(name, table.word)
    return row
