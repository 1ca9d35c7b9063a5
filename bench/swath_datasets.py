"""Swaths of a day onto one grid as datasets: `swathmill.load` and satpy with pyresample.

    python -m bench.swath_datasets [--rounds 3 --archive FOLDER]

Twelve synthetic granules of 1 km, three of each of four orbits, onto 0.025 degrees of EPSG:4326:
the mean of footprints, and the nearest. Both sides read granules by the engine of Swathmill, and
work in two threads of dask. satpy puts all granules into one swath and takes its resampler
`bucket_avg`, or `nearest` for each granule, of which the first with a value counts. Without satpy,
which no lock has, pyresample is called as satpy calls it. Each side makes all pixels; `by block`
hands on each block when it is made, as writing to Zarr does. Memory is the peak of a fresh process,
above what its imports take.
"""

import argparse
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial, reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bench.datasets import CORES, by_block
from bench.swath import write_passes
from bench.turns import peak_mib, take_turns
from reprojection.grid.grids import Grid, Lattice
from reprojection.read.geolocation import Geolocation
from reprojection.reproject import Options
from swathmill.xarray.load import load

GRID = Lattice(crs="EPSG:4326", resolution=0.025).snap((-75.0, 35.0, 60.0, 72.0))
PASSES = [
    (seconds, node) for node in (26.0, 1.3, -23.4, -48.1) for seconds in (600.0, 900.0, 1200.0)
]
METHODS = ("average", "nearest")
_ONCE = "--once"

Pixels = NDArray[np.floating]


def field(place: Geolocation) -> NDArray[np.int16]:
    """Return values that change smoothly over the ground."""
    smooth = np.round(50 * place.lat + 20 * np.cos(np.radians(4 * place.lon)))
    return np.asarray(smooth, np.int16)


def _loaded(paths: list[Path], method: str) -> xr.Dataset:
    return load(paths, "Value", GRID, options=Options(resampling=method, units="physical"))


def ours(paths: list[Path], method: str) -> Pixels:
    """Make all pixels by `swathmill.load`."""
    made: Pixels = _loaded(paths, method).Value[0].values
    return made


def ours_by_block(paths: list[Path], method: str) -> None:
    """Make all pixels by `swathmill.load`, and keep none."""
    by_block(_loaded(paths, method).Value.data)


def by_satpy(paths: list[Path], method: str) -> Pixels:
    """Make all pixels by satpy and pyresample."""
    area = _area(GRID)
    swaths = [xr.open_dataset(path, engine="swathmill", chunks={}) for path in paths]
    parts = [tuple(_array(one[name]) for name in ("lon", "lat", "Value")) for one in swaths]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "average":
            lon, lat, values = (da.concatenate(side) for side in zip(*parts, strict=True))
            return np.asarray(_averaged(lon, lat, values, area))
        made = [_nearest(lon, lat, values, area) for lon, lat, values in parts]
        first = reduce(lambda one, other: da.where(da.isnan(one), other, one), made)
        return np.asarray(first.compute())


def _array(held: xr.DataArray) -> Any:
    return held.data.rechunk((-1, -1))


def _area(grid: Grid) -> Any:
    from pyresample.geometry import AreaDefinition

    return AreaDefinition("all", "", "", grid.crs, grid.width, grid.height, grid.bounds)


def _scene(lon: Any, lat: Any, values: Any, area: Any, resampler: str) -> Any:
    from pyresample.geometry import SwathDefinition
    from satpy import Scene

    swath = SwathDefinition(*(xr.DataArray(one, dims=("y", "x")) for one in (lon, lat)))
    scene = Scene()
    scene["value"] = xr.DataArray(values, dims=("y", "x"), attrs={"area": swath, "name": "value"})
    options = {"radius_of_influence": 1500.0} if resampler == "nearest" else {}
    return scene.resample(area, resampler=resampler, **options)["value"].data


def _averaged(lon: Any, lat: Any, values: Any, area: Any) -> Pixels:
    if find_spec("satpy") is not None:
        return np.asarray(_scene(lon, lat, values, area, "bucket_avg").compute()).squeeze()
    from pyresample.bucket import BucketResampler

    return np.asarray(BucketResampler(area, lon, lat).get_average(values).compute())


def _nearest(lon: Any, lat: Any, values: Any, area: Any) -> Any:
    if find_spec("satpy") is not None:
        return _scene(lon, lat, values, area, "nearest")
    from pyresample.geometry import SwathDefinition
    from pyresample.kd_tree import XArrayResamplerNN

    swath = SwathDefinition(*(xr.DataArray(one, dims=("y", "x")) for one in (lon, lat)))
    resampler = XArrayResamplerNN(swath, area, radius_of_influence=1500.0)
    resampler.get_neighbour_info()
    made = resampler.get_sample_from_neighbour_info(xr.DataArray(values, dims=("y", "x")))
    return made.data


SIDES: dict[str, Callable[[list[Path], str], object]] = {
    "swathmill.load": ours,
    "by block": ours_by_block,
    "satpy": by_satpy,
}


def peak_of(name: str, method: str, archive: Path) -> float:
    """Return the memory that a fresh process takes for one side, in MiB."""
    words = [sys.executable, "-m", "bench.swath_datasets", _ONCE, name, method]
    done = subprocess.run(
        [*words, "--archive", str(archive)], check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    """Measure, and print a line for each method and side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--archive", type=Path)
    parser.add_argument(_ONCE, nargs=2)
    given = parser.parse_args()
    dask.config.set(scheduler="threads", num_workers=CORES)
    if given.once:
        side, method = given.once
        paths = sorted(given.archive.glob("*.hdf"))
        before = peak_mib()
        SIDES[side](paths, method)
        print(peak_mib() - before)
        return
    with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as folder:
        archive = given.archive or Path(folder)
        if not given.archive:
            write_passes(archive, PASSES, field)
        measure(archive, given.rounds)


def measure(archive: Path, rounds: int) -> None:
    """Let all sides take turns; print times, memory and differences."""
    paths = sorted(archive.glob("*.hdf"))
    peer = "satpy" if find_spec("satpy") else "pyresample as satpy calls it"
    print(f"{len(paths)} swaths, {GRID.width} x {GRID.height} pixels; the peer is {peer}")
    for method in METHODS:
        sides = {name: partial(side, paths, method) for name, side in SIDES.items()}
        took = take_turns(sides, rounds)
        mine = took["swathmill.load"]
        for name, one in took.items():
            print(
                f"{method:8} {name:15} {one.wall_s:7.2f} s, CPU {one.cpu_s:7.2f} s, "
                f"{one.wall_s / mine.wall_s:5.1f} and {one.cpu_s / mine.cpu_s:5.1f} times ours, "
                f"{peak_of(name, method, archive):6.0f} MiB"
            )
        print(f"{method:8} {differing(ours(paths, method), by_satpy(paths, method))}")


def differing(mine: Pixels, theirs: Pixels) -> str:
    """Say which pixels one side alone has, and by how much the values of the others differ."""
    both = ~np.isnan(mine) & ~np.isnan(theirs)
    alone = [np.mean(~np.isnan(one) & ~both) for one in (mine, theirs)]
    away = np.abs(mine[both] - theirs[both])
    median, most = np.quantile(away, [0.5, 0.99])
    return (
        f"{100 * alone[0]:.2f}% of pixels have a value in ours alone, {100 * alone[1]:.2f}% in "
        f"theirs; differences: median {median:.3g}, 99% below {most:.3g}"
    )


if __name__ == "__main__":
    main()
