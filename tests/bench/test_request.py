"""The parts by which `make bench ONLY=request` measures."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio

from bench.request import makers, meter
from bench.request.agree import agreement
from bench.request.cases import SCRIPTS, cases
from bench.request.ours import PROBE
from bench.request.probe import sitecustomize

ROOT = Path(__file__).parents[2]

BURN = """
import sys, time
from pathlib import Path
sys.path.append({root!r})
import sitecustomize
told = Path({told!r})
def burn():
    while sum(x for f in told.iterdir() for x in sitecustomize.read(f).values()) < 0.2:
        sum(range(10_000))
code = compile("burn()", "/x/reprojection/warp/warp.py", "exec")
exec(code)
"""


def test_every_module_that_the_sampler_knows_is_there() -> None:
    libraries = ("pyhdf/", "h5py/", "/shutil.py", "multiprocessing/", "celery/", "kombu/", "redis/")
    packages = {path.name for path in (ROOT / "worker" / "packages").glob("*/*.py")}
    for path in (path for part in sitecustomize.MODULES.values() for path in part):
        assert path in libraries or path in packages or (ROOT / path).exists(), path


def test_the_sampler_tells_what_cpu_time_is_spent_on(tmp_path: Path) -> None:
    code = BURN.format(root=str(ROOT), told=str(tmp_path))
    environment = os.environ | {"PYTHONPATH": str(PROBE), "SWATHMILL_BENCH_PROBE": str(tmp_path)}
    subprocess.run([sys.executable, "-P", "-c", code], env=environment, check=True, timeout=120)
    (told,) = (sitecustomize.read(str(path)) for path in tmp_path.iterdir())
    assert told["kernel"] > told["worker, other"]
    assert 0 < told["sampler"] < told["kernel"]
    assert told["decode"] == told["encode"] == 0


def test_cpu_time_is_that_of_grandchildren_too() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])"
    spent = meter.measure(lambda: subprocess.run([sys.executable, "-c", code], check=True))
    assert spent.cpu_s >= 0.3


def test_cpu_time_of_living_descendants_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    before = meter.cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert meter.cpu_seconds() - before >= 0.29
        process.kill()


def raster(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    profile = {"driver": "GTiff", "count": 1, "dtype": "uint8", "nodata": 255, "crs": "EPSG:4326"}
    shape = {"height": values.shape[0], "width": values.shape[1]}
    transform = rasterio.Affine(0.01, 0, 1.0, 0, -0.01, 51.0)
    with rasterio.open(path, "w", **profile, **shape, transform=transform) as dataset:
        dataset.write(values, 1)


def test_pixels_are_compared_except_between_two_source_pixels(tmp_path: Path) -> None:
    values = np.full((10, 4), 7, np.uint8)
    raster(tmp_path / "ours" / "a" / "X.005.Lai_1km.2012-01-09.tif", values)
    # Of 120 source rows in a degree and 100 of ours, each fifth of ours lies on an edge.
    values[2::5] = 9
    raster(tmp_path / "script" / "Lai_1km.A2012009.tif", values)
    assert agreement(tmp_path / "ours", tmp_path / "script", 100, 1200) == (1, 1.0)
    values[3, 0] = 8
    values[3, 1] = 250  # a code: no value
    raster(tmp_path / "script" / "Lai_1km.A2012009.tif", values)
    rasters, share = agreement(tmp_path / "ours", tmp_path / "script", 100, 1200)
    assert rasters == 1
    assert share == pytest.approx(1 - 2 / 32)


def test_a_raster_of_one_side_only_is_no_comparison(tmp_path: Path) -> None:
    raster(tmp_path / "ours" / "X.005.Lai_1km.2012-01-09.tif", np.ones((2, 2), np.uint8))
    (tmp_path / "script").mkdir()
    with pytest.raises(RuntimeError, match=r"one side only: \['Lai_1km.A2012009.tif'\]"):
        agreement(tmp_path / "ours", tmp_path / "script", 100, 1200)


def test_each_case_has_its_script_and_a_warm_up_of_other_days() -> None:
    for case in cases().values():
        assert (SCRIPTS / case.script).is_file()
        assert case.warm_up.products == case.request.products
        assert case.warm_up.time.end < case.request.time.start


def test_the_table_of_what_makers_cost_has_the_median_of_pairs() -> None:
    pairs = [(11.0, 10.0), (10.2, 10.0), (30.0, 20.0)]  # the median of ratios, not of sums
    assert makers.table(pairs).splitlines()[-1] == "| median | 11.00 | 10.00 | +10.0% |"


IN_CHILD = """
import os, sys
from types import SimpleNamespace
import worker.slots.child as child
from reprojection.read import kept

said = []
child.perform = lambda *given: said.append(given)
apart = child.Apart
pid = os.fork()
if pid == 0:
    given = SimpleNamespace(settings=SimpleNamespace(attempt_memory_gb=4))
    child.perform("job", given, "tell", "blobs", "begun", "makers")
    right = said == [("job", given, "tell", "blobs", "begun")] and kept._STORE._bound > 0
    os._exit(0 if right and child.Apart is apart else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_children_open_granules_themselves_where_makers_are_measured() -> None:
    """Without this both sides would be the same. A worker's test of itself still finds makers."""
    environment = os.environ | makers.IN_CHILD
    environment["PYTHONPATH"] += f"{os.pathsep}{ROOT}"
    subprocess.run([sys.executable, "-c", IN_CHILD], env=environment, check=True, timeout=120)
