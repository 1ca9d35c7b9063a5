"""The page of a request: progress, orders, results, pictures, failures and confirming."""

import re
from dataclasses import replace

import pytest

from portal.requests import request_page
from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.bag.workers import WorkerRow
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount, Preparation, Preview
from tests.portal.scripted import (
    LivePortal,
    event_of,
    part,
    put_failed_task,
    put_interest,
    put_result,
    set_row,
)
from tests.portal.submissions import DOCUMENT, submitted


def test_a_request_s_page_follows_it_and_stops(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        waiting = client.get(f"/requests/{name}").text
        phases = {Phase.COLLECTION: PhaseCount(total=32, done=12, reused=2, running=3, failed=1)}
        set_row(runtime, name, state=RequestState.RUNNING, phases=phases, outputs=1)
        running = event_of(client, name)
        put_result(runtime, name, "MCD15A2.005", "a.json", b"{}")
        set_row(runtime, name, state=RequestState.COMPLETE, delivered=1, ended=1e9)
        ended = event_of(client, name, ended=True)
        page = client.get(f"/requests/{name}").text
    assert f'data-events="/requests/{name}/events"' in waiting
    assert "Leaf &lt;area&gt;" in waiting
    assert "12 of 32, 3 running, 2 reused, 1 failed" in running["html"]
    assert f'data-mark="{running["mark"]}"' in running["html"]
    assert f'data-mark="{running["mark"]}"' not in waiting, "files and gaps are out of date"
    assert (running["ended"], ended["ended"]) == (False, True)
    assert "data-events" not in ended["html"]
    assert "Cancel" not in ended["html"]
    assert f"/api/requests/{name}/results/MCD15A2.005/a.json" in page


def test_what_is_planned_has_a_square_before_it_is_made(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    planned = Interest(
        request=name,
        key="0" * 64,
        phase=Phase.AGGREGATION,
        name="MCD15A2.005.Lai_1km.2012-01-09",
        output="MCD15A2.005/Lai_1km",
    )
    put_interest(runtime, planned)
    set_row(runtime, name, state=RequestState.RUNNING, outputs=1)
    with portal.browser() as client:
        running = part(client, f"/requests/{name}/matrix")
        set_row(runtime, name, state=RequestState.CANCELLED, ended=1e9)
        ended = part(client, f"/requests/{name}/matrix")
    square = '<span class="to-come" role="img" aria-label="2012-01-09: still to come">09</span>'
    assert square in running
    assert "1 still to come" in running
    assert "still to come" not in ended


def test_the_key_of_squares_has_what_is_among_them(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    put_result(runtime, name, "MCD15A2.005/Lai_1km", "MCD15A2.005.Lai_1km.2012-01-01.tif", b"1")
    set_row(runtime, name, state=RequestState.COMPLETE, delivered=1, ended=1e9)
    signs = ("of pixels with a value, at least", "missing in the archive", "part of its inputs")
    with portal.browser() as client:
        whole = client.get(f"/requests/{name}").text
        gap = Gap(what="MCD15A2.005 2012-01-09", reason="not published")
        set_row(runtime, name, state=RequestState.GAPS, gaps=(gap,), gap_count=1)
        lacking = client.get(f"/requests/{name}").text
    assert [sign in whole for sign in signs] == [True, False, False]
    assert [sign in lacking for sign in signs] == [True, True, False]


def test_what_a_plan_notes_is_told_in_the_preview_and_on_the_page(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    note = "VNP09GA.002: reads up to about 4.2 MB of 137 MB"
    set_row(runtime, name, state=RequestState.RUNNING, notes=(note,))
    with portal.browser() as client:
        assert note in client.get(f"/requests/{name}").text
        assert note in event_of(client, name)["html"]
        assert note in client.get(f"/api/requests/{name}/preview").json()["notes"]
        set_row(runtime, name, state=RequestState.PREVIEWED, dry_run=True, ended=1e9)
        assert note in part(client, f"/previews/{name}")


def test_the_newest_results_are_shown_as_they_come_until_the_end(
    portal: LivePortal, runtime: Runtime, raster: bytes
) -> None:
    name = submitted(runtime)

    def made(*dates: str) -> list[str]:
        """The dates among the newest results once these are made, too."""
        for date in dates:
            for suffix in ("json", "tif"):
                put_result(runtime, name, "L", f"{date}.{suffix}", raster)
        now = request_operations.load(runtime, name).delivered + len(dates)
        set_row(runtime, name, state=RequestState.RUNNING, outputs=9, delivered=now)
        html = event_of(client, name)["html"]
        return re.findall(r">([0-9-]+)\.<wbr>tif</span></a></li>", html)

    with portal.browser() as client:
        assert made() == []
        assert made("2012-03", "2012-04") == ["2012-03", "2012-04"]
        assert made("2012-01") == ["2012-01", "2012-03", "2012-04"]
        assert made("2012-02", "2012-05") == ["2012-02", "2012-05", "2012-01", "2012-03"]
        shown = client.get(f"/requests/{name}").text
        set_row(runtime, name, state=RequestState.COMPLETE, ended=1e9)
        ended = client.get(f"/requests/{name}").text
    first = f'<li><a href="/requests/{name}/view/L/2012-02.tif"><img class="thumb" src="/requests'
    assert first in shown
    assert "Newest results" in shown
    assert "Newest results" not in ended


def test_of_many_results_found_at_once_none_is_called_the_newest(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    for number in range(5):
        put_result(runtime, name, "L", f"{number}.csv", b"1")
    set_row(runtime, name, state=RequestState.RUNNING, outputs=9, delivered=5)
    with portal.browser() as client:
        first = client.get(f"/requests/{name}").text
        put_result(runtime, name, "L", "2b.csv", b"1")
        set_row(runtime, name, delivered=6)
        second = client.get(f"/requests/{name}").text
    assert "Newest results" not in first
    newest = second.partition('<div class="newest">')[2].partition("</div>")[0]
    assert newest.count("<li>") == 1
    assert f'<a href="/api/requests/{name}/results/L/2b.csv" download>' in newest


def test_a_request_without_a_title_is_headed_by_what_it_asks_for(
    portal: LivePortal, runtime: Runtime
) -> None:
    asked = parse_request({**DOCUMENT, "title": ""})
    name = request_operations.submit(runtime, "ada@example.org", asked)
    said = "MCD15A2 in -8, 50.5, 6, 58.5, 2012-01-01 to 2012-04-30"
    with portal.browser() as client:
        page = client.get(f"/requests/{name}").text
        home = client.get("/").text
        again = client.get(f"/new?again={name}").text
    assert f"<h1>{said}</h1>" in page
    assert f">{said}</a>" in home
    assert said not in again


def test_a_page_shows_how_far_planning_and_writing_are(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        assert "<progress" not in client.get(f"/requests/{name}").text
        planning = Preparation(done=1200, total=3650, unit="days")
        set_row(runtime, name, state=RequestState.PLANNING, preparation=planning)
        planned = client.get(f"/requests/{name}").text
        writing = Preparation(done=40, total=400, unit="tasks")
        set_row(runtime, name, state=RequestState.WRITING, preparation=writing)
        written = event_of(client, name)
        set_row(runtime, name, state=RequestState.RUNNING, preparation=None)
        assert "<progress" not in client.get(f"/requests/{name}").text
    assert '<label for="preparation">Days searched</label>' in planned
    assert "1,200 of 3,650 days</span>" in planned
    assert '<progress id="preparation" max="3650" value="1200">' in planned
    assert 'role="status">planning, 30 percent<' in planned
    assert '<label for="preparation">Tasks written</label>' in written["html"]
    assert "40 of 400 tasks</span>" in written["html"]
    assert '<progress id="preparation" max="400" value="40">' in written["html"]
    assert written["saying"] == "writing, 10 percent"


def test_a_request_is_paused_and_resumed_from_its_page(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        assert 'id="order-pause"' in client.get(f"/requests/{name}").text
        paused = client.post(f"/requests/{name}/pause").text
        assert request_operations.load(runtime, name).order == "pause"
        set_row(runtime, name, order=None, paused=True)
        page = client.get(f"/requests/{name}").text
        assert client.post(f"/requests/{name}/explode").status_code == 400
    assert 'id="order-resume"' in paused
    assert "Paused:" in page
    assert 'id="order-pause"' not in page


def test_results_are_searched_and_turned_over(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    for number in range(120):
        put_result(runtime, name, "L", f"{number:03d}.csv", f"{number}".encode())
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=120, delivered=120, ended=1e9)
    with portal.browser() as client:
        first = client.get(f"/requests/{name}/results").text
        last = part(client, f"/requests/{name}/results?page=99")
        found = part(client, f"/requests/{name}/results?find=l+07")
    assert "1 to 50 of 120" in first
    assert "101 to 120 of 120" in last
    assert "119.csv" in last
    assert found.count('aria-label="Download') == 12
    assert "12 found" in found


def test_a_few_results_have_no_last_page_of_their_own(portal: LivePortal, runtime: Runtime) -> None:
    names = {count: submitted(runtime) for count in (60, 61)}
    for count, name in names.items():
        for number in range(count):
            put_result(runtime, name, "L", f"{number:03d}.csv", f"{number}".encode())
        set_row(runtime, name, state=RequestState.COMPLETE, outputs=count, delivered=count)
    with portal.browser() as client:
        all_on_one = part(client, f"/requests/{names[60]}/results")
        first = part(client, f"/requests/{names[61]}/results")
        last = part(client, f"/requests/{names[61]}/results?page=2")
    assert all_on_one.count('aria-label="Download') == 60
    assert "Pages of results" not in all_on_one
    assert first.count('aria-label="Download') == 50
    assert last.count('aria-label="Download') == 11
    assert "51 to 61 of 61" in last


def test_a_picture_is_drawn_and_kept_by_the_browser(
    portal: LivePortal, runtime: Runtime, raster: bytes
) -> None:
    name = submitted(runtime)
    put_result(runtime, name, "L", "a.tif", raster)
    put_result(runtime, name, "L", "b.tif", b"no raster")
    put_result(runtime, name, "L", "c.csv", b"1,2")
    put_result(runtime, name, "L", "d.tif", raster + b"x", handed_over=True)
    with portal.browser() as client:
        picture = client.get(f"/requests/{name}/pictures/L/a.tif")
        large = client.get(f"/requests/{name}/pictures/L/a.tif?size=large")
        page = client.get(f"/requests/{name}/view/L/a.tif").text
        assert client.get(f"/requests/{name}/pictures/L/b.tif").status_code == 404
        assert client.get(f"/requests/{name}/pictures/L/c.csv").status_code == 404
        assert client.get(f"/requests/{name}/pictures/L/d.tif").status_code == 404
        assert client.get(f"/requests/{name}/view/L/c.csv").status_code == 200
    assert picture.headers["content-type"] == "image/png"
    assert "immutable" in picture.headers["cache-control"]
    assert picture.content[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(picture.content[16:20]) == 144
    assert int.from_bytes(large.content[16:20]) == 280
    assert "Download" in page


def test_all_files_are_one_click_away_in_the_first_card_of_results(
    portal: LivePortal, runtime: Runtime, raster: bytes
) -> None:
    of_rasters, of_tables = submitted(runtime), submitted(runtime)
    layer = "MCD15A2.005/Lai_1km"
    put_result(runtime, of_rasters, layer, "MCD15A2.005.Lai_1km.2012-01-01.tif", raster)
    put_result(runtime, of_tables, "zonal", "table.csv", b"zone,mean\n")
    for name in (of_rasters, of_tables):
        set_row(runtime, name, state=RequestState.COMPLETE, delivered=1, ended=1e9)
    with portal.browser() as client:
        pages = {name: client.get(f"/requests/{name}").text for name in (of_rasters, of_tables)}
    for name, page in pages.items():
        first, files = page.split('<section class="card panel" id="results"')
        holds = first if name == of_rasters else files
        assert page.count(f'href="/api/requests/{name}/archive.zip"') == 1
        assert f'href="/api/requests/{name}/archive.zip"' in holds
    assert "unpack the ZIP and open <code>results.qgs</code>" in pages[of_rasters]


@pytest.mark.parametrize("state", [one for one in RequestState if one.ended])
def test_a_request_that_ended_without_anything_offers_no_empty_part(
    portal: LivePortal, runtime: Runtime, state: RequestState
) -> None:
    name = submitted(runtime)
    set_row(runtime, name, state=RequestState.RUNNING)
    with portal.browser() as client:
        running = client.get(f"/requests/{name}").text
        set_row(runtime, name, state=state, ended=1e9)
        ended = client.get(f"/requests/{name}").text
    for each in ("by-date", "results"):
        for said in (f'href="#{each}"', f'id="{each}"'):
            assert said in running
            assert said not in ended
    assert 'href="#lacks"' in ended


def test_how_many_results_are_made_is_said_once(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    set_row(runtime, name, state=RequestState.RUNNING, outputs=32, delivered=6)
    with portal.browser() as client:
        page = client.get(f"/requests/{name}").text
    assert re.sub(r'aria-label="[^"]*"', "", page).count("6 of 32") == 1


def test_one_raster_is_no_rasters(portal: LivePortal, runtime: Runtime, raster: bytes) -> None:
    name = submitted(runtime)
    put_result(runtime, name, "MCD15A2.005/Lai_1km", "MCD15A2.005.Lai_1km.2012-01-01.tif", raster)
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=1, delivered=1, ended=1e9)
    with portal.browser() as client:
        assert "1 raster complete" in client.get(f"/requests/{name}").text


def test_what_is_not_known_before_a_request_is_no_nought(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    counted = Preview(granules=32, tasks=107, size=12_345_678)
    set_row(runtime, name, state=RequestState.HELD, preview=counted)
    with portal.browser() as client:
        page = client.get(f"/requests/{name}").text
    for what in ("To keep", "Expected", "Cost"):
        assert f"<dt>{what}</dt><dd>not known</dd>" in page


def test_failures_are_grouped_and_lead_to_every_attempt(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    key = put_failed_task(runtime, name, "A.hdf", (Category.EXECUTION_TIMEOUT,) * 3)
    put_failed_task(runtime, name, "B.hdf", (Category.BAD_IMAGE_FORMAT,))
    phases = {Phase.COLLECTION: PhaseCount(total=2, failed=2)}
    set_row(runtime, name, state=RequestState.GAPS, phases=phases, ended=1e9)
    with portal.browser() as client, portal.browser("bob@example.org") as other:
        page = client.get(f"/requests/{name}").text
        task = client.get(f"/tasks/{key}").text
        assert other.get(f"/tasks/{key}").status_code == 404
        assert other.get(f"/requests/{name}").status_code == 404
    assert "bad image format" in page
    assert "What to do" in page
    assert f"/tasks/{key}" in page
    assert all(f"Attempt {number} " in task for number in (1, 2, 3))
    assert "fetching A.hdf" in task


def test_what_failed_only_for_its_input_is_folded_under_the_cause(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    put_failed_task(runtime, name, "one.hdf", (Category.UNREADABLE_INPUT_FILE,))
    put_failed_task(runtime, name, "two.hdf", (Category.UNREADABLE_INPUT_FILE,))
    put_failed_task(runtime, name, "three.hdf", (Category.UNKNOWN,))
    upstream = Interest(
        request=name,
        key="",
        phase=Phase.REPROJECTION,
        outcome=TaskOutcome.GAP,
        category=Category.UPSTREAM_FAILED,
    )
    for number, message in enumerate(
        ("three.hdf: unknown: no unreadable input file", "unreadable input file: cut off", "")
    ):
        key = f"{number:064}"
        put_interest(runtime, replace(upstream, key=key, name=f"cell {number}", message=message))
    counts = PhaseCount(total=6, failed=3)
    set_row(runtime, name, phases={Phase.COLLECTION: counts})
    with portal.browser() as client:
        unreadable, unknown = part(client, f"/requests/{name}/lacks").split('<div class="group">')[
            1:
        ]
    assert "2 tasks" in unreadable
    listed, folded = unreadable.split("<details>")
    assert "one.hdf" in listed
    assert "cell" not in listed
    assert "2 more tasks failed only because an input failed so" in folded
    assert "cell 1" in folded
    assert "cell 2" in folded  # its message names no cause: the most frequent one
    assert "1 more task failed only" in unknown
    assert "cell 0" in unknown.split("<details>")[1]
    assert "upstream failed" not in unreadable + unknown


def test_the_page_tells_one_cause_once(portal: LivePortal, runtime: Runtime) -> None:
    name, said = submitted(runtime), "the QA rule names layer x, which no granule holds"
    one = Interest(
        request=name,
        key="",
        phase=Phase.REPROJECTION,
        outcome=TaskOutcome.FAILED,
        category=Category.CHOICE_REFUSED,
        message=said,
    )
    for number in range(3):
        put_interest(runtime, replace(one, key=f"{number:064}", name=f"cell {number}"))
    handed_on = replace(
        one,
        outcome=TaskOutcome.GAP,
        category=Category.UPSTREAM_FAILED,
        message=f"a cell of 2018-01-01: choice refused: {said}",
    )
    put_interest(runtime, replace(handed_on, key="f" * 64, name="raster"))
    set_row(runtime, name, phases={Phase.REPROJECTION: PhaseCount(total=4, failed=3)})
    with portal.browser() as client:
        page = part(client, f"/requests/{name}/lacks")
    assert page.count(said) == 1
    assert page.count("for the same cause") == 3


def test_what_follows_from_failures_elsewhere_is_listed_itself(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    alone = Interest(
        request=name,
        key="0" * 64,
        phase=Phase.REPROJECTION,
        name="a cell",
        outcome=TaskOutcome.GAP,
        category=Category.UPSTREAM_FAILED,
    )
    put_interest(runtime, alone)
    set_row(runtime, name, phases={Phase.REPROJECTION: PhaseCount(total=1, failed=1)})
    with portal.browser() as client:
        text = part(client, f"/requests/{name}/lacks")
    assert ">upstream failed<" in text
    assert "a cell" in text
    assert "<details>" not in text


def test_a_request_that_waits_shows_what_it_takes_and_is_confirmed_by_page_and_api(
    portal: LivePortal, runtime: Runtime
) -> None:
    request_id = submitted(runtime)
    preview = Preview(
        granules=16,
        tasks=64,
        gaps=7,
        size=33_700_000,
        stored=101_000_000,
        busy=90.0,
        unmeasured=3,
        cost=1.5,
        currency="EUR",
    )
    set_row(
        runtime,
        request_id,
        state=RequestState.HELD,
        message="confirm it to go on: 64 tasks, more than the 20 of SWATHMILL_CONFIRM",
        preview=preview,
    )
    with portal.browser() as client:
        page = client.get(f"/requests/{request_id}").text
        assert "Confirm it to go on: 64 tasks" in page
        for text in ("16, 33.7 MB to fetch", "at most 101 MB", "at least 1.50 EUR"):
            assert text in page
        assert page.count("leave out 3 of 64 tasks (5%)") == 1
        assert "/pause" not in page
        page = client.post(f"/requests/{request_id}/confirm").text  # leads back to it
    assert request_operations.load(runtime, request_id).order == "confirm"
    assert "Confirmed: it will start." in page
    assert f"/requests/{request_id}/confirm" not in page
    other = submitted(runtime)
    set_row(runtime, other, state=RequestState.HELD)
    with portal.client() as client, portal.client(owner="bob@example.org") as stranger:
        refused = stranger.post(f"/api/requests/{other}/confirm").status_code
        assert request_operations.load(runtime, other).order is None
        assert client.post(f"/api/requests/{other}/confirm").status_code == 202
    assert refused in (403, 404)
    assert request_operations.load(runtime, other).order == "confirm"


def test_the_slots_of_a_lost_worker_bring_no_end_nearer(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = submitted(runtime)
    set_row(runtime, name, state=RequestState.RUNNING)
    now = runtime.clock.now()
    for worker, age in (("beats", 1.0), ("killed", 3600.0)):
        row = WorkerRow(name=worker, host="h", slots=4, started=1.0, beat_at=now - age)
        workers.beat(runtime.store, runtime.clock, row)
    asked: list[str] = []

    def expected(
        _row: object, _others: object, those: list[WorkerRow], *_: object, **__: object
    ) -> None:
        asked.extend(one.name for one in those)

    monkeypatch.setattr(request_page, "expected_end", expected)
    with portal.browser() as client:
        client.get(f"/requests/{name}")
    assert asked == ["beats"]
