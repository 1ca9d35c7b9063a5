"""Schema numbers of stored rows: older rows are read as today's, newer ones are refused.

Every row carries `schema`, the number of the build that wrote it. A row of an older number passes
through the upgrades of its kind, one for each number in between; it is stored anew when it is next
changed. Raise `SCHEMA` when a kind of row changes, and add the upgrade here.
"""

from collections.abc import Callable, Mapping

from tasks.errors import SwathmillError
from tasks.storage.store import Entity, Row

SCHEMA = 4

Upgrade = Callable[[Entity], Entity]


class NewerSchemaError(SwathmillError):
    """A row was written by a newer build; this one must not touch it."""

    def __init__(self, row: str, schema: int) -> None:
        super().__init__(
            f"row {row!r} has schema {schema}, and this Swathmill reads schemas up to {SCHEMA}: "
            "install the newer version here, too (an older one cannot work on its rows)"
        )


def _with(**added: str | int | float | bool | bytes) -> Upgrade:
    """An upgrade that adds properties with what they mean where nothing was said."""

    def upgrade(entity: Entity) -> Entity:
        return {**added, **entity}

    return upgrade


def _cancelling(entity: Entity) -> Entity:
    """A request that was ordered to be cancelled, and had no state of its own for it."""
    if entity["order"] != "cancel":
        return entity
    live = entity["state"] in ("submitted", "waiting for confirmation", "planning", "running")
    return {**entity, "order": "", "state": "cancelling" if live else entity["state"]}


# By kind of row, then by the number that the upgrade starts from.
UPGRADES: Mapping[str, Mapping[int, Upgrade]] = {
    "request": {1: _with(retry_orders="[]", retry_of="", retried_as=""), 2: _cancelling},
    "mail": {3: _with(signs_in="", shows="[]")},
    "worker": {1: _with(moves="", hold="")},
}


def current(kind: str, row: Row) -> Entity:
    """A row's properties as a build of this schema writes them.

    Raises:
        NewerSchemaError: a newer build wrote the row.
    """
    entity = row.entity
    number = int(entity.get("schema", 1))
    if number > SCHEMA:
        raise NewerSchemaError(row.row, number)
    upgrades = UPGRADES.get(kind, {})
    for step in range(number, SCHEMA):
        if step in upgrades:
            entity = upgrades[step](entity)
    return entity
