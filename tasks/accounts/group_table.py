"""Groups: named sets of people with whom requests are shared. Its RowKeys are spelt here alone.

Each owner has names of their own, so that no answer tells what another's groups are called. People
call a group `OWNER/NAME`, rows `NAME.OWNER` with the owner hashed: its key. Its rows are in the
table `requests`: `g|key` is a group, `m|person|key` says that somebody is in it, so that one range
of rows lists the groups of a person. A request that is shared with a group that was disbanded is
shown to nobody, unless its owner makes that group again.

Builds before had one space of names: the key of such a group is its name alone.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tasks.errors import RequestRefusedError
from tasks.packages.package_reference import NAME
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.codec import Codec, in_json
from tasks.storage.store import Delete, Operation, Row, Store, Upsert

_KEY = re.compile(rf"{NAME}(?:\.[0-9a-f]{{32}})?")  # others may have what a RowKey cannot
MOST_MEMBERS = 40
"""All rows of a group are changed in one transaction."""
LONGEST_REFERENCE = 254 + 1 + 63

TABLE = PARTITION = "requests"  # a portal reads both in one scan


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """A group. Its owner is a member, too, and is not among `members`.

    `shared_name`: its name is of the one space that builds before had.
    """

    name: str
    owner: str
    members: tuple[str, ...] = ()
    disbanded: bool = False
    shared_name: bool = False

    @property
    def everyone(self) -> frozenset[str]:
        """All who are in the group."""
        return frozenset() if self.disbanded else frozenset((self.owner, *self.members))

    @property
    def reference(self) -> str:
        """The name that people use."""
        return f"{self.owner}/{self.name}"

    @property
    def key(self) -> str:
        """The name that the rows of requests use."""
        return self.name if self.shared_name else f"{self.name}.{updates.hashed(self.owner)}"


@dataclass(frozen=True, kw_only=True)
class _Membership:
    name: str  # the group's key


_GROUP = Codec(
    GroupRow,
    "group",
    {"members": in_json(tuple[str, ...])},
    {"shared_name": lambda row: "." not in row.row},
)
_MEMBERSHIP = Codec(_Membership, "membership")


class NoSuchGroupError(RequestRefusedError):
    """The person is in no group that a text names, or in several; `several` refers to these."""

    def __init__(self, text: str, several: Sequence[str]) -> None:
        known = "Choose one of your groups, or make one on the page /groups."
        super().__init__(
            "group",
            f"you are in {len(several)} groups {text}."
            if several
            else f"there is no group {text}, or you are not in it.",
            f"Name one of {', '.join(several)}." if several else known,
        )
        self.several = several


class GroupTable:
    """The groups in a store. Every call may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, key: str) -> GroupRow | None:
        """Return a group that is not disbanded; None, too, for what is the key of none."""
        row = self._read(key)
        return None if row is None or row.disbanded else row

    def of(self, person: str) -> list[GroupRow]:
        """Return the groups that somebody is in, by name."""
        start, end = updates.prefix_range(f"m|{updates.hashed(person)}|")
        names = [_MEMBERSHIP.load(r).name for r in self._store.scan(TABLE, PARTITION, start, end)]
        found = [row for name in names if (row := self.find(name)) is not None]
        return sorted(found, key=lambda row: (row.name, row.owner))

    def has(self, key: str, person: str) -> bool:
        """Tell whether somebody is in a group."""
        found = self.find(key) if key and person else None
        return found is not None and person in found.everyone

    def meant(self, text: str, person: str) -> GroupRow:
        """Return the group that a person means: by its reference, or by its name alone.

        A name alone means one's own group, else the only one of this name that one is in.

        Raises:
            NoSuchGroupError: the person is in no such group, or in several.
        """
        mine = self.of(person)
        named = [row for row in mine if row.reference == text] or [
            row for row in mine if row.name == text
        ]
        own = [row for row in named if row.owner == person] if len(named) > 1 else named
        if len(own) == 1:
            return own[0]
        raise NoSuchGroupError(text, [row.reference for row in named])

    def write(self, clock: Clock, new: GroupRow) -> GroupRow:
        """Write a group with its members; return it as it is stored."""
        shared = self._read(new.name)
        kept = shared is not None and shared.owner == new.owner
        new = replace(new, shared_name=kept)
        self._change(clock, new.key, lambda _old: new)
        return new

    def leave(self, clock: Clock, key: str, person: str) -> None:
        """Take somebody out of a group; without its owner it is disbanded."""

        def change(old: GroupRow | None) -> GroupRow | None:
            if old is None or person not in old.everyone:
                return None
            if person == old.owner:
                return replace(old, members=(), disbanded=True)
            return replace(old, members=tuple(one for one in old.members if one != person))

        self._change(clock, key, change)

    def _read(self, key: str) -> GroupRow | None:
        found = self._store.get(TABLE, PARTITION, f"g|{key}") if _KEY.fullmatch(key) else None
        return _GROUP.load(found) if found else None

    def _change(
        self, clock: Clock, key: str, decide: Callable[[GroupRow | None], GroupRow | None]
    ) -> None:
        """Write what `decide` makes of a group, unless it is None, and who is in it."""

        def change(found: Row | None) -> tuple[Operation, ...]:
            old = _GROUP.load(found) if found else None
            new = decide(old)
            if new is None:
                return ()
            there = frozenset[str]() if old is None else old.everyone
            member = _MEMBERSHIP.dump(_Membership(name=key))
            return (
                updates.write(found, f"g|{key}", _GROUP.dump(new)),
                *(Delete(row=_seat(one, key)) for one in sorted(there - new.everyone)),
                *(
                    Upsert(row=_seat(one, key), entity=member)
                    for one in sorted(new.everyone - there)
                ),
            )

        updates.update(self._store, clock, TABLE, PARTITION, f"g|{key}", change)


def name_of(key: str) -> str:
    """Return the name in a group's key."""
    return key.partition(".")[0]


def _seat(person: str, key: str) -> str:
    return f"m|{updates.hashed(person)}|{key}"
