"""Killed workers and hanging reductions, on the sample archive through a whole stack."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.bag.model import Phase
from tasks.request.document import parse_request
from tests.acceptance.running import LIMIT, Running, started, write_package
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.integration]

CEILING = 10.0
MARK = "98765.4321"  # seconds the hanging package sleeps, by which its processes are known

REQUEST: dict[str, Any] = {
    "title": "Spring over the North Sea (synthetic sample)",
    "products": [
        {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "Fpar_1km"]},
    ],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-04-01", "end": "2012-05-16"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.008},  # four cells
}
HANG = f"""import subprocess, sys
print("asleep", flush=True)
subprocess.run(["sleep", "{MARK}"])
"""


def command_lines() -> dict[int, list[str]]:
    """The arguments of every process of this machine that still runs."""
    found = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                text = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if text:
                found[int(process.name)] = text.decode(errors="replace").split("\0")[:-1]
    return found


def parent(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def descendants(process: int) -> set[int]:
    parents = {one: parent(one) for one in command_lines()}
    found: set[int] = {process}
    while True:
        more = {one for one, above in parents.items() if above in found} - found
        if not more:
            return found - {process}
        found |= more


def worker_of(data: Path) -> int:
    """The worker process of the stack on this data folder."""
    mark = f"SWATHMILL_DATA_DIR={data}".encode()
    for process, arguments in command_lines().items():
        try:
            environment = Path(f"/proc/{process}/environ").read_bytes()
        except OSError:
            continue
        if mark in environment and arguments[2:4] == ["-m", "worker"]:
            return process
    return 0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, sample_archive: Path) -> Iterator[Running]:
    """A stack with a low ceiling, a quick monitor and a package that hangs."""
    folder = tmp_path_factory.mktemp("stack")
    write_package(folder / "packages", "hang", HANG, "resources: {timeout_seconds: 86400}\n")
    settings = {
        "TIMEOUT_CEILING": str(CEILING),
        "RETRY_BASE": "0.5",
        "LEASE_SECONDS": "10",
    }
    with started(folder, sample_archive, settings) as running:
        yield running


@pytest.mark.proof
def test_a_request_completes_although_its_worker_is_killed(stack: Running, tmp_path: Path) -> None:
    request = stack.client.submit(parse_request(REQUEST)).id

    def under_way() -> bool:
        status = stack.client.status(request)
        assert not status.state.ended, status
        cells = status.phases.get(Phase.REPROJECTION)
        return cells is not None and cells.done >= 1

    until(under_way, LIMIT, "the first cell is done", stack.log)
    worker = worker_of(stack.data)
    assert worker
    until(lambda: bool(descendants(worker)), LIMIT, "the worker has children", stack.log)
    lines = command_lines()
    children = {one: lines[one] for one in descendants(worker) if one in lines}  # some have ended
    os.kill(worker, signal.SIGKILL)
    until(
        lambda: not any(command_lines().get(one) == line for one, line in children.items()),
        LIMIT,
        "the worker's children have ended with it",
        stack.log,
    )
    status = stack.until_ended(request)
    assert status.state.value == "complete", status
    assert status.failures == ()
    results = stack.client.results(request)
    names = [result.name for result in results]
    assert len(set(names)) == len(names)
    assert len([name for name in names if name.endswith(".tif")]) == status.outputs
    for result in results:
        assert stack.client.download(result, tmp_path).stat().st_size == result.size


@pytest.mark.proof
def test_a_reduction_that_hangs_is_killed_and_the_rest_delivered(stack: Running) -> None:
    document = {
        **REQUEST,
        "region": {"bbox": [1.0, 52.0, 3.0, 54.0]},
        "grid": {"crs": "EPSG:4326", "resolution": 0.02},
        "time": {"start": "2012-04-13", "end": "2012-04-15"},
        "reduction": {"package": "hang", "group_by": ["cell", "month"], "rehearse": False},
    }
    request = stack.client.submit(parse_request(document)).id
    until(
        lambda: any(MARK in line for line in command_lines().values()),
        LIMIT,
        "the package hangs",
        stack.log,
    )
    status = stack.until_ended(request)
    assert status.state.value == "failed", status
    assert "no result of the reduction hang could be made: execution timeout" in status.message
    assert not any(MARK in line for line in command_lines().values())
    timed_out = [f for f in status.failures if f.phase == "reduction"]
    assert timed_out
    assert {failure.category for failure in timed_out} == {"execution timeout"}
    attempts = stack.json(f"/api/tasks/{timed_out[0].key}")["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["execution timeout"] * 3
    assert all(attempt["duration"] >= CEILING * 0.8 for attempt in attempts)
    delivered = [result.name for result in stack.client.results(request)]
    assert any(name.startswith("MCD15A2.005/Lai_1km/") for name in delivered)
    outcomes = stack.json("/api/operations")["executions"]["outcomes"]
    assert "execution timeout" in str(outcomes)
    assert "execution timeout" in stack.page("/operations").lower()
