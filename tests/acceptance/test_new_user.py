"""A new user's way, by the commands that docs/packages.md names, on the real tiles.

`package new` to a result on the request's page, in several languages; then an edited version, and
one that fails in the rehearsal, is mended and gone on with.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import yaml

from swathmill.answers import RequestStatus
from tasks.bag.model import Phase, RequestState
from tests.acceptance.containers import ENGINE, stack_over
from tests.acceptance.running import LIMIT, Running, command, started
from tests.waiting import until

pytestmark = [pytest.mark.proof, pytest.mark.real_data, pytest.mark.integration]

MOST_SECONDS = 300.0  # from `package new` to the result
LEAVES: dict[str, Any] = {
    "title": "Leaf area, coast of the North Sea",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-1.5, 51.0, 1.5, 52.5]},
    "time": {"start": "2012-03-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.02},
    "resampling": "nearest",
}
NEEDS = {"python": "sh", "shell": "sh", "c": "cc", "fortran": "gfortran", "r": "Rscript"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, granules: Path) -> Iterator[Running]:
    with stack_over(granules / "l3-tiles", tmp_path_factory.mktemp("new-user")) as running:
        yield running


def submitted(stack: Running, cwd: Path, package: str) -> str:
    reduction = {"package": package, "group_by": ["cell", "month"]}
    (cwd / "request.yaml").write_text(yaml.safe_dump({**LEAVES, "reduction": reduction}))
    return stack.command("submit", "request.yaml", cwd=cwd).split()[-1]


def ended(stack: Running, request: str) -> RequestStatus:
    status = stack.until_ended(request)
    assert status.state is RequestState.COMPLETE, status.message
    return status


def result(stack: Running, request: str, to: Path, name: str) -> Path:
    (found,) = [one for one in stack.client.results(request) if one.name.endswith(name)]
    assert found.name in stack.page(f"/requests/{request}")
    return stack.client.download(found, to)


def values(path: Path) -> np.ndarray[Any, Any]:
    with rasterio.open(path) as raster:
        found: np.ndarray[Any, Any] = raster.read(1)
        return found


@pytest.mark.parametrize(
    "language", ["python", *(pytest.param(one, marks=pytest.mark.proof) for one in [*NEEDS][1:])]
)
def test_from_new_to_a_result_within_five_minutes(
    stack: Running, tmp_path: Path, language: str
) -> None:
    if shutil.which(NEEDS[language]) is None:
        pytest.skip(f"{NEEDS[language]} is not installed")
    if ENGINE and language == "r":
        pytest.skip("the image has no R")
    start = time.monotonic()
    name = f"my-{language}"
    command("package", "new", name, "--language", language, cwd=tmp_path)
    if (tmp_path / name / "Makefile").is_file():
        subprocess.run(["make", "-s", "-C", name], cwd=tmp_path, check=True, timeout=60)
    command("package", "try", name, cwd=tmp_path)
    stack.command("package", "push", name, cwd=tmp_path)
    request = submitted(stack, tmp_path, name)
    ended(stack, request)
    if language == "shell":
        table = result(stack, request, tmp_path, "2012-03/r-3c-1_r-3c0/layers.csv")
        assert table.read_text().splitlines()[1].startswith("Lai_1km.tif,4,")
    else:
        march = values(result(stack, request, tmp_path, "Lai_1km_mean.2012-03.tif"))
        days = [
            values(stack.client.download(one, tmp_path))
            for one in stack.client.results(request)
            if "Lai_1km.2012-03" in one.name and one.name.endswith(".tif")
        ]
        stored = np.ma.masked_greater_equal(np.stack(days), 249) * 0.1
        expected = np.ma.filled(stored.mean(axis=0), np.nan)
        assert np.isfinite(expected).mean() > 0.2
        np.testing.assert_allclose(march, expected, rtol=1e-5)
    assert time.monotonic() - start < MOST_SECONDS


def test_an_edited_version_and_one_that_is_mended(stack: Running, tmp_path: Path) -> None:
    command("package", "new", "edited", cwd=tmp_path)
    manifest, script = (
        tmp_path / "edited" / "package.yaml",
        tmp_path / "edited" / "mean_of_days.py",
    )
    stack.command("package", "push", "edited", cwd=tmp_path)
    first = submitted(stack, tmp_path, "edited")
    ended(stack, first)

    def edit(version: str, old: str, new: str) -> None:
        text = manifest.read_text()
        manifest.write_text(
            "".join(
                f'version: "{version}"\n' if line.startswith("version:") else f"{line}\n"
                for line in text.splitlines()
            )
        )
        assert old in script.read_text()
        script.write_text(script.read_text().replace(old, new, 1))
        stack.command("package", "push", "edited", cwd=tmp_path)

    edit("2", "out.write(mean, 1)", "out.write(2 * mean, 1)")
    second = submitted(stack, tmp_path, "edited")
    ended(stack, second)
    assert "/edited@2" in stack.json(f"/api/requests/{second}")["package"]
    name = "Lai_1km_mean.2012-03.tif"
    before = values(result(stack, first, tmp_path / "1", name))
    after = values(result(stack, second, tmp_path / "2", name))
    np.testing.assert_allclose(after, 2 * before, rtol=1e-6)

    edit("3", "import numpy as np", "import numpie as np")
    third = submitted(stack, tmp_path, "edited")
    until(
        lambda: stack.client.status(third).state is RequestState.HELD,
        LIMIT,
        "the rehearsal has failed",
        stack.log,
    )
    assert "No module named 'numpie'" in unescape(stack.page(f"/requests/{third}"))
    assert stack.client.status(third).phases[Phase.REDUCTION].done == 0
    edit("4", "import numpie as np", "import numpy as np")
    fourth = stack.client.order(third, "mended").id
    ended(stack, fourth)
    assert "/edited@4" in stack.json(f"/api/requests/{fourth}")["package"]
    mended = values(result(stack, fourth, tmp_path / "4", name))
    np.testing.assert_allclose(mended, after, rtol=1e-6)


def test_the_same_in_the_weaker_sandbox(
    tmp_path: Path, granules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container, where bubblewrap does not work."""
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    command("package", "new", "confined", cwd=tmp_path)
    with started(tmp_path, granules / "l3-tiles", {"SANDBOX": "limits"}) as stack:
        stack.command("package", "push", "confined", cwd=tmp_path)
        request = submitted(stack, tmp_path, "confined")
        ended(stack, request)
        assert result(stack, request, tmp_path, "Lai_1km_mean.2012-03.tif").is_file()
        (worker,) = stack.json("/api/operations")["workers"]
        assert worker["sandbox"].startswith("limits: ")
        (run, *_) = stack.json(f"/api/requests/{request}/runs")["runs"]
        assert run["attempts"][0]["used"]["cpu_seconds"] > 0
