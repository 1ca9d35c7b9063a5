"""The limits of Azure Tables, checked before a transaction is sent: Azurite enforces few of them.

Sizes follow "Understanding the Table service data model" (Microsoft Learn): strings are UTF-16.
"""

from collections.abc import Sequence

from tasks.store import (
    BATCH_BYTES,
    BATCH_OPERATIONS,
    ENTITY_BYTES,
    PROPERTY_BYTES,
    Delete,
    Entity,
    Operation,
    Value,
)

KEY_BYTES = 1024
PROPERTIES = 252
_ENVELOPE = 1024  # of one operation: its MIME part, URL and headers
_TYPED = 40  # of one property: its name comes twice, once with its type
_FORBIDDEN = frozenset("/\\#?") | {chr(c) for c in (*range(0x20), *range(0x7F, 0xA0))}


def check_key(key: str) -> None:
    """Raise ValueError when Azure refuses `key` as a PartitionKey or RowKey."""
    bad = _FORBIDDEN.intersection(key)
    if bad:
        raise ValueError(f"key {key!r} has characters a table key cannot have: {sorted(bad)}")
    if len(key.encode("utf-16-le")) > KEY_BYTES:
        raise ValueError(f"key of {len(key)} characters is longer than {KEY_BYTES} bytes")


def value_size(value: Value) -> int:
    """Bytes a property's value takes, as the service counts them."""
    match value:
        case bool():
            return 1
        case int() | float():
            return 8
        case str():
            return len(value.encode("utf-16-le"))
        case bytes():
            return len(value)


def entity_size(partition: str, row: str, entity: Entity) -> int:
    """Bytes an entity takes, as the service counts them."""
    size = 4 + 2 * (len(partition) + len(row))
    return size + sum(8 + 2 * len(name) + 4 + value_size(v) for name, v in entity.items())


def check_transaction(partition: str, operations: Sequence[Operation]) -> None:
    """Raise ValueError when Azure refuses the transaction whatever is stored."""
    if not 1 <= len(operations) <= BATCH_OPERATIONS:
        raise ValueError(f"a transaction of {len(operations)} operations; 1 to 100 are allowed")
    check_key(partition)
    if len({op.row for op in operations}) < len(operations):
        raise ValueError("a transaction changes a row twice")
    for operation in operations:
        _check_operation(partition, operation)
    total = sum(operation_size(partition, operation) for operation in operations)
    if total > BATCH_BYTES:
        raise ValueError(f"a transaction of {total} bytes; {BATCH_BYTES} are allowed")


def operation_size(partition: str, operation: Operation) -> int:
    """Bytes an operation adds to its transaction on the wire, rounded up: the limit of 4 MiB is the
    body's, in which binary is base64 and other than ASCII is escaped."""
    size = _ENVELOPE + 4 * (len(partition) + len(operation.row))
    if isinstance(operation, Delete):
        return size
    named = sum(_TYPED + 2 * len(name) for name in operation.entity)
    return size + named + sum(_wire_size(value) for value in operation.entity.values())


def _wire_size(value: Value) -> int:
    match value:
        case bytes():
            return 4 * ((len(value) + 2) // 3)
        case str():
            return len(value) if value.isascii() else 6 * len(value)
        case _:
            return 24


def _check_operation(partition: str, operation: Operation) -> None:
    check_key(operation.row)
    if isinstance(operation, Delete):
        return
    entity = operation.entity
    if len(entity) > PROPERTIES:
        raise ValueError(f"row {operation.row!r} has {len(entity)} properties; 252 are allowed")
    for name, value in entity.items():
        if value_size(value) > PROPERTY_BYTES:
            raise ValueError(f"property {name!r} of row {operation.row!r} is larger than 64 KiB")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"property {name!r} of row {operation.row!r} exceeds 64 bits")
    if entity_size(partition, operation.row, entity) > ENTITY_BYTES:
        raise ValueError(f"row {operation.row!r} is larger than 1 MiB")
