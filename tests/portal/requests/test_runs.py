"""Runs of a reduction: found from a request, a result or a task, with logs and inputs."""

import io
import json
import re
import zipfile
from dataclasses import dataclass, replace
from unittest.mock import Mock

import pytest

from portal.requests import runs
from tasks.bag import protocol, task_table, transitions
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile, RequestState, RunUse, Task, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.spec import GridSpec, GroupSpec, Input, MosaicSpec, ReduceSpec
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Interest
from tasks.bag.transitions import RetryPolicy
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import ARTIFACTS, artifact_name
from tests.portal.scripted import LivePortal, put_interest
from tests.portal.submissions import DOCUMENT

ADA, BEN = "ada@example.org", "ben@example.org"
GRID = GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8)
USED = RunUse(
    seconds=1.5,
    cpu_seconds=1.25,
    written=12_000_000,
    cores=2,
    waited=0.0,
    most_seconds=600.0,
    most_written=8_000_000_000,
    most_memory=2_000_000_000,
)
RASTER = "own/Lai_1km_mean/Lai_1km_mean.2012-01.tif"


@dataclass(frozen=True, kw_only=True)
class Story:
    """A request that has ended, with one run that was put into a raster, and one that failed."""

    request: str
    good: ReduceSpec
    bad: ReduceSpec
    mosaic: MosaicSpec


def put(
    runtime: Runtime,
    request: str,
    spec: Spec,
    files: dict[str, bytes],
    output: str = "",
    said: str = "",
) -> None:
    """Carry out a task with these files, or have it fail if there are none."""
    interest = Interest(request=request, key=spec.key, phase=spec.phase, name="", output=output)
    created = transitions.create(spec, interest, 0)
    runtime.store.transact(task_table.TABLE, shard(spec.key), created.operations)
    claimed = protocol.claim(runtime, spec.key, "worker-1", RetryPolicy())
    assert claimed is not None
    attempt = claimed.attempt(
        started=1.0,
        ended=3.0,
        duration=2.0,
        category=None if files else Category.USER_CODE_FAILED,
        message=said,
        log=f"it says: {spec.kind}\nswathmill: it took 2.0 s\n",
        peak_memory=10**6,
        used=replace(USED, tier="bubblewrap") if spec.kind == "reduce" else None,
        reading="" if spec.kind == "reduce" else "limits",
    )
    made = []
    for name, data in files.items():
        blob = artifact_name(spec.key, claimed.claim, name)
        stored = runtime.blobs.put_bytes(ARTIFACTS, blob, data)
        made.append(
            ArtifactFile(
                name=name, blob=f"{ARTIFACTS}/{blob}", size=stored.size, sha256=stored.sha256
            )
        )
    if files:
        protocol.commit(runtime, attempt, made, claimed.task)
        put_interest(runtime, replace(interest, outcome=TaskOutcome.DONE, files=tuple(made)))
    else:
        protocol.fail(runtime, attempt, RetryPolicy(budget=1))
        put_interest(
            runtime,
            replace(
                interest,
                outcome=TaskOutcome.FAILED,
                category=Category.USER_CODE_FAILED,
                message=said,
            ),
        )


def withdraw(runtime: Runtime, request: str, spec: Spec) -> None:
    """Withdraw an interest, as the manager does when a request has ended."""
    task = runtime.tasks.task(spec.key)
    assert task is not None
    dropped = transitions.drop(task, request).operations
    runtime.store.transact(task_table.TABLE, shard(spec.key), dropped)


@pytest.fixture
def story(runtime: Runtime) -> Story:
    return put_story(runtime)


