"""Standing requests: they go on once, with the whole span, when all products have later days."""

import datetime as dt
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest

from archives.errors import ArchiveError
from service_manager.mail.notify import compose
from service_manager.requests.continuing import DAY, Continuing, continued_id, newest_in
from tasks.bag.model import RequestOrder, RequestState
from tasks.bag.runtime import Runtime
from tasks.errors import BlobMissingError, StoreError
from tasks.request.document import Request, parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow, RequestTable
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tests.service_manager.shelf import REQUEST, Shelf, tile_granule

FIRST = dt.date(2012, 1, 1)
START = dt.datetime(2012, 5, 1, tzinfo=dt.UTC).timestamp()


def at_start() -> Runtime:
    return memory_runtime(ManualClock(START))


def standing(runtime: Runtime, **more: object) -> str:
    document = parse_request({**REQUEST, "standing": 7, "title": "LAI", **more})
    return request_operations.submit(runtime, "ada", document)


def ended(runtime: Runtime, request: str, state: RequestState = RequestState.COMPLETE) -> None:
    def change(row: RequestRow) -> RequestRow:
        return replace(row, state=state, ended=runtime.clock.now())

    request_operations.change_request(runtime, request, change)


def found(day: str | None) -> Callable[[Request], dt.date | None]:
    return lambda _request: None if day is None else dt.date.fromisoformat(day)


def now(job: Callable[[], None]) -> "Future[None]":
    done: Future[None] = Future()
    job()
    done.set_result(None)
    return done


def requests(runtime: Runtime) -> list[RequestRow]:
    return list(request_operations.list_requests(runtime, "ada"))


