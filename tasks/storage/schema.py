"""Schema numbers of stored rows: those from `OLDEST` on are read as today's, others are refused.

Every row carries `schema`, the number of the build that wrote it. A row of an older number passes
through the upgrades of its kind, one for each number in between; it is stored again when it is next
changed. Raise `SCHEMA` when a kind of row changes, and add the upgrade here, unless all that
changes is a new property for which the default of its field is right.

While processes of two builds run, the newer ones write rows as the older ones do: storage notes how
its rows are written (`tasks/operators/row_schema.py`), and each process keeps to that from its
start on. So with each upgrade comes the way back.
"""

from collections.abc import Callable, Mapping

from tasks.errors import SwathmillError
from tasks.storage.store import Entity, Row

OLDEST, SCHEMA = 6, 7

PARTS_AND_RECORDS = 7
"""Specifications of tasks that fetch parts of granules, of layers of records, and of rasters that
are made without cells."""

PADDED_LABELS = 7
"""Labels of layers in specifications of groups, with collections as granules have them."""

QUOTAS_OF_ALL = 7
"""Quotas of a package and of the whole service."""

SPECS_IN_TASKS = 7
"""Small specifications in the rows of their tasks."""

BRIEF_ROWS = 7
"""Rows without what their RowKeys say and what has its default, packed specifications, and edges
that are written together in one row."""

Upgrade = Callable[[Entity], Entity]


class OtherSchemaError(SwathmillError):
    """A row was written by a build whose rows this one cannot read; it must not touch them."""

    def __init__(self, row: str, schema: int) -> None:
        remedy = (
            "install the newer version here, too"
            if schema > SCHEMA
            else "begin with an empty data folder or storage account"
        )
        super().__init__(
            f"row {row!r} has schema {schema}, and this Swathmill reads schemas {OLDEST} to "
            f"{SCHEMA}: {remedy}"
        )


# By kind of row, then by the number that the upgrade starts from.
UPGRADES: Mapping[str, Mapping[int, Upgrade]] = {}
# By kind of row, then by the number that the way back starts from.
DOWNGRADES: Mapping[str, Mapping[int, Upgrade]] = {}


class _Written:
    """How this process writes rows."""

    number = SCHEMA


def written() -> int:
    """Return the schema of the rows that this process writes."""
    return _Written.number


def write_as(number: int) -> None:
    """Write rows of this schema from now on: this build's own, or the one before it.

    Raises:
        OtherSchemaError: this build cannot write it.
    """
    if number not in (SCHEMA - 1, SCHEMA):
        raise OtherSchemaError("schema", number)
    _Written.number = number


def outgoing(kind: str, entity: Entity) -> Entity:
    """Return a row's properties as they are to be written, with the number of their schema."""
    steps = DOWNGRADES.get(kind, {})
    for step in range(SCHEMA, _Written.number, -1):
        if step in steps:
            entity = steps[step](entity)
    entity["schema"] = _Written.number
    return entity


def current(kind: str, row: Row) -> Entity:
    """Return a row's properties as a build of this schema writes them.

    Raises:
        OtherSchemaError: a newer build wrote the row, or one that is too old.
    """
    entity = row.entity
    number = int(entity.get("schema", 1))
    if not OLDEST <= number <= SCHEMA:
        raise OtherSchemaError(row.row, number)
    upgrades = UPGRADES.get(kind, {})
    for step in range(number, SCHEMA):
        if step in upgrades:
            entity = upgrades[step](entity)
    return entity