def put_story(runtime: Runtime) -> Story:
    """Carry out the runs of a request."""
    document = {**DOCUMENT, "reduction": {"package": "own", "parameters": {"low": "1"}}}
    request = request_operations.submit(runtime, ADA, parse_request(document))
    groups = [
        GroupSpec(
            inputs=(),
            group=f"r0c{n} 2012-01",
            cell=f"r0c{n}",
            window="2012-01",
            grid=GRID,
            bands=(),
        )
        for n in (0, 1)
    ]
    good, bad = (
        ReduceSpec(
            inputs=(Input(key=group.key, name=group.group),),
            package="own",
            digest="d" * 64,
            outputs=("Lai_1km_mean.tif",),
            parameters={"low": "1"},
        )
        for group in groups
    )
    mosaic = MosaicSpec(
        inputs=(Input(key=good.key, name="r0c0", file="Lai_1km_mean.tif"),),
        name="Lai_1km_mean.2012-01",
        grid=GRID,
    )
    for group in groups:
        put(runtime, request, group, {"manifest.json": b"{}", "Lai_1km.tif": b"raster"})
        withdraw(runtime, request, group)
    put(runtime, request, good, {"Lai_1km_mean.tif": b"mean"})
    withdraw(runtime, request, good)
    put(runtime, request, bad, {}, said="exit code 1: the reason")
    put(runtime, request, mosaic, {"Lai_1km_mean.2012-01.tif": b"all"}, "own/Lai_1km_mean")

    def ended(row: RequestRow) -> RequestRow:
        return replace(row, state=RequestState.GAPS, package="ada@example.org/own@1 " + "d" * 64)

    request_operations.change_request(runtime, request, ended)
    return Story(request=request, good=good, bad=bad, mosaic=mosaic)


def test_the_runs_of_an_ended_request_are_told_the_failed_first(
    portal: LivePortal, story: Story
) -> None:
    with portal.client() as client:
        told = client.get(f"/api/requests/{story.request}/runs").json()
        assert [run["key"] for run in told["runs"]] == [story.bad.key, story.good.key]
        assert [run["outcome"] for run in told["runs"]] == ["user code failed", "done"]
        assert [run["group"] for run in told["runs"]] == ["r0c1 2012-01", "r0c0 2012-01"]
        for run in told["runs"]:
            (attempt,) = client.get(run["log_url"]).json()
            assert attempt["log"] == "it says: reduce\nswathmill: it took 2.0 s\n"
            assert (attempt["duration"], attempt["peak_memory"]) == (2.0, 10**6)


def test_a_results_own_runs_are_told(portal: LivePortal, story: Story) -> None:
    with portal.client() as client:
        path = f"/api/requests/{story.request}/runs"
        told = client.get(path, params={"result": RASTER}).json()
        assert [run["key"] for run in told["runs"]] == [story.good.key]
        assert client.get(path, params={"result": "own/none.tif"}).status_code == 404
    with portal.browser() as browser:
        page = browser.get(f"/requests/{story.request}/runs")
        assert "exit code 1: the reason" in page.text
        one = browser.get(f"/requests/{story.request}/runs/{story.good.key}")
        assert "swathmill: it took 2.0 s" in one.text
        assert f"runs/{story.good.key}/inputs.zip" in one.text


