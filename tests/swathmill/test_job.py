"""A request held by a Python program: submitted, watched, downloaded and opened in xarray."""

import asyncio
import datetime as dt
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from portal.serving import tokens
from reprojection.read.window_time import WindowTime
from reprojection.write.write import write_cog
from swathmill import AsyncClient, AsyncJob, Client, Job, read_raster
from swathmill.answers import RequestStatus
from swathmill.errors import ArgumentError, JobFailedError
from swathmill.job import _date, _lies
from tasks.bag.model import RequestState
from tests.own_loop import run_on_own_loop
from tests.portal.scripted import (
    SECRET,
    ScriptedManager,
    live_portal,
    live_runtime,
    put_result,
    raster_bytes,
    set_row,
    settings,
)
from tests.portal.submissions import DOCUMENT, submitted
from tests.reprojection.raster_samples import plain
from tests.swathmill.answered import read_status

ADA = "ada@example.org"
DATES = ("2012-01-01", "2012-01-09", "2012-01-17")


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A complete request of two products that have a layer of the same name."""
    runtime = live_runtime()
    folder = tmp_path_factory.mktemp("rasters")
    with live_portal(runtime, settings()) as portal:
        token = tokens.issue(SECRET, ADA, tokens.Role.SCIENTIST)
        job = Client(url=portal.url, token=token).submit(DOCUMENT)
        for output, dates in (
            ("MCD15A2.005/Lai_1km", DATES),
            ("MOD15A2.005/Lai_1km", DATES[:1]),
            ("MCD15A2.005/Fpar_1km", DATES[1:]),
        ):
            for number, date in enumerate(dates):
                data = raster_bytes(folder, number)
                put_result(runtime, job.id, output, f"{output.replace('/', '.')}.{date}.tif", data)
        set_row(runtime, job.id, state=RequestState.COMPLETE, ended=runtime.clock.now())
        yield job


def test_a_request_is_submitted_watched_and_opened(tmp_path: Path) -> None:
    runtime = live_runtime()
    manager = ScriptedManager(runtime, tmp_path)
    with live_portal(runtime, settings()) as portal, manager.running():
        token = tokens.issue(SECRET, ADA, tokens.Role.SCIENTIST)
        seen: list[RequestStatus] = []
        job = Client(url=portal.url, token=token).submit(DOCUMENT).watch(seen.append)
        assert job.state is RequestState.COMPLETE
        assert seen[-1] == job.status
        assert len(job.download(tmp_path / "out")) == len(job.results()) == 3


def test_a_request_is_followed_on_asyncio(tmp_path: Path) -> None:
    runtime = live_runtime()
    manager = ScriptedManager(runtime, tmp_path)
    token = tokens.issue(SECRET, ADA, tokens.Role.SCIENTIST)

    async def follow(client: AsyncClient) -> tuple[AsyncJob, list[RequestStatus]]:
        turns = 0
        seen: list[RequestStatus] = []

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        job = await (await client.submit(DOCUMENT)).watch(seen.append)
        assert turns > 100, "others had their turns on the loop meanwhile"
        other.cancel()
        files = await job.download(tmp_path / "out")
        assert len(files) == len(await job.results()) == 3
        assert (await client.job(job.id)).state is job.state
        assert await client.call(Client.gaps, job.id) == []
        return job, seen

    with live_portal(runtime, settings()) as portal, manager.running():
        made = AsyncClient(client=Client(url=portal.url, token=token))
        job, seen = run_on_own_loop(follow(made))
    assert job.state is RequestState.COMPLETE
    assert seen[-1] == job.job.status


def test_a_dataset_is_opened_on_asyncio(complete: Job) -> None:
    opened = run_on_own_loop(AsyncJob(job=complete).to_xarray(["Fpar_1km"], since=DATES[2]))
    assert (set(opened.data_vars), opened.sizes["time"]) == ({"Lai_1km"}, 1)


def test_watching_on_asyncio_is_cancelled_and_refused_as_it_is_in_turn() -> None:
    runtime = live_runtime()
    token = tokens.issue(SECRET, ADA, tokens.Role.SCIENTIST)

    async def watch(client: AsyncClient) -> None:
        job = await client.submit(DOCUMENT)
        seen = asyncio.Event()
        watching = asyncio.create_task(job.watch(lambda _: seen.set()))
        await seen.wait()
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        set_row(runtime, job.id, state=RequestState.HELD, message="It is large.")
        with pytest.raises(JobFailedError, match="It is large"):
            await job.watch()

    with live_portal(runtime, settings()) as portal:
        run_on_own_loop(watch(AsyncClient(client=Client(url=portal.url, token=token))))


def test_layers_become_variables_over_time_in_physical_units(complete: Job, tmp_path: Path) -> None:
    opened = complete.to_xarray()
    # The sample rasters all say that they are of Lai_1km.
    names = {"MCD15A2.005.Lai_1km", "MOD15A2.005.Lai_1km", "Fpar_1km.Lai_1km"}
    assert set(opened.data_vars) == names
    assert [str(time)[:10] for time in opened.time.values] == list(DATES)
    first = next(path for path in complete.download(tmp_path) if f"Lai_1km.{DATES[0]}" in path.name)
    np.testing.assert_allclose(
        opened["MCD15A2.005.Lai_1km"][0], read_raster(first).values(0), equal_nan=True
    )
    assert np.isnan(opened["Fpar_1km.Lai_1km"][0]).all(), "it has no such date"
    assert "crs" in opened.coords


def test_layers_and_dates_are_chosen_and_files_kept(complete: Job, tmp_path: Path) -> None:
    chosen = complete.to_xarray(["Fpar_1km"], since=DATES[2], folder=tmp_path)
    assert (set(chosen.data_vars), chosen.sizes["time"]) == ({"Lai_1km"}, 1)
    assert len(list(tmp_path.rglob("*.tif"))) == 1
    assert len(complete.download(tmp_path, until="2012-01-08")) == 2
    with pytest.raises(ArgumentError, match="no finished raster"):
        complete.to_xarray(["Nothing"])


def test_a_layer_and_a_folder_are_named_by_text(complete: Job, tmp_path: Path) -> None:
    assert len(complete.download(str(tmp_path), layers="Fpar_1km")) == 2
    assert complete.download(tmp_path, layers="Fpar_1km_mean") == []
    with pytest.raises(ArgumentError, match="since 'April' is no date"):
        complete.download(tmp_path, since="April")
    document = tmp_path / "request.json"
    document.write_text(json.dumps(DOCUMENT))
    assert complete.client.submit(str(document)).id


@pytest.mark.parametrize("end", [RequestState.COMPLETE, RequestState.CANCELLED])
def test_each_result_comes_when_it_is_made_and_stays_when_the_rest_is_cancelled(
    end: RequestState, tmp_path: Path
) -> None:
    runtime = live_runtime()
    manager = ScriptedManager(runtime, tmp_path)
    with live_portal(runtime, settings()) as portal:
        token = tokens.issue(SECRET, ADA, tokens.Role.SCIENTIST)
        job = Client(url=portal.url, token=token).submit(DOCUMENT)
        manager.tick()
        made = job.results_as_made()
        names = []
        for _ in range(2):
            manager.tick()
            names.append(next(made).name)
            assert not job.client.status(job.id).state.ended
        set_row(runtime, job.id, state=end, ended=runtime.clock.now(), message="ended.")
        if end is RequestState.COMPLETE:
            assert [*made] == []
        else:
            with pytest.raises(JobFailedError, match="cancelled"):
                next(made)
        assert names == [one.name for one in job.results()]
        assert all(path.is_file() for path in job.download(tmp_path / "out"))


def test_results_come_as_they_are_made_on_asyncio(complete: Job) -> None:
    async def names() -> list[str]:
        return [one.name async for one in AsyncJob(job=complete).results_as_made()]

    assert run_on_own_loop(names()) == [one.name for one in complete.results()]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (RequestState.FAILED, "failed. no granule"),
        (RequestState.CANCELLED, "cancelled. no granule"),
        (RequestState.HELD, "waits for confirmation. no granule"),
    ],
)
def test_a_request_without_results_ends_the_watch(state: RequestState, says: str) -> None:
    runtime = live_runtime()
    name = submitted(runtime)
    with live_portal(runtime, settings()) as portal:
        token = tokens.issue(SECRET, ADA, tokens.Role.SCIENTIST)
        job = Client(url=portal.url, token=token).job(name)
        change = threading.Timer(
            0.2, set_row, (runtime, name), {"state": state, "message": "no granule."}
        )
        change.start()
        with pytest.raises(JobFailedError, match=says):
            job.watch()
        change.join()


def test_address_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWATHMILL_PORTAL_URL", "https://portal.example.org")
    monkeypatch.setenv("SWATHMILL_TOKEN", "the-token")
    client = Client()
    assert (client.url, client.token) == ("https://portal.example.org", "the-token")
    assert "the-token" not in repr(client)


def test_a_job_is_one_line_where_it_is_shown(complete: Job) -> None:
    assert repr(complete) == f"Job({complete.id}: {complete.status})"


def windowed(folder: Path, name: str, days: tuple[str, str], *, recurs: bool) -> None:
    """Write the raster of a window, whose name says which."""
    raster = plain(np.full((6, 8), 1, np.uint8))
    parts = (tuple(map(dt.date.fromisoformat, days)),)
    time = WindowTime.model_validate({"days": parts, "recurs": recurs})
    said = replace(raster.provenance, window=time, start=time.start, end=time.end)
    write_cog(replace(raster, provenance=said), folder / f"Height.{name}.tif")


@pytest.mark.parametrize(
    ("name", "days", "recurs"),
    [
        ("2012-041", ("2012-02-10", "2012-02-17"), False),
        ("2012-DJF", ("2011-12-01", "2012-02-29"), False),
        ("month-02", ("2011-02-01", "2012-02-29"), True),
        ("2012-01-04_2012-02-03", ("2012-01-04", "2012-02-03"), False),
    ],
)
def test_rasters_of_windows_are_opened_with_the_bounds_of_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, days: tuple[str, str], recurs: bool
) -> None:
    windowed(tmp_path, name, days, recurs=recurs)
    status = read_status(id="r", state=RequestState.COMPLETE)
    job = Job(client=Client(url="https://portal.example"), status=status)
    monkeypatch.setattr(Job, "download", lambda *_, **__: [*tmp_path.glob("*.tif")])
    opened = job.to_xarray()
    assert [*opened.data_vars] == ["Height"]
    assert str(opened.time.values[0])[:10] == days[0]
    bounds = opened["climatology_bounds" if recurs else "time_bnds"].values[0]
    after = dt.date.fromisoformat(days[1]) + dt.timedelta(days=1)
    assert [str(one)[:10] for one in bounds] == [days[0], str(after)]


def test_windows_are_chosen_by_their_first_day_and_climatologies_always() -> None:
    names = ("2012-041", "2012-DJF", "month-02", "day-041", "2012-02-10", "sites")
    dates = [_date(f"mean/Height/Height.{name}.tif") for name in names]
    assert [_lies(one, "2012-02-01", "") for one in dates] == [True, False, True, True, True, False]
    assert [_lies(one, "", "2012-01-31") for one in dates] == [
        *(False, True, True, True, False, True)
    ]
