"""The audience of a request: each change is made once and written to all who follow it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from portal.requests.audience import Audience, Current, Progress
from portal.requests.request_watch import RequestWatch
from portal.serving.sending import chunk
from portal.serving.tokens import Person, Role
from tasks.accounts.group_table import GroupRow, GroupTable
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tests.own_loop import run_on_own_loop
from tests.portal.scripted import LivePortal, event_of, set_row
from tests.portal.submissions import submitted

PATIENCE = 20.0
ADA = Person(owner="ada@example.org", role=Role.SCIENTIST)
BEN = Person(owner="ben@example.org", role=Role.SCIENTIST)


@dataclass
class Reader:
    """A connection that keeps what is written; it does not keep up after so many pieces."""

    most: int = 1000
    pieces: list[bytes] = field(default_factory=list)

    def write(self, piece: bytes) -> bool:
        self.pieces.append(piece)
        return len(self.pieces) <= self.most


class House:
    """An audience over rows in memory; what is sent is the row's state."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self.runtime, self.name = runtime, name
        self.stopping = threading.Event()
        self.watch = RequestWatch(runtime, self.stopping)
        self.audience = Audience(self.watch, self.stopping)
        self.state = "submitted"
        self.made: list[str] = []
        self.members = frozenset({BEN.owner})

    def progress(self, *, mine: bool = True) -> Progress:
        return Progress(
            event=self.state.encode(),
            ended=self.state == "complete",
            request=self.name,
            mine=mine,
            members=self.members,
        )

    def change(self, state: RequestState) -> None:
        set_row(self.runtime, self.name, state=state)
        self.state = state.value

    async def current(self, mine: bool) -> Progress:
        self.made.append(self.state)
        return self.progress(mine=mine)

    async def sit(
        self, reader: Reader, person: Person = ADA, current: Current | None = None
    ) -> None:
        with self.watch.follow(self.name) as following:
            sent = self.progress(mine=person is ADA)
            await self.audience.sit(
                person, reader, sent, following, current or self.current, PATIENCE
            )


async def until(there: Callable[[], bool]) -> None:
    while not there():
        await asyncio.sleep(0.01)


def run(act: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(act(), PATIENCE)

    run_on_own_loop(main())


def test_a_change_is_made_once_and_written_to_all_seats(runtime: Runtime) -> None:
    name = submitted(runtime)
    readers = [Reader() for _ in range(50)]

    async def act() -> None:
        house = House(runtime, name)
        seats = [asyncio.create_task(house.sit(reader)) for reader in readers]
        await until(lambda: bool(readers[-1].pieces))  # by the first look
        house.made.clear()
        house.change(RequestState.RUNNING)
        await until(lambda: all(reader.pieces[-1] == chunk(b"running") for reader in readers))
        house.change(RequestState.COMPLETE)
        await asyncio.gather(*seats)
        assert house.made == ["running", "complete"]

    run(act)
    for reader in readers:
        assert reader.pieces[-2:] == [chunk(b"running"), chunk(b"complete")]
        assert set(reader.pieces[:-2]) <= {chunk(b": the same\n\n")}


def test_who_does_not_keep_up_is_let_go_and_costs_no_other(runtime: Runtime) -> None:
    name, slow, quick = submitted(runtime), Reader(most=0), Reader()

    async def act() -> None:
        house = House(runtime, name)
        stays = asyncio.create_task(house.sit(quick))
        await house.sit(slow)
        house.change(RequestState.COMPLETE)
        await stays

    run(act)
    assert len(slow.pieces) == 1
    assert quick.pieces[-1] == chunk(b"complete")


def test_what_changes_before_a_seat_is_taken_is_told(runtime: Runtime) -> None:
    name, late = submitted(runtime), Reader()

    async def act() -> None:
        house = House(runtime, name)
        with house.watch.follow(name) as following:
            assert await following.next(PATIENCE)
            before = house.progress()
            house.change(RequestState.RUNNING)
            await until(lambda: following.changed)
            seat = house.audience.sit(ADA, late, before, following, house.current, PATIENCE)
            taken = asyncio.create_task(seat)
            await until(lambda: chunk(b"running") in late.pieces)
            house.change(RequestState.COMPLETE)
            await taken

    run(act)


def test_who_may_read_no_more_is_told_nothing(runtime: Runtime) -> None:
    name, reader, owner = submitted(runtime), Reader(), Reader()

    async def act() -> None:
        house = House(runtime, name)
        stays = asyncio.create_task(house.sit(owner))
        reads = asyncio.create_task(house.sit(reader, BEN))
        await until(lambda: bool(reader.pieces))
        house.members = frozenset()
        house.change(RequestState.RUNNING)
        await reads
        await until(lambda: chunk(b"running") in owner.pieces)
        house.change(RequestState.COMPLETE)
        await stays

    run(act)
    assert chunk(b"running") not in reader.pieces


def test_after_the_last_seat_nobody_looks(runtime: Runtime) -> None:
    name = submitted(runtime)

    async def act() -> None:
        house, reader = House(runtime, name), Reader()
        for _ in range(2):
            reader.pieces.clear()
            seat = asyncio.create_task(house.sit(reader))
            await until(lambda: bool(reader.pieces))
            seat.cancel()
            await asyncio.wait((seat,))
            await asyncio.sleep(0)  # what tells is cancelled, too
            assert not house.watch.is_followed(name)

    run(act)


def test_seats_are_left_when_making_fails_and_when_the_portal_stops(runtime: Runtime) -> None:
    name = submitted(runtime)

    async def act() -> None:
        async def fails(_mine: bool) -> None:
            return None

        house = House(runtime, name)
        await house.sit(Reader(), current=fails)
        stays = asyncio.create_task(house.sit(reader := Reader()))
        await until(lambda: bool(reader.pieces))
        house.stopping.set()
        await stays

    run(act)


def test_the_stream_of_a_member_ends_with_the_membership(
    portal: LivePortal, runtime: Runtime
) -> None:
    groups = GroupTable(runtime.store)
    group = groups.write(
        runtime.clock, GroupRow(name="readers", owner=ADA.owner, members=(BEN.owner,))
    )
    name = submitted(runtime)
    set_row(runtime, name, group=group.key)
    with portal.browser(BEN.owner) as reader:
        assert "order-cancel" not in event_of(reader, name)["html"]
        with reader.stream("GET", f"/requests/{name}/events") as stream:
            lines = stream.iter_lines()
            next(line for line in lines if line.startswith("data: "))
            groups.leave(runtime.clock, group.key, BEN.owner)
            set_row(runtime, name, state=RequestState.RUNNING)
            assert not any(line.startswith("data: ") for line in lines)
