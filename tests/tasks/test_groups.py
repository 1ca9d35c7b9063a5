"""Groups: who is in them, who may change them, and that nothing tells of those of others."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from portal.requests.sharing import Changes
from portal.serving.tokens import LONGEST_OWNER
from tasks.accounts import group_table
from tasks.accounts.group_table import _GROUP, MOST_MEMBERS, GroupRow, GroupTable, NoSuchGroupError
from tasks.requests.request_table import PARTITION, TABLE
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.store import Insert, Operation, Row
from tests.service_manager.scene import Meddling

ADA, BEN, EVE = "ada@example.org", "ben@example.org", "eve@example.org"
ADAS = f"{ADA}/forest"
KEY = GroupRow(name="forest", owner=ADA).key


@pytest.fixture
def groups() -> GroupTable:
    return GroupTable(memory_runtime().store)


def test_a_reference_is_as_long_as_an_owner_and_a_name() -> None:
    assert LONGEST_OWNER + len("/") + 63 == group_table.LONGEST_REFERENCE
    longest = "a" * group_table.LONGEST_REFERENCE
    assert Changes(group=longest).group == longest
    with pytest.raises(ValidationError, match="at most 318 characters"):
        Changes(group=f"{longest}b")


def write(groups: GroupTable, owner: str, *members: str, disbanded: bool = False) -> None:
    row = GroupRow(name="forest", owner=owner, members=members, disbanded=disbanded)
    groups.write(ManualClock(), row)


def shared_name(groups: GroupTable, owner: str, *members: str) -> None:
    """Make a group as builds did that had one space of names."""
    store = groups._store
    row = GroupRow(name="forest", owner=owner, disbanded=True)
    insert = Insert(row="g|forest", entity=_GROUP.dump(row))
    store.transact(TABLE, PARTITION, (insert,))
    write(groups, owner, *members)


def names(groups: GroupTable, person: str) -> list[str]:
    return [row.name for row in groups.of(person)]


def test_owner_and_members_are_in_it_and_nobody_else(groups: GroupTable) -> None:
    write(groups, ADA, BEN)
    groups.write(ManualClock(), GroupRow(name="alone", owner=ADA))
    assert names(groups, ADA) == ["alone", "forest"]
    assert names(groups, BEN) == ["forest"]
    assert [groups.has(KEY, one) for one in (ADA, BEN, EVE, "")] == [True, True, False, False]
    assert not groups.has("", ADA)


def test_who_is_left_out_is_in_it_no_more(groups: GroupTable) -> None:
    write(groups, ADA, BEN)
    write(groups, ADA, EVE)
    assert (names(groups, BEN), names(groups, EVE)) == ([], ["forest"])
    assert not groups.has(KEY, BEN)


def test_who_leaves_brings_back_nobody_who_was_left_out_meanwhile() -> None:
    store = Meddling()
    groups = GroupTable(store)
    write(groups, ADA, BEN, EVE)

    def leave_out_eve(_table: str, _operations: Sequence[Operation]) -> None:
        store.before = lambda _table, _operations: None
        write(groups, ADA, BEN)

    store.before = leave_out_eve
    groups.leave(ManualClock(), KEY, BEN)
    assert [names(groups, one) for one in (ADA, BEN, EVE)] == [["forest"], [], []]
    assert not groups.has(KEY, EVE)


def test_without_its_owner_a_group_is_disbanded_and_others_leave_nothing(
    groups: GroupTable,
) -> None:
    write(groups, ADA, BEN)
    groups.leave(ManualClock(), KEY, EVE)
    groups.leave(ManualClock(), GroupRow(name="other", owner=ADA).key, ADA)
    assert names(groups, BEN) == ["forest"]
    groups.leave(ManualClock(), KEY, ADA)
    assert (names(groups, ADA), names(groups, BEN), groups.find(KEY)) == ([], [], None)


def test_a_disbanded_group_has_nobody_until_its_owner_makes_it_again(groups: GroupTable) -> None:
    write(groups, ADA, BEN)
    write(groups, ADA, disbanded=True)
    assert (names(groups, ADA), groups.find(KEY), groups.has(KEY, ADA)) == (
        [],
        None,
        False,
    )
    write(groups, EVE)
    assert names(groups, BEN) == []
    write(groups, ADA, BEN)
    assert (names(groups, BEN), groups.has(KEY, EVE)) == (["forest"], False)


def test_equal_names_of_two_owners_are_two_groups(groups: GroupTable) -> None:
    write(groups, ADA, EVE)
    write(groups, BEN, EVE)
    with pytest.raises(NoSuchGroupError, match=f"2 groups forest.*{ADAS}, {BEN}/forest"):
        groups.meant("forest", EVE)
    assert groups.meant(ADAS, EVE).owner == ADA
    assert groups.meant("forest", BEN).owner == BEN
    write(groups, EVE)
    assert groups.meant("forest", EVE).owner == EVE
    groups.leave(ManualClock(), KEY, EVE)
    assert [row.owner for row in groups.of(EVE)] == [BEN, EVE]
    for other in ("glacier", f"{ADA}/glacier", "", "no\x06name", f"{BEN}/forest/"):
        with pytest.raises(NoSuchGroupError, match="or you are not in it"):
            groups.meant(other, EVE)


def test_a_group_of_the_one_space_of_names_stays_and_gives_its_name_to_nobody(
    groups: GroupTable,
) -> None:
    shared_name(groups, ADA, BEN)
    assert [row.key for row in groups.of(BEN)] == ["forest"]
    assert groups.meant(ADAS, BEN).key == groups.meant("forest", BEN).key == "forest"
    write(groups, EVE)
    assert (groups.has("forest", EVE), groups.has(GroupRow(name="forest", owner=EVE).key, EVE)) == (
        False,
        True,
    )
    write(groups, ADA)
    assert (names(groups, BEN), names(groups, ADA), names(groups, EVE)) == ([], *[["forest"]] * 2)
    groups.leave(ManualClock(), "forest", ADA)
    write(groups, EVE, BEN)
    assert (groups.find("forest"), groups.has("forest", BEN)) == (None, False)


CALLS: dict[str, Callable[[GroupTable], object]] = {
    "make": lambda groups: groups.write(ManualClock(), GroupRow(name="forest", owner=EVE)),
    "invite": lambda groups: groups.write(
        ManualClock(), GroupRow(name="forest", owner=EVE, members=(BEN,))
    ),
    "leave": lambda groups: groups.leave(
        ManualClock(), GroupRow(name="forest", owner=EVE).key, EVE
    ),
    "list": lambda groups: groups.of(EVE),
    "name": lambda groups: groups.meant("forest", EVE),
    "refer": lambda groups: groups.meant(ADAS, EVE),
}


class Counted(Meddling):
    """Notes which calls come, and to which rows."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self.calls.append(f"get {row}")
        return super().get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        self.calls.append(f"scan {start}")
        return super().scan(table, partition, start, end, limit)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        self.calls.append(f"transact {[one.row for one in operations]}")
        return super().transact(table, partition, operations)


@given(st.lists(st.sampled_from(sorted(CALLS)), max_size=6), st.sampled_from([write, shared_name]))
def test_nobody_sees_whether_a_stranger_has_a_group_of_a_name(
    calls: list[str], make: Callable[..., None]
) -> None:
    """Neither by an answer, nor by the calls of storage, which take the time."""
    told = []
    for stranger in (None, ADA):
        store = Counted()
        groups = GroupTable(store)
        if stranger:
            make(groups, stranger, BEN)
        store.calls.clear()
        told.append(([answer(groups, call) for call in calls], store.calls))
    assert told[0] == told[1]


def answer(groups: GroupTable, call: str) -> object:
    try:
        found = CALLS[call](groups)
    except NoSuchGroupError as error:
        return str(error)
    return found


def test_the_largest_group_is_exchanged_in_one_transaction(groups: GroupTable) -> None:
    write(groups, ADA, *(f"a{n}" for n in range(MOST_MEMBERS)))
    write(groups, ADA, *(f"b{n}" for n in range(MOST_MEMBERS)))
    assert names(groups, "a0") == []
    assert names(groups, f"b{MOST_MEMBERS - 1}") == ["forest"]