def names_in(data: bytes) -> set[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return set(archive.namelist())


def test_inputs_are_one_download_by_run_task_and_raster(portal: LivePortal, story: Story) -> None:
    every = {"manifest.json", "Lai_1km.tif", "parameters.json"}
    with portal.client() as client:
        for key in (story.good.key, story.bad.key):
            for place in (f"requests/{story.request}/runs", "tasks"):
                got = client.get(f"/api/{place}/{key}/inputs.zip")
                assert names_in(got.content) == every, (place, key)
        with zipfile.ZipFile(io.BytesIO(got.content)) as archive:
            assert json.loads(archive.read("parameters.json")) == {"low": "1"}
        got = client.get(f"/api/tasks/{story.mosaic.key}/inputs.zip")
        assert names_in(got.content) == every


def test_inputs_that_are_not_kept_are_gone(
    portal: LivePortal, story: Story, runtime: Runtime
) -> None:
    group = story.good.inputs[0].key
    task = runtime.tasks.task(group)
    assert task is not None
    expired = transitions.expire(task).operations
    runtime.store.transact(task_table.TABLE, shard(group), expired)
    with portal.client() as client:
        got = client.get(f"/api/requests/{story.request}/runs/{story.good.key}/inputs.zip")
        assert got.status_code == 410


def test_others_see_neither_runs_nor_inputs(portal: LivePortal, story: Story) -> None:
    with portal.client(BEN) as client:
        for place in (
            f"/api/requests/{story.request}/runs",
            f"/api/requests/{story.request}/runs/{story.good.key}",
            f"/api/requests/{story.request}/runs/{story.good.key}/inputs.zip",
            f"/api/tasks/{story.good.key}/inputs.zip",
            f"/api/tasks/{story.bad.key}/inputs.zip",
        ):
            assert client.get(place).status_code == 404, place
    with portal.client() as client:
        for key in ("0" * 64, story.mosaic.key, "x"):
            got = client.get(f"/api/requests/{story.request}/runs/{key}/inputs.zip")
            assert got.status_code == 404


def test_what_a_run_has_used_is_beside_what_it_may_use(portal: LivePortal, story: Story) -> None:
    with portal.client() as ada:
        found = ada.get(f"/api/requests/{story.request}/runs").json()["runs"]
        assert {run["attempts"][0]["used"]["cpu_seconds"] for run in found} == {1.25}
        assert found[0]["attempts"][0]["used"]["most_memory"] == 2_000_000_000
    with portal.browser(ADA) as browser:
        page = " ".join(
            browser.get(f"/requests/{story.request}/runs/{story.good.key}").text.split()
        )
        assert "CPU time on 2 cores" in page
        assert "12 MB" in page
        assert "12 MB" in browser.get(f"/requests/{story.request}/runs").text


def test_the_tier_in_which_a_run_s_group_was_read_is_beside_that_of_its_program(
    portal: LivePortal, story: Story
) -> None:
    def fold(text: str) -> str:
        return " ".join(re.sub("<[^>]*>", " ", text).split())

    with portal.client() as ada:
        found = ada.get(f"/api/requests/{story.request}/runs").json()["runs"]
        (run,) = [one for one in found if one["key"] == story.good.key]
        assert run["reading"] == "limits"
        assert (run["attempts"][0]["reading"], run["attempts"][0]["used"]["tier"]) == (
            "",
            "bubblewrap",
        )
        (attempt,) = ada.get(f"/api/tasks/{story.mosaic.key}").json()["attempts"]
        assert (attempt["reading"], attempt["used"]) == ("limits", None)
    with portal.browser(ADA) as browser:
        page = browser.get(f"/requests/{story.request}/runs").text
        assert re.search(
            r'data-label="Sandbox">bubblewrap</td>\s*<td data-label="Inputs read in">limits<', page
        )
        assert "read in the tier limits" in fold(browser.get(f"/tasks/{story.mosaic.key}").text)
        assert "read in the tier" not in fold(browser.get(f"/tasks/{story.good.key}").text)


def test_what_a_task_is_to_do_is_written_as_people_do(portal: LivePortal, story: Story) -> None:
    with portal.browser(ADA) as browser:
        page = browser.get(f"/tasks/{story.bad.key}").text
    facts = dict(re.findall(r"<dt>(\w+)</dt><dd[^>]*>([^<]*)</dd>", page))
    assert facts["Outputs"] == "Lai_1km_mean.tif"
    assert facts["Parameters"] == "low: 1"


@pytest.mark.parametrize(("most", "more"), [(2, False), (1, True)])
def test_so_many_runs_are_told_and_that_there_are_more(
    monkeypatch: pytest.MonkeyPatch, most: int, more: bool
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(runs, "MOST", most)
    monkeypatch.setattr(runs, "run_keys", lambda *_: ["one", "two"])

    def tasks_of(_: Runtime, keys: list[str]) -> list[Task]:
        asked.extend(keys)
        return []

    monkeypatch.setattr(runs, "tasks_of", tasks_of)
    assert runs.runs_of(memory_runtime(), Mock()).more is more
    assert asked == ["one", "two"][:most]
