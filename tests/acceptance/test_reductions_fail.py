"""Packages that fail, always or for some groups, or make nothing: what their scientist is told.

On the sample archive, through a whole stack: state, message, page, mail, and what was spent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from swathmill.answers import RequestStatus
from swathmill.delivery import read_mail
from swathmill.stack.folder import DataFolder
from tasks.bag.model import Phase
from tasks.request.document import parse_request
from tests.acceptance.running import LIMIT, Running, started, write_package
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.integration]

NO_SNOW = """import sys
print("reading", sys.argv[1], flush=True)
import snowlib
"""
SOME = """import json, pathlib, sys
import rasterio
given, made = map(pathlib.Path, sys.argv[1:])
manifest = json.loads((given / "manifest.json").read_text())
if manifest["window"] in ("2012-04-06", "2012-04-14"):
    sys.exit("no snow on this day")
for file in {band["file"] for band in manifest["bands"]}:
    with rasterio.open(given / file) as stack:
        path = made / f"{pathlib.Path(file).stem}_some.tif"
        with rasterio.open(path, "w", **{**stack.profile, "count": 1}) as out:
            out.write(stack.read(1), 1)
"""
EMPTY = """import json, pathlib, sys
import numpy, rasterio
given, made = map(pathlib.Path, sys.argv[1:])
manifest = json.loads((given / "manifest.json").read_text())
for file in {band["file"] for band in manifest["bands"]}:
    with rasterio.open(given / file) as stack:
        profile = {**stack.profile, "count": 1, "dtype": "float32", "nodata": float("nan")}
        with rasterio.open(made / f"{pathlib.Path(file).stem}_empty.tif", "w", **profile) as out:
            out.write(numpy.full((1, stack.height, stack.width), numpy.nan, "float32"))
"""
CRASH = "python run.py ended with exit code 1: ModuleNotFoundError: No module named 'snowlib'"
DATES = 5
REQUEST: dict[str, Any] = {
    "title": "Snow",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-03-21", "end": "2012-04-24"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.008},  # four cells
    "notify": "scientist@example.org",
}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A request that has ended, with all that its scientist can see."""

    status: RequestStatus
    results: dict[str, float | None]  # valid share by path
    runs: dict[str, list[dict[str, Any]]]  # attempts of the reductions that failed, by name
    page: str
    mail: str


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, sample_archive: Path) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("stack")
    for name, script in (("no-snow", NO_SNOW), ("some", SOME), ("empty", EMPTY)):
        write_package(folder / "packages", name, script)
    with started(folder, sample_archive, {}) as running:
        yield running


def words(text: str) -> str:
    return " ".join(unescape(text).split())


def ended(stack: Running, package: str) -> Ended:
    folder = DataFolder(path=stack.data).mail
    before = set(folder.glob("*.eml"))
    reduction = {"package": package, "group_by": ["cell", "date"], "rehearse": False}
    request = stack.client.submit(parse_request({**REQUEST, "reduction": reduction})).id
    status = stack.until_ended(request)
    until(lambda: bool(set(folder.glob("*.eml")) - before), LIMIT, "the mail is there", stack.log)
    (mail,) = set(folder.glob("*.eml")) - before
    return Ended(
        status=status,
        results={file.name: file.valid_share for file in stack.client.results(request)},
        runs={
            failure.name: stack.json(f"/api/tasks/{failure.key}")["attempts"]
            for failure in status.failures
            if failure.phase == "reduction"
        },
        page=words(stack.page(f"/requests/{request}")),
        mail=words(read_mail(mail)),
    )


@pytest.mark.proof
def test_a_package_that_fails_on_import_is_run_a_few_times_and_named(stack: Running) -> None:
    found = ended(stack, "no-snow")
    runs = found.status.phases[Phase.REDUCTION].total
    attempts = [attempt for tried in found.runs.values() for attempt in tried]
    assert runs >= 20
    assert 3 <= len(attempts) <= 12, "two slots, and what was on its way to them"
    assert all(len(tried) <= 1 for tried in found.runs.values()), "it is never repeated"
    assert {attempt["message"] for attempt in attempts} == {CRASH}

    message = found.status.message
    assert found.status.state.value == "failed"
    assert f"no result of the reduction no-snow could be made: user code failed: {CRASH}" in message
    spent = f"({len(attempts)} of {runs} runs; {runs - len(attempts)} were not run"
    assert spent in message
    assert spent in found.page
    assert spent in found.mail
    assert CRASH in found.page
    assert CRASH in found.mail
    assert "mend the package" in found.mail
    assert "granules it needs" not in found.mail + found.page
    gaps = [gap for gap in found.status.gaps if "no-snow" in gap.what or "2012" in gap.what]
    assert f"user code failed: {CRASH}" in {gap.why for gap in gaps}

    rasters = [name for name in found.results if name.endswith(".tif")]
    assert len(rasters) == DATES, "the plain layers stay"
    assert all((found.results[name] or 0.0) > 0.1 for name in rasters)

    log = stack.json(f"/api/tasks/{_first(found)}/attempts/1")["log"]
    assert log.startswith("reading INPUT_DIR\nTraceback (most recent call last):\n")
    assert 'File "run.py", line 3' in log
    *_, last, ours = log.splitlines()
    assert last == "ModuleNotFoundError: No module named 'snowlib'"
    assert ours.startswith("swathmill: it took ")
    assert "worker/" not in log
    assert str(stack.data) not in log


@pytest.mark.proof
def test_a_package_that_fails_for_some_groups_leaves_the_others(stack: Running) -> None:
    found = ended(stack, "some")
    runs = found.status.phases[Phase.REDUCTION].total
    failed = [failure for failure in found.status.failures if failure.phase == "reduction"]
    assert found.status.state.value == "complete with gaps"
    assert len(failed) == runs // DATES * 2
    assert all(len(tried) == 1 for tried in found.runs.values())
    cause = "user code failed: python run.py ended with exit code 1: no snow on this day"
    assert f"2 could not be made: {cause} ({len(failed)} of {runs} runs)" in found.status.message
    made = [name for name in found.results if name.startswith("some/") and name.endswith(".tif")]
    assert len(made) == DATES - 2
    lacks = found.mail.partition("What is missing")[2].partition("What failed")[0]
    assert all(f"Lai_1km_some.{day}" in lacks for day in ("2012-04-06", "2012-04-14"))
    assert lacks.count(cause) == 1
    assert cause.partition(": ")[2] in found.page


@pytest.mark.proof
def test_rasters_without_one_valid_pixel_are_told(stack: Running) -> None:
    found = ended(stack, "empty")
    empty = sorted(name for name, share in found.results.items() if share == 0.0)
    assert len(empty) == DATES
    assert all(name.startswith("empty/Lai_1km_empty/") for name in empty)
    assert found.status.state.value == "complete"
    told = f"{DATES} of {2 * DATES} rasters hold no valid pixel: {empty[0]}"
    assert told in found.status.message
    assert told in found.page
    assert "no valid pixel</span>" in found.page
    assert f"Without one valid pixel ({DATES} of {2 * DATES} rasters): {empty[0]}" in found.mail


def _first(found: Ended) -> str:
    return next(str(tried[0]["key"]) for tried in found.runs.values() if tried)
