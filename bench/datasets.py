"""Tiles of many dates onto one grid as datasets: `swathmill.load`, rioxarray and odc-geo.

    python -m bench.datasets [--dates 8 --rounds 3 --archive FOLDER]

Synthetic reflectances, four tiles of 2400 x 2400 a date, three layers, nearest, onto EPSG:4326 at
0.0045 degrees. All sides read granules by the engine of Swathmill, since wheels of GDAL read no
HDF4, and give float32 with NaN; the peers join the tiles of a date first. rioxarray takes a date
and layer at a time, the others what dask makes of it. Each side makes all pixels and keeps those of
one date and layer at a time; "by block" hands on each block when it is made, as writing to Zarr
does. Peak memory is that of a fresh process, above what its imports take. Pixels are compared on
the first date; a centre on the edge of two source pixels may fall to either.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import odc.geo.xr  # noqa: F401
import rioxarray  # noqa: F401
import xarray as xr
from numpy.typing import NDArray

from bench.request.granules import reflectance
from bench.turns import peak_mib, take_turns
from reprojection.grid.grids import Grid, Lattice
from reprojection.reproject import Options
from swathmill.xarray.load import load

LAYERS = [f"sur_refl_b0{n}" for n in (1, 2, 3)]
GRID = Lattice(crs="EPSG:4326", resolution=0.0045).snap((-69.9975, -9.999, -50.805, 9.999))
CORES = 2
_ONCE = "--once"

Pixels = NDArray[np.float32]


def days_of(archive: Path, dates: int) -> list[list[Path]]:
    """Return the tiles of each of the first dates of 2012."""
    found: dict[str, list[Path]] = {}
    for path in sorted(archive.glob("MOD09A1.A2012*.hdf")):
        found.setdefault(path.name.split(".")[1], []).append(path)
    return list(found.values())[:dates]


def _loaded(days: list[list[Path]], grid: Grid) -> xr.Dataset:
    options = Options(resampling="nearest", units="physical")
    paths = [path for day in days for path in day]
    return load(paths, LAYERS, grid, options=options)


def ours(days: list[list[Path]], grid: Grid) -> Iterator[Pixels]:
    """Make all pixels by `swathmill.load`."""
    found = _loaded(days, grid)
    for number in range(len(days)):
        for layer in LAYERS:
            yield found[layer][number].values


class _Sink:
    """Takes pixels and keeps none."""

    def __setitem__(self, at: object, pixels: object) -> None:
        pass


def by_block(*stacks: da.Array) -> None:
    """Make all pixels and keep none."""
    sinks: list[Any] = [_Sink() for _ in stacks]
    da.store(list(stacks), sinks, lock=False)


def ours_by_block(days: list[list[Path]], grid: Grid) -> Iterator[Pixels]:
    """Make all pixels by `swathmill.load`, and keep none."""
    found = _loaded(days, grid)
    by_block(*(found[layer].data for layer in LAYERS))
    return iter(())


def joined(day: list[Path], layer: str, chunks: dict[str, int] | None) -> xr.DataArray:
    """Open the tiles of a date as one array."""
    parts = [
        xr.open_dataset(
            path, engine="swathmill", chunks=chunks, backend_kwargs={"layers": [layer]}
        ).isel(time=0, drop=True)
        for path in day
    ]
    whole = xr.combine_by_coords(parts, combine_attrs="drop_conflicts")
    return whole[layer]


def by_rioxarray(days: list[list[Path]], grid: Grid) -> Iterator[Pixels]:
    """Make all pixels by rioxarray, a date and layer at a time."""
    like = grid.geobox
    for day in days:
        for layer in LAYERS:
            moved = joined(day, layer, None).rio.reproject(
                str(like.crs),
                transform=like.affine,
                shape=like.shape,
                resampling=0,
                num_threads=CORES,
            )
            yield moved.values


def by_odc(days: list[list[Path]], grid: Grid) -> Iterator[Pixels]:
    """Make all pixels by odc-geo, in chunks of dask."""
    for day in days:
        for layer in LAYERS:
            whole = joined(day, layer, {})
            yield whole.odc.reproject(grid.geobox, resampling="nearest").values


SIDES: dict[str, Callable[[list[list[Path]], Grid], Iterator[Pixels]]] = {
    "swathmill.load": ours,
    "by block": ours_by_block,
    "rioxarray": by_rioxarray,
    "odc-geo": by_odc,
}


def make_all(name: str, days: list[list[Path]]) -> float:
    """Make all pixels by one side; return the sum of their means."""
    return sum(float(np.nanmean(pixels)) for pixels in SIDES[name](days, GRID))


def peak_of(name: str, archive: Path, dates: int) -> float:
    """Return the memory that a fresh process takes for one side, in MiB."""
    words = [sys.executable, "-m", "bench.datasets", _ONCE, name]
    words += ["--archive", str(archive), "--dates", str(dates)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def differing(days: list[list[Path]]) -> dict[str, float]:
    """Return the share of pixels of the first date in which each peer differs from ours."""
    shares = {}
    mine = list(ours(days[:1], GRID))
    for name in ("rioxarray", "odc-geo"):
        theirs = SIDES[name](days[:1], GRID)
        unlike = [
            np.mean(~((one == other) | (np.isnan(one) & np.isnan(other))))
            for one, other in zip(mine, theirs, strict=True)
        ]
        shares[name] = float(np.mean(unlike))
    return shares


def main() -> None:
    """Measure, and print a line for each side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dates", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--archive", type=Path)
    parser.add_argument(_ONCE, choices=SIDES)
    given = parser.parse_args()
    dask.config.set(scheduler="threads", num_workers=CORES)
    if given.once:
        days = days_of(given.archive, given.dates)
        before = peak_mib()
        make_all(given.once, days)
        print(peak_mib() - before)
        return
    with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as folder:
        archive = given.archive or Path(folder)
        if not given.archive:
            reflectance(archive, None)
        measure(archive, given.dates, given.rounds)


def measure(archive: Path, dates: int, rounds: int) -> None:
    """Let all sides take turns; print times, memory and differences."""
    days = days_of(archive, dates)
    took = take_turns({name: partial(make_all, name, days) for name in SIDES}, rounds)
    unlike = differing(days)
    mine = took["swathmill.load"]
    print(f"{len(days)} dates, {len(LAYERS)} layers, {GRID.width} x {GRID.height} pixels")
    for name, one in took.items():
        print(
            f"{name:15} {one.wall_s:7.2f} s, CPU {one.cpu_s:7.2f} s, "
            f"{one.wall_s / mine.wall_s:5.1f} and {one.cpu_s / mine.cpu_s:5.1f} times ours, "
            f"{peak_of(name, archive, dates):6.0f} MiB, "
            f"{100 * unlike.get(name, 0.0):.3f}% of pixels differ"
        )


if __name__ == "__main__":
    main()
