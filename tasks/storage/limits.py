"""The limits of Azure Tables, checked before a transaction is sent: Azurite enforces few of them.

Sizes follow "Understanding the Table service data model" (Microsoft Learn): strings are UTF-16.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tasks.storage.store import (
    BATCH_BYTES,
    BATCH_OPERATIONS,
    ENTITY_BYTES,
    PROPERTY_BYTES,
    Delete,
    Operation,
    Value,
)

T = TypeVar("T")

KEY_BYTES = 1024
PROPERTIES = 252
_GROUP = BATCH_BYTES * 3 // 4
_ENVELOPE = 1024  # of one operation: its MIME part, URL and headers
_ENTITY, _PROPERTY = 4, 12  # beside keys, name and value
_LEAST, _MOST = -(2**63), 2**63 - 1
_TYPED = 40  # of one property: its name comes twice, once with its type
_FORBIDDEN = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")


def check_key(key: str) -> None:
    """Raise ValueError when Azure refuses `key` as a PartitionKey or RowKey."""
    if bad := _FORBIDDEN.search(key):
        raise ValueError(f"key {key!r} has a character a table key cannot have: {bad[0]!r}")
    if 2 * len(key) > KEY_BYTES or (not key.isascii() and _utf16(key) > KEY_BYTES):
        raise ValueError(f"key of {len(key)} characters is longer than {KEY_BYTES} bytes")


def can_be_key(key: str) -> bool:
    """Tell whether a row could have this key: what callers name may be anything."""
    try:
        check_key(key)
    except ValueError:
        return False
    return True


def _utf16(text: str) -> int:
    """Return the bytes a text takes, as the service counts them."""
    return len(text.encode("utf-16-le"))


def check_transaction(
    partition: str, operations: Sequence[Operation], most: int = BATCH_OPERATIONS
) -> None:
    """Raise ValueError when Azure refuses the transaction whatever is stored.

    `most` is how many operations it may have, if that is not Azure's limit.
    """
    if not 1 <= len(operations) <= most:
        raise ValueError(f"a transaction of {len(operations)} operations; 1 to {most} are allowed")
    check_key(partition)
    if len({op.row for op in operations}) < len(operations):
        raise ValueError("a transaction changes a row twice")
    total = sum(_checked_size(partition, operation) for operation in operations)
    if total > BATCH_BYTES:
        raise ValueError(f"a transaction of {total} bytes; {BATCH_BYTES} are allowed")


def operation_size(partition: str, operation: Operation) -> int:
    """Return the bytes an operation adds to its transaction on the wire, rounded up.

    The limit of 4 MiB applies to the body, in which binary is base64 and characters beyond ASCII
    are escaped.
    """
    size = _ENVELOPE + 4 * (len(partition) + len(operation.row))
    if isinstance(operation, Delete):
        return size
    for name, value in operation.entity.items():
        size += _TYPED + 2 * len(name) + _wire_size(value)
    return size


def grouped(
    partition: str,
    items: Iterable[T],
    operations: Callable[[T], Sequence[Operation]],
    *,
    most: int = BATCH_OPERATIONS,
) -> Iterator[list[T]]:
    """Yield items in groups, in order, the operations of each within one transaction.

    A transaction has at most `most` operations. A quarter of its bytes stays free.
    """
    group: list[T] = []
    count = size = 0
    for item in items:
        own = operations(item)
        number, more = len(own), sum(operation_size(partition, one) for one in own)
        if group and (count + number > most or size + more > _GROUP):
            yield group
            group, count, size = [], 0, 0
        group.append(item)
        count, size = count + number, size + more
    if group:
        yield group


def _wire_size(value: Value) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else 6 * len(value)
    if isinstance(value, bytes):
        return 4 * ((len(value) + 2) // 3)
    return 24


def _checked_size(partition: str, operation: Operation) -> int:
    """As `operation_size`, of an operation that alone is allowed.

    Each row written passes here: the size in storage is computed beside that on the wire.
    """
    row = operation.row
    check_key(row)
    keys = len(partition) + len(row)
    wire = _ENVELOPE + 4 * keys
    if isinstance(operation, Delete):
        return wire
    entity = operation.entity
    if len(entity) > PROPERTIES:
        raise ValueError(f"row {row!r} has {len(entity)} properties; 252 are allowed")
    total = _ENTITY + 2 * keys + _PROPERTY * len(entity)
    wire += _TYPED * len(entity)
    for name, value in entity.items():
        if isinstance(value, str):
            ascii_only = value.isascii()
            size = 2 * len(value) if ascii_only else _utf16(value)
            wire += len(value) if ascii_only else 6 * len(value)
        elif isinstance(value, bytes):
            size = len(value)
            wire += _wire_size(value)
        else:
            if isinstance(value, int) and not _LEAST <= value <= _MOST:
                raise ValueError(f"property {name!r} of row {row!r} exceeds 64 bits")
            size = 8
            wire += 24
        if size > PROPERTY_BYTES:
            raise ValueError(f"property {name!r} of row {row!r} is larger than 64 KiB")
        named = 2 * len(name)
        total += named + size
        wire += named
    if total > ENTITY_BYTES:
        raise ValueError(f"row {row!r} is larger than 1 MiB")
    return wire