def test_one_whose_successor_was_not_submitted_goes_on_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is marked as gone on after that alone: one error of storage does not end it for good."""
    runtime = at_start()
    name = standing(runtime)
    ended(runtime, name)
    runtime.clock.sleep(7 * DAY)
    real = request_operations.submit

    def away(*_: object, **__: object) -> str:
        raise StoreError("storage is away")

    monkeypatch.setattr(request_operations, "submit", away)
    Continuing(runtime, found("2012-05-06"), now).look()
    old = request_operations.load(runtime, name)
    assert (old.standing, old.continued_as) == (7, "")
    monkeypatch.setattr(request_operations, "submit", real)
    Continuing(runtime, found("2012-05-06"), now).look()
    old = request_operations.load(runtime, name)
    assert (old.standing, old.continued_as) == (0, continued_id(name))


def test_it_goes_on_as_a_request_of_the_whole_span_that_stands_in_its_place() -> None:
    runtime = at_start()
    name = standing(runtime, labels=["thesis"])
    ended(runtime, name)
    runtime.clock.sleep(7 * DAY)
    asked: list[Request] = []

    def newest(request: Request) -> dt.date:
        asked.append(request)
        return dt.date(2012, 5, 6)

    Continuing(runtime, newest, now).look()
    assert [(one.time.start, one.time.end) for one in asked] == [
        (dt.date(2012, 5, 1), dt.date(2012, 5, 8))
    ]
    new = request_operations.load(runtime, continued_id(name))
    document = request_operations.document_of(new)
    assert (document.time.start, document.time.end) == (FIRST, dt.date(2012, 5, 6))
    assert (new.owner, new.title, new.continues, new.standing) == ("ada", "LAI", name, 7)
    assert new.labels == ("thesis",)
    old = request_operations.load(runtime, name)
    assert (old.standing, old.continued_as) == (0, new.id)
    assert RequestTable(runtime.store).standing() == [new.id]


def test_it_waits_for_its_end_for_its_days_and_for_later_data() -> None:
    runtime = at_start()
    name = standing(runtime)
    look = Continuing(runtime, found("2012-05-06"), now).look
    runtime.clock.sleep(7 * DAY)
    look()  # it has not ended
    ended(runtime, name)
    Continuing(runtime, found(None), now).look()  # there is nothing later
    assert len(requests(runtime)) == 1
    look()
    assert len(requests(runtime)) == 2
    ended(runtime, continued_id(name))
    begun = request_operations.load(runtime, continued_id(name)).submitted
    runtime.clock.sleep(begun + 7 * 86_400 - runtime.clock.now() - 1)
    Continuing(runtime, found("2012-05-14"), now).look()  # too early
    assert len(requests(runtime)) == 2
    runtime.clock.sleep(1)
    Continuing(runtime, found("2012-05-14"), now).look()
    assert len(requests(runtime)) == 3


def test_an_hour_is_between_two_looks() -> None:
    runtime = at_start()
    ended(runtime, standing(runtime))
    runtime.clock.sleep(8 * DAY)
    asked = []

    def newest(request: Request) -> dt.date | None:
        asked.append(request)
        return None

    continuing = Continuing(runtime, newest, now)
    looks = []
    for seconds in (0, 3599, 1):
        runtime.clock.sleep(seconds)
        continuing.tick()
        continuing.tick()
        looks.append(len(asked))
    assert looks == [1, 1, 2]


def test_a_manager_that_ended_in_between_makes_no_second_one() -> None:
    runtime = at_start()
    name = standing(runtime)
    ended(runtime, name)
    runtime.clock.sleep(8 * DAY)
    Continuing(runtime, found("2012-05-06"), now).look()

    def undone(row: RequestRow) -> RequestRow:
        return replace(row, standing=7, continued_as="")

    request_operations.change_request(runtime, name, undone)
    Continuing(runtime, found("2012-05-08"), now).look()
    assert len(requests(runtime)) == 2
    assert RequestTable(runtime.store).standing() == [continued_id(name)]


def test_cancelling_and_stopping_end_it() -> None:
    runtime = at_start()
    cancelled, stopped = standing(runtime), standing(runtime)
    request_operations.order(runtime, cancelled, RequestOrder.CANCEL)
    request_operations.change_request(runtime, stopped, lambda row: replace(row, standing=0))
    ended(runtime, stopped)
    runtime.clock.sleep(30 * DAY)
    assert RequestTable(runtime.store).standing() == []
    Continuing(runtime, found("2012-05-06"), now).look()
    assert len(requests(runtime)) == 2


@pytest.mark.parametrize("begun", [RequestState.WRITING, RequestState.RUNNING])
def test_cancelling_one_that_runs_ends_its_standing(begun: RequestState) -> None:
    runtime = at_start()
    name = standing(runtime)
    request_operations.change_request(runtime, name, lambda row: replace(row, state=begun))
    request_operations.order(runtime, name, RequestOrder.CANCEL)
    row = request_operations.load(runtime, name)
    assert (row.state, row.standing) == (RequestState.CANCELLING, 0)
    ended(runtime, name, RequestState.CANCELLED)
    runtime.clock.sleep(30 * DAY)
    Continuing(runtime, found("2012-05-06"), now).look()
    assert len(requests(runtime)) == 1


@pytest.mark.parametrize(("day", "searched"), [(-1, False), (0, True), (1, True)])
def test_a_later_day_is_searched_for_on_the_very_day(day: int, searched: bool) -> None:
    """The span ends the day before; `day` counts from the first later one."""
    runtime = memory_runtime(ManualClock(START + day * DAY))
    name = standing(runtime, time={"start": "2012-01-01", "end": "2012-04-30"})
    ended(runtime, name)

    def due(row: RequestRow) -> RequestRow:
        return replace(row, submitted=row.submitted - 7 * DAY)

    request_operations.change_request(runtime, name, due)
    asked: list[Request] = []

    def newest(request: Request) -> None:
        asked.append(request)

    Continuing(runtime, newest, now).look()
    assert bool(asked) is searched


def test_out_of_season_nothing_is_searched_for() -> None:
    runtime = at_start()
    span = {"start": "2012-01-01", "end": "2012-04-30", "every": {"from": "01-01", "to": "02-01"}}
    name = standing(runtime, time=span)
    ended(runtime, name)
    runtime.clock.sleep(8 * DAY)

    def never(_request: Request) -> dt.date:
        raise AssertionError("searched out of season")

    Continuing(runtime, never, now).look()
    assert len(requests(runtime)) == 1


@pytest.mark.parametrize("error", [ArchiveError("it does not answer"), BlobMissingError("a/b")])
def test_a_request_that_fails_keeps_no_other_from_going_on(error: Exception) -> None:
    runtime = at_start()
    names = [standing(runtime, title=title) for title in ("one", "two")]
    for name in names:
        ended(runtime, name)
    runtime.clock.sleep(8 * DAY)

    def newest(request: Request) -> dt.date:
        if request.title == "one":
            raise error
        return dt.date(2012, 5, 6)

    Continuing(runtime, newest, now).look()
    assert {row.title for row in requests(runtime) if row.continues} == {"two"}


def test_it_is_looked_at_once_in_a_period_and_not_while_one_look_is_under_way() -> None:
    runtime = at_start()
    jobs: list[Callable[[], None]] = []
    waiting: list[Future[None]] = []

    def beside(job: Callable[[], None]) -> "Future[None]":
        jobs.append(job)
        waiting.append(Future())
        return waiting[-1]

    continuing = Continuing(runtime, found(None), beside, period=60.0)
    for seconds in (0.0, 59.0, 60.0):
        continuing.tick()
        runtime.clock.sleep(seconds)
    continuing.tick()
    assert len(jobs) == 1
    waiting[0].set_result(None)
    continuing.tick()
    assert len(jobs) == 2


def test_the_newest_day_is_one_that_all_products_have() -> None:
    both = parse_request(
        {
            **REQUEST,
            "products": [
                {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]},
                {"name": "MOD13A2", "collection": "6", "layers": ["1 km 16 days NDVI"]},
            ],
        }
    )
    lai = [tile_granule(FIRST + dt.timedelta(days=8 * n), 17, 3) for n in range(4)]
    ndvi = [tile_granule(dt.date(2012, 1, 1), 17, 3, "MOD13A2", "6")]
    assert newest_in(Shelf(records=lai), both) is None
    assert newest_in(Shelf(records=[*lai, *ndvi]), both) == dt.date(2012, 1, 1)
    ndvi.append(tile_granule(dt.date(2012, 1, 17), 17, 3, "MOD13A2", "6"))
    assert newest_in(Shelf(records=[*lai, *ndvi]), both) == dt.date(2012, 1, 17)


def test_the_mail_says_that_it_goes_on() -> None:
    runtime = at_start()
    name = standing(runtime)
    ended(runtime, name)
    runtime.clock.sleep(8 * DAY)
    Continuing(runtime, found("2012-05-06"), now).look()
    row = request_operations.load(runtime, continued_id(name))
    mail = compose(row, (), (), to="a@example.org", portal_url="http://x", now=0.0)
    assert mail is not None
    assert f"It goes on from request {name} with new data." in " ".join(mail.body.split())
    assert "stop it on its page" in mail.body
