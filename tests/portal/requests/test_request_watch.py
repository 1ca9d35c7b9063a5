"""Following requests: one look for all who do, and what their pages are sent."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
import pytest

from portal.requests import request_page, request_watch
from portal.requests.audience import Progress
from portal.requests.request_watch import (
    AT_ONCE,
    FIRST,
    LATE,
    PAUSE,
    SOON,
    Followed,
    Following,
    RequestWatch,
    pause_of,
)
from portal.serving.caches import Shared
from portal.serving.portal import Portal
from tasks.accounts import reader_links
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.requests import request_operations
from tasks.requests.request_table import PhaseCount, RequestTable
from tasks.storage.store import Row
from tests.own_loop import run_on_own_loop
from tests.portal.scripted import SECRET, LivePortal, event_of, set_row
from tests.portal.submissions import submitted

PATIENCE = 20.0


class Looks:
    """Counts how often rows of requests are read, and by how many calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wanted: list[int] = []
        self.broken = False
        really = RequestTable.etags

        def etags(table: RequestTable, requests: tuple[str, ...]) -> dict[str, str]:
            self.wanted.append(len(requests))
            if self.broken:
                raise StoreError("gone")
            return really(table, requests)

        monkeypatch.setattr(RequestTable, "etags", etags)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def run(watching: Callable[[RequestWatch], Awaitable[None]], runtime: Runtime) -> None:
    """Run something on an event loop with a watch of its own."""

    async def main() -> None:
        stopping = threading.Event()
        await asyncio.wait_for(watching(RequestWatch(runtime, stopping)), PATIENCE)

    run_on_own_loop(main())


async def told(watch: RequestWatch, request: str, ready: asyncio.Semaphore) -> bool:
    """Follow a request, past the first look, until it changes."""
    with watch.follow(request) as following:
        assert await following.next(PATIENCE), "the first look is told"
        ready.release()
        return await following.next(PATIENCE)


def test_all_who_follow_a_request_are_told_by_the_same_looks(
    runtime: Runtime, looks: Looks
) -> None:
    name, other = submitted(runtime), submitted(runtime)

    async def watching(watch: RequestWatch) -> None:
        ready = asyncio.Semaphore(0)
        waiting = [asyncio.create_task(told(watch, name, ready)) for _ in range(50)]
        for _ in waiting:
            await ready.acquire()
        before = len(looks.wanted)
        set_row(runtime, other, state=RequestState.RUNNING)
        set_row(runtime, name, state=RequestState.RUNNING)
        assert await asyncio.gather(*waiting) == [True] * 50
        assert len(looks.wanted) - before < 10, "not a look for each of them"
        assert set(looks.wanted) == {1}, "nobody follows the other request"

    run(watching, runtime)


