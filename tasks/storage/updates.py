"""Change one row under its ETag, whatever calls fail on the way.

An answer that did not arrive says nothing. So after any refused or broken call the row is read
again, and `change` sees it as it is: it must recognise its own earlier success.
"""

import hashlib
import math
from collections.abc import Callable

from tasks.errors import ConflictError, StorageFullError, StoreError
from tasks.storage.clock import Clock
from tasks.storage.store import Entity, Insert, Operation, Replace, Row, Store

TRIES = 8
FIRST_WAIT = 0.05  # seconds; doubles with each broken call

Change = Callable[[Row | None], tuple[Operation, ...]]


def update(
    store: Store,
    clock: Clock,
    table: str,
    partition: str,
    row: str,
    change: Change,
    until: float = math.inf,
) -> tuple[str, ...]:
    """Read the row, apply what `change` makes of it (nothing: done), and repeat until it holds.

    No further try begins after `until`, on the monotonic clock. Returns what `Store.transact`
    returned; nothing when there was nothing to write.

    Raises:
        StoreError: storage failed on each of several tries; the outcome is unknown.
        StorageFullError: so did the last try, as its disk is full.
        SwathmillError: whatever `change` raises.
    """
    for number in range(TRIES):
        if number and clock.monotonic() >= until:
            break
        try:
            operations = change(store.get(table, partition, row))
            return store.transact(table, partition, operations) if operations else ()
        except ConflictError as error:
            last: StoreError = error
        except StoreError as error:
            last = error
            clock.sleep(FIRST_WAIT * 2**number)
    kind = StorageFullError if isinstance(last, StorageFullError) else StoreError
    raise kind(f"{table} row {row!r}: gave up after some tries: {last}") from last


def hashed(text: str) -> str:
    """Return what stands for a text of any length and characters in a RowKey."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def write(found: Row | None, row: str, entity: Entity) -> Operation:
    """Write a row in place of what was found there."""
    if found is None:
        return Insert(row=row, entity=entity)
    return Replace(row=row, entity=entity, etag=found.etag)


def prefix_range(prefix: str) -> tuple[str, str]:
    """Return the half-open range of RowKeys that start with a prefix ending in `|`."""
    return prefix, prefix[:-1] + "}"
