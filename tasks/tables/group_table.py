"""Groups: named sets of people with whom requests are shared. Its RowKeys are spelt here alone.

They are rows of the table `requests`: `g|name` is a group, `m|owner|name` says that somebody is in
it, so that one range of rows lists the groups of a person. A name stays with its owner for good,
even when the group is empty: requests that were shared with it are never shown to another owner's
people.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tasks.errors import SwathmillError
from tasks.model.package_reference import NAME
from tasks.storage.clock import Clock
from tasks.storage.codec import Codec, in_json
from tasks.storage.store import Delete, Operation, Row, Store, Upsert
from tasks.tables import updates
from tasks.tables.request_table import PARTITION, TABLE

_NAME = re.compile(NAME)
MOST_MEMBERS = 40
"""All rows of a group are changed in one transaction."""


class GroupTakenError(SwathmillError):
    """Another owner's group has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The name {name} is taken; choose another for your group.")


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """A group. Its owner is a member, too, and is not among `members`."""

    name: str
    owner: str
    members: tuple[str, ...] = ()
    disbanded: bool = False

    @property
    def everyone(self) -> frozenset[str]:
        """All who are in the group."""
        return frozenset() if self.disbanded else frozenset((self.owner, *self.members))


@dataclass(frozen=True, kw_only=True)
class _Membership:
    name: str


_GROUP = Codec(GroupRow, "group", {"members": in_json(tuple[str, ...])})
_MEMBERSHIP = Codec(_Membership, "membership")


class GroupTable:
    """The groups in a store. Every call may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, name: str) -> GroupRow | None:
        """Return a group that is not disbanded; None, too, for what is not the name of one."""
        named = _NAME.fullmatch(name)  # others may have characters that a RowKey cannot
        found = self._store.get(TABLE, PARTITION, f"g|{name}") if named else None
        row = _GROUP.load(found) if found else None
        return None if row is None or row.disbanded else row

    def of(self, person: str) -> list[GroupRow]:
        """Return the groups that somebody is in, by name."""
        start, end = updates.prefix_range(f"m|{updates.hashed(person)}|")
        names = [_MEMBERSHIP.load(r).name for r in self._store.scan(TABLE, PARTITION, start, end)]
        return [row for name in names if (row := self.find(name)) is not None]

    def has(self, name: str, person: str) -> bool:
        """Whether somebody is in a group."""
        found = self.find(name) if name and person else None
        return found is not None and person in found.everyone

    def write(self, clock: Clock, new: GroupRow) -> None:
        """Write a group with its members.

        Raises:
            GroupTakenError: another owner has, or had, a group of this name.
        """

        def change(old: GroupRow | None) -> GroupRow:
            if old is not None and old.owner != new.owner:
                raise GroupTakenError(new.name)
            return new

        self._change(clock, new.name, change)

    def leave(self, clock: Clock, name: str, person: str) -> None:
        """Take somebody out of a group; without its owner it is disbanded."""

        def change(old: GroupRow | None) -> GroupRow | None:
            if old is None or person not in old.everyone:
                return None
            if person == old.owner:
                return GroupRow(name=name, owner=person, disbanded=True)
            return replace(old, members=tuple(one for one in old.members if one != person))

        self._change(clock, name, change)

    def _change(
        self, clock: Clock, name: str, decide: Callable[[GroupRow | None], GroupRow | None]
    ) -> None:
        """Write what `decide` makes of a group, unless it is None, and who is in it."""

        def change(found: Row | None) -> tuple[Operation, ...]:
            old = _GROUP.load(found) if found else None
            new = decide(old)
            if new is None:
                return ()
            there = frozenset[str]() if old is None else old.everyone
            member = _MEMBERSHIP.dump(_Membership(name=name))
            return (
                updates.write(found, f"g|{name}", _GROUP.dump(new)),
                *(Delete(row=_place(one, name)) for one in sorted(there - new.everyone)),
                *(
                    Upsert(row=_place(one, name), entity=member)
                    for one in sorted(new.everyone - there)
                ),
            )

        updates.update(self._store, clock, TABLE, PARTITION, f"g|{name}", change)


def _place(person: str, name: str) -> str:
    return f"m|{updates.hashed(person)}|{name}"
