"""Groups: who is in them, who may change them, and that a name never changes hands."""

from collections.abc import Sequence

import pytest

from tasks.storage.clock import ManualClock
from tasks.storage.store import Operation
from tasks.tables.group_table import MOST_MEMBERS, GroupRow, GroupTable, GroupTakenError
from tasks.tables.runtime import memory_runtime
from tests.service_manager.scene import Meddling

ADA, BEN, EVE = "ada@example.org", "ben@example.org", "eve@example.org"


@pytest.fixture
def groups() -> GroupTable:
    return memory_runtime().groups


def write(groups: GroupTable, owner: str, *members: str, disbanded: bool = False) -> None:
    row = GroupRow(name="forest", owner=owner, members=members, disbanded=disbanded)
    groups.write(ManualClock(), row)


def names(groups: GroupTable, person: str) -> list[str]:
    return [row.name for row in groups.of(person)]


def test_owner_and_members_are_in_it_and_nobody_else(groups: GroupTable) -> None:
    write(groups, ADA, BEN)
    groups.write(ManualClock(), GroupRow(name="alone", owner=ADA))
    assert names(groups, ADA) == ["alone", "forest"]
    assert names(groups, BEN) == ["forest"]
    assert [groups.has("forest", one) for one in (ADA, BEN, EVE, "")] == [True, True, False, False]
    assert not groups.has("", ADA)


def test_who_is_left_out_is_in_it_no_more(groups: GroupTable) -> None:
    write(groups, ADA, BEN)
    write(groups, ADA, EVE)
    assert (names(groups, BEN), names(groups, EVE)) == ([], ["forest"])
    assert not groups.has("forest", BEN)


def test_who_leaves_brings_back_nobody_who_was_left_out_meanwhile() -> None:
    store = Meddling()
    groups = GroupTable(store)
    write(groups, ADA, BEN, EVE)

    def leave_out_eve(_table: str, _operations: Sequence[Operation]) -> None:
        store.before = lambda _table, _operations: None
        write(groups, ADA, BEN)

    store.before = leave_out_eve
    groups.leave(ManualClock(), "forest", BEN)
    assert [names(groups, one) for one in (ADA, BEN, EVE)] == [["forest"], [], []]
    assert not groups.has("forest", EVE)


def test_without_its_owner_a_group_is_disbanded_and_others_leave_nothing(
    groups: GroupTable,
) -> None:
    write(groups, ADA, BEN)
    groups.leave(ManualClock(), "forest", EVE)
    groups.leave(ManualClock(), "other", ADA)
    assert names(groups, BEN) == ["forest"]
    groups.leave(ManualClock(), "forest", ADA)
    assert (names(groups, ADA), names(groups, BEN), groups.find("forest")) == ([], [], None)


def test_a_disbanded_group_has_nobody_and_keeps_its_name_for_its_owner(groups: GroupTable) -> None:
    write(groups, ADA, BEN)
    write(groups, ADA, disbanded=True)
    assert (names(groups, ADA), groups.find("forest"), groups.has("forest", ADA)) == (
        [],
        None,
        False,
    )
    with pytest.raises(GroupTakenError):
        write(groups, EVE)
    write(groups, ADA, BEN)
    assert names(groups, BEN) == ["forest"]


def test_the_largest_group_is_exchanged_in_one_transaction(groups: GroupTable) -> None:
    write(groups, ADA, *(f"a{n}" for n in range(MOST_MEMBERS)))
    write(groups, ADA, *(f"b{n}" for n in range(MOST_MEMBERS)))
    assert names(groups, "a0") == []
    assert names(groups, f"b{MOST_MEMBERS - 1}") == ["forest"]