def test_a_crowd_is_told_a_few_at_a_time_and_looked_for_less_often(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = submitted(runtime)
    pauses: list[float] = []
    told_by: list[int] = []
    really = asyncio.sleep

    async def watching(watch: RequestWatch) -> None:
        ready, done = asyncio.Semaphore(0), 0

        async def follower() -> None:
            nonlocal done
            assert await told(watch, name, ready)
            done += 1

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            told_by.append(done)
            await really(0.001 * (seconds > PAUSE))

        monkeypatch.setattr(asyncio, "sleep", sleep)
        crowd = [asyncio.create_task(follower()) for _ in range(1000)]
        for _ in crowd:
            await ready.acquire()
        set_row(runtime, name, state=RequestState.RUNNING)
        await asyncio.gather(*crowd)

    run(watching, runtime)
    pauses_of_all = PAUSE * 1000 / AT_ONCE
    steps = [later - sooner for sooner, later in pairwise(told_by)]
    assert 0 < max(steps) <= AT_ONCE, "a thousand at once keep all others waiting"
    assert max(pauses) == pytest.approx(LATE - pauses_of_all)
    assert pauses.count(PAUSE) >= 1000 / AT_ONCE


def test_a_few_followers_are_told_without_a_pause(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = submitted(runtime)
    pauses: list[float] = []
    really = asyncio.sleep

    async def watching(watch: RequestWatch) -> None:
        ready = asyncio.Semaphore(0)

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            await really(0.001)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        crowd = [asyncio.create_task(told(watch, name, ready)) for _ in range(AT_ONCE)]
        for _ in crowd:
            await ready.acquire()
        set_row(runtime, name, state=RequestState.RUNNING)
        await asyncio.gather(*crowd)

    run(watching, runtime)
    assert pauses
    assert PAUSE not in pauses


def test_a_new_request_is_looked_for_more_often(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is new when it is followed for the first time, whoever follows it later."""
    assert [pause_of(age) for age in (0.0, 0.1, 1.0, 60.0)] == [FIRST, FIRST, 0.04, SOON]
    monkeypatch.setattr(request_watch, "_REMEMBERED", 1)
    old, new = submitted(runtime), submitted(runtime)

    async def watching(watch: RequestWatch) -> None:
        with watch.follow(old) as following:
            assert await following.next(PATIENCE)
        watch._since[old] -= 60.0
        since = watch._since[old]
        with watch.follow(old):
            assert watch._since[old] == since
            assert watch._soon() == SOON
            with watch.follow(new):
                assert watch._soon() < SOON
            assert watch._soon() == SOON
        assert [*watch._since] == [old], "what nobody follows is forgotten when it is much"

    run(watching, runtime)


def test_a_further_request_is_looked_for_at_once(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait out the pause that is long because others are old or gone."""
    monkeypatch.setattr(request_watch, "pause_of", lambda _: 1000.0)
    name = submitted(runtime)

    async def watching(watch: RequestWatch) -> None:
        with watch.follow(name) as following:
            assert await following.next(PATIENCE)
            with watch.follow(submitted(runtime)) as further:
                assert await further.next(PATIENCE)
        with watch.follow(submitted(runtime)) as later:
            assert await later.next(PATIENCE)

    run(watching, runtime)


def test_who_waits_is_woken_in_time_and_leaves_nothing_behind() -> None:
    async def waiting() -> None:
        followed = Followed()
        followed.changed("one")
        following = Following(followed, threading.Event())
        assert not await following.next(0.01)
        leaves = asyncio.create_task(following.next(PATIENCE))
        await asyncio.sleep(0)
        assert len(followed.all_waiting()) == 1
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        assert followed.all_waiting() == []
        assert followed.changed("two") == []
        assert await following.next(0.0), "what came between two calls is told"

    run_on_own_loop(waiting())


def test_looking_ends_with_the_last_follower_and_begins_again(
    runtime: Runtime, looks: Looks
) -> None:
    name = submitted(runtime)

    async def watching(watch: RequestWatch) -> None:
        for _ in range(2):
            with watch.follow(name) as following:
                assert await following.next(PATIENCE)
            task = watch._task
            assert task is not None
            await task
        assert len(looks.wanted) < 10

    run(watching, runtime)


def test_a_failure_of_storage_is_waited_out(runtime: Runtime, looks: Looks) -> None:
    name = submitted(runtime)
    looks.broken = True

    async def watching(watch: RequestWatch) -> None:
        with watch.follow(name) as following:
            assert not await following.next(0.5)
            looks.broken = False
            assert await following.next(PATIENCE)

    run(watching, runtime)


@pytest.mark.parametrize("number", [3, 40])
def test_few_requests_are_read_by_row_and_many_by_the_list(
    runtime: Runtime, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [submitted(runtime) for _ in range(number)]
    read: list[str] = []
    get = runtime.store.get

    def counted(table: str, partition: str, row: str) -> Row | None:
        read.append(row)
        return get(table, partition, row)

    monkeypatch.setattr(runtime.store, "get", counted)
    before = RequestTable(runtime.store).etags([*names, "nothing"])
    assert before.keys() == set(names)
    assert len(read) == (4 if number == 3 else 1)
    monkeypatch.undo()
    set_row(runtime, names[1], delivered=1)
    after = RequestTable(runtime.store).etags([*names, "nothing"])
    assert {name for name in names if after[name] != before[name]} == {names[1]}


def test_what_many_ask_for_at_once_is_made_once() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        if len(made) == 1:
            raise StoreError("gone")
        return len(made)

    async def asking() -> None:
        shared: Shared[int] = Shared(1)
        first = await asyncio.gather(
            *(shared.get("a", make) for _ in range(20)), return_exceptions=True
        )
        assert {type(one) for one in first} == {StoreError}
        assert await asyncio.gather(*(shared.get("a", make) for _ in range(20))) == [2] * 20
        assert [await shared.get("b", make), await shared.get("a", make)] == [3, 4], "one is kept"

    run_on_own_loop(asking())


def events(client: httpx.Client, request: str) -> Iterator[str]:
    """What the stream of a page says after when to ask again, a line each."""
    with client.stream("GET", f"/requests/{request}/events") as stream:
        lines = (line for line in stream.iter_lines() if line)
        assert next(lines).startswith("retry: ")
        yield from lines


def test_a_stream_tells_each_change_once_and_ends_with_the_request(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        lines = events(client, name)
        said = [json.loads(next(lines).removeprefix("data: "))["saying"]]
        running = {Phase.COLLECTION: PhaseCount(total=4, done=2, running=1)}
        set_row(runtime, name, state=RequestState.RUNNING, phases=running)
        for line in lines:
            if line.startswith("data: "):
                said.append(json.loads(line.removeprefix("data: "))["saying"])
                set_row(runtime, name, state=RequestState.COMPLETE, ended=1e9)
    assert said == ["submitted, 0 percent", "running, 50 percent", "complete"]


def test_pages_opened_at_once_share_what_one_of_them_reads(
    portal: LivePortal, runtime: Runtime, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks.broken = True  # no look tells how the request stands
    name = submitted(runtime)
    made: list[str] = []
    really = request_page._shown_progress

    def shown(given: Portal, request: str, mine: bool) -> Progress:
        made.append(request_operations.load(runtime, request).etag)
        return really(given, request, mine)

    monkeypatch.setattr(request_page, "_shown_progress", shown)
    with portal.browser() as client:
        first = [event_of(client, name)["saying"] for _ in range(4)]
        set_row(runtime, name, state=RequestState.COMPLETE, ended=1e9)
        after = [event_of(client, name)["saying"] for _ in range(4)]
    assert (set(first), set(after)) == ({"submitted, 0 percent"}, {"complete"})
    assert len(made) <= 4, "made again every 20 seconds"


def test_streams_that_broke_together_are_not_asked_for_together(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    waits = set[int]()
    with portal.browser() as client:
        for _ in range(5):
            with client.stream("GET", f"/requests/{name}/events") as stream:
                waits.add(int(next(stream.iter_lines()).removeprefix("retry: ")))
    assert len(waits) > 1
    assert all(1000 <= wait <= 8000 for wait in waits)


def test_streams_end_when_the_portal_stops(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with portal.browser() as client, ThreadPoolExecutor() as threads:
        lines = events(client, name)
        next(lines)
        rest = threads.submit(list, lines)
        portal.stopping.set()
        assert all(line.startswith(":") for line in rest.result(PATIENCE))


def test_who_waits_is_woken_when_the_portal_stops(runtime: Runtime) -> None:
    """Sooner than a page looks again by itself, which is soon enough to end in grace."""

    async def main() -> None:
        stopping = threading.Event()
        with RequestWatch(runtime, stopping).follow(submitted(runtime)) as following:
            assert await following.next(PATIENCE), "by the first look"
            waits = asyncio.create_task(following.next(PATIENCE))
            await asyncio.sleep(0)
            stopping.set()
            assert not await asyncio.wait_for(waits, PATIENCE / 4)
            assert not await asyncio.wait_for(following.next(PATIENCE), PATIENCE / 4)

    run_on_own_loop(main())


def test_the_stream_of_a_link_ends_when_links_are_ended(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    token = reader_links.issue(SECRET, name, runtime.clock.now() + 1000)
    with portal.browser() as visitor, ThreadPoolExecutor() as threads:
        visitor.cookies.clear()
        visitor.get("/open", params={"token": token})
        lines = events(visitor, name)
        assert "order-cancel" not in next(lines)
        rest = threads.submit(list, lines)
        set_row(runtime, name, state=RequestState.RUNNING, links=1)
        assert not any(line.startswith("data: ") for line in rest.result(PATIENCE))


def test_a_stream_is_for_owner_and_operator_alone(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with portal.browser("op@example.org", "operator") as operator, portal.browser() as owner:
        assert "order-cancel" in event_of(operator, name)["html"]
        assert "order-cancel" in event_of(owner, name)["html"]
    with portal.browser("ben@example.org") as other:
        assert other.get(f"/requests/{name}/events").status_code == 404
        other.cookies.clear()
        assert other.get(f"/requests/{name}/events").status_code == 401
    assert request_operations.load(runtime, name).order is None
