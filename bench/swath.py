"""Swaths onto a grid (S1, S3) and coarse geolocation to fine (S2), against their peers.

    python -m bench.swath [--rounds N]

S1: three 1 km granules (8.2 million footprints: two of one orbit, one of the next, all of which
reach the tile) onto a MODIS tile of 1200 x 1200 pixels, nearest footprint of each granule. The peer
is pyresample's kd-tree with its build, radius 1,500 m: one tree for all, and one per granule as our
rule asks. Its tree searches with OpenMP, which takes all processors unless told otherwise as the
process starts: each number of threads has a process of its own, and both sides that many. S2: the
5 km geolocation of one granule to 1 km, against python-geotiepoints. Each side takes what it needs
from latitudes and longitudes on; all take turns and are judged by medians.

S3: the mean of all footprints of one 1 km granule in each pixel of 0.1 degrees, through `reproject`
of a file that is held open, against pyresample's bucket average (needs dask), which counts a
footprint whole where its centre lies.

Memory: the three granules as files, through `reproject`, in a process of its own; its peak above
what its imports take, beside the bound: decoded layers with geolocation, output, and 64 MiB.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.turns import Took, peak_mib, take_turns
from modis.sphere import SPHERE_RADIUS
from reprojection.grid.grids import Grid, Lattice, modis_tile_grid
from reprojection.grid.orbit import SCAN_SECONDS, swath
from reprojection.grid.targets import pixel_centres
from reprojection.read.geolocation import Geolocation
from reprojection.read.interpolation import AxisMap, interpolate_positions
from reprojection.reproject import KEPT_BYTES, Options, keep_granules, reproject
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    SwathToWrite,
    write_granule,
)
from reprojection.warp.swath import Swath, nearest

REACH_M = 1500.0
PASSES = ((600.0, 26.0), (900.0, 26.0), (750.0, 1.3))
"""Seconds after the equator and node longitude of each granule."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: ours against one peer (None where it is not installed)."""

    case: str
    threads: int
    ours: Took
    peer: str
    theirs: Took | None
    goal: float
    accuracy: dict[str, float] = field(default_factory=dict)

    @property
    def ratios(self) -> tuple[float, float] | None:
        """The speed relative to the peer, by wall clock and by CPU time."""
        if self.theirs is None:
            return None
        return self.theirs.wall_s / self.ours.wall_s, self.theirs.cpu_s / self.ours.cpu_s


def granule(seconds: float, node: float) -> Geolocation:
    """203 scans of ten 1 km lines, with the bow-tie."""
    scans = seconds + (np.arange(203) + 0.5) * SCAN_SECONDS
    off = np.tile(np.arange(10) - 4.5, 203)
    place = swath(np.repeat(scans, 10), np.arange(1354.0), node, off)
    return Geolocation(
        lat=place.lat,
        lon=place.lon,
        sensor_zenith=place.sensor_zenith.astype(np.float32),
        scan_lines=10,
    )


def s1(threads: int, rounds: int) -> list[Row]:
    """Three granules onto tile h18v03, in a process that began with so many OpenMP threads."""
    granules = [granule(*one) for one in PASSES]
    grid = modis_tile_grid(18, 3, 1000)

    def ours() -> list[npt.NDArray[np.int32]]:
        targets = pixel_centres(grid)
        return [nearest(Swath.of(one), targets, threads=threads) for one in granules]

    accuracy = s1_accuracy(granules, grid, ours())
    peers = pyresample_peers(granules, grid)
    acts = {name: act for name, act in peers.items() if act is not None}
    took = take_turns({"ours": ours, **acts}, rounds)
    return [
        Row(
            case="S1 three 1 km swaths onto 1200 x 1200",
            threads=threads,
            ours=took["ours"],
            peer=peer,
            theirs=took.get(peer),
            goal=10.0,
            accuracy=accuracy,
        )
        for peer in peers
    ]


def s1_apart(threads: int, rounds: int) -> list[Row]:
    """The same from a process of its own."""
    command = [sys.executable, "-m", "bench.swath", f"--rounds={rounds}", f"--threads={threads}"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return [_row(document) for document in json.loads(done.stdout)]


def _row(document: dict[str, Any]) -> Row:
    times = {side: document[side] and Took(**document[side]) for side in ("ours", "theirs")}
    return Row(**(document | times))


def s1_accuracy(
    granules: list[Geolocation], grid: Grid, found: list[npt.NDArray[np.int32]]
) -> dict[str, float]:
    """Against scipy's exact kd-tree on 3-D chords: how much farther, in metres, and the mask."""
    from scipy.spatial import cKDTree

    targets = pixel_centres(grid)
    wanted = _vectors(*np.broadcast_arrays(targets.lat, targets.lon)).reshape(-1, 3)[::7]
    worst, wrong, seen = 0.0, 0, 0
    for one, index in zip(granules, found, strict=True):
        centres = _vectors(one.lat, one.lon).reshape(-1, 3)
        away, _ = cKDTree(centres).query(wanted, distance_upper_bound=20_000 / SPHERE_RADIUS)
        mine = index.ravel()[::7]
        some = mine >= 0
        own = np.linalg.norm(centres[mine[some]] - wanted[some], axis=1)
        farther = (own - away[some]) * SPHERE_RADIUS
        worst = max(worst, float(farther.max(initial=0.0)))
        seen += int(some.sum())
        # Within 500 m of a centre every footprint reaches.
        wrong += int((~some & (away < 500.0 / SPHERE_RADIUS)).sum())
    return {"farther_m": worst, "missed": float(wrong), "compared": float(seen)}


def pyresample_peers(
    granules: list[Geolocation], grid: Grid
) -> dict[str, Callable[[], object] | None]:
    """pyresample's kd-tree with its build."""
    names = ("pyresample, one tree for all", "pyresample, a tree per granule")
    if find_spec("pyresample") is None:
        return dict.fromkeys(names)
    from pyresample import kd_tree
    from pyresample.geometry import AreaDefinition, SwathDefinition

    area = AreaDefinition(
        "tile",
        "tile",
        "tile",
        f"+proj=sinu +R={SPHERE_RADIUS} +units=m +no_defs",
        grid.width,
        grid.height,
        grid.bounds,
    )

    def search(parts: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for lon, lat in parts:
                kd_tree.get_neighbour_info(
                    SwathDefinition(lon, lat), area, REACH_M, neighbours=1, nprocs=1
                )

    apart = [(one.lon, one.lat) for one in granules]
    lon, lat = (np.concatenate(side) for side in zip(*apart, strict=True))
    return {names[0]: lambda: search([(lon, lat)]), names[1]: lambda: search(apart)}


def s2(rounds: int) -> list[Row]:
    """406 x 271 coarse points to 2030 x 1354, scan by scan."""
    fine = granule(600.0, 14.0)
    lat = np.ascontiguousarray(fine.lat[2::5, 2::5])
    lon = np.ascontiguousarray(fine.lon[2::5, 2::5])
    rows = AxisMap(fine=2030, coarse=406, offset=2, increment=5, group=10)
    columns = AxisMap(fine=1354, coarse=lat.shape[1], offset=2, increment=5, group=1354)

    def ours() -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
        return interpolate_positions(lat, lon, rows, columns)

    sides: dict[str, Callable[[], object]] = {"ours": ours}
    if find_spec("geotiepoints") is not None:
        from geotiepoints import modis5kmto1km

        sides["geotiepoints"] = lambda: modis5kmto1km(lon, lat)
    took = take_turns(sides, rounds)
    made = [np.asarray(side, np.float64) for side in ours()]
    off = np.linalg.norm(_vectors(*made) - _vectors(fine.lat, fine.lon), axis=-1) * SPHERE_RADIUS
    return [
        Row(
            case="S2 5 km geolocation to 1 km",
            threads=1,
            ours=took["ours"],
            peer="geotiepoints",
            theirs=took.get("geotiepoints"),
            goal=30.0,
            accuracy={"median_m": float(np.median(off)), "worst_m": float(off.max())},
        )
    ]


def s3(rounds: int) -> list[Row]:
    """The exact average of one granule at 0.1 degrees."""
    place = granule(*PASSES[0])
    bounds = (place.lon.min(), place.lat.min(), place.lon.max(), place.lat.max())
    grid = Lattice(crs="EPSG:4326", resolution=0.1).snap(bounds)
    peer = "pyresample, bucket average"
    with tempfile.TemporaryDirectory() as name:
        (path,) = write_passes(Path(name), PASSES[:1])
        keep_granules(KEPT_BYTES)
        sides: dict[str, Callable[[], object]] = {
            "ours": lambda: reproject([path], "Value", grid, Options(resampling="average"))
        }
        if find_spec("pyresample") is not None and find_spec("dask") is not None:
            sides[peer] = _bucket_average(place, grid)
        took = take_turns(sides, rounds)
        keep_granules(0)
    return [
        Row(
            case=f"S3 average of a 1 km swath onto {grid.width} x {grid.height}",
            threads=1,
            ours=took["ours"],
            peer=peer,
            theirs=took.get(peer),
            goal=0.0,
        )
    ]


def _bucket_average(place: Geolocation, grid: Grid) -> Callable[[], object]:
    import dask
    import dask.array
    from pyresample.bucket import BucketResampler
    from pyresample.geometry import AreaDefinition

    shape = grid.width, grid.height
    area = AreaDefinition("all", "all", "all", "EPSG:4326", *shape, grid.bounds)
    values = (np.arange(place.lat.size) % 9973).reshape(place.lat.shape).astype(np.float64)

    def average() -> object:
        lon, lat, data = (dask.array.from_array(one, -1) for one in (place.lon, place.lat, values))
        with dask.config.set(scheduler="synchronous"):
            return BucketResampler(area, lon, lat).get_average(data).compute()

    return average


def _vectors(lat: npt.NDArray[np.float64], lon: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    phi, lam = np.radians(lat), np.radians(lon)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)


def _counted(place: Geolocation) -> npt.NDArray[np.int16]:
    return (np.arange(place.lat.size) % 9973).astype(np.int16).reshape(place.lat.shape)


def write_passes(
    folder: Path,
    passes: Sequence[tuple[float, float]] = PASSES,
    field_of: Callable[[Geolocation], npt.NDArray[np.int16]] = _counted,
) -> list[Path]:
    """Write granules as files of one int16 layer; by default those of S1."""
    paths = []
    for number, one in enumerate(passes):
        place = granule(*one)
        start = datetime(2012, 6, 1, 12, 5 * number, tzinfo=UTC)
        name = f"MYD99_L2.A{start:%Y%j.%H%M}.061.2012170000000.hdf"
        dims = ("Lines", "Pixels")
        made = GranuleToWrite(
            local_name=name,
            product="MYD99_L2",
            collection=61,
            start=start,
            end=start + timedelta(minutes=5),
            produced=start + timedelta(days=20),
            day_night="Day",
            ring=[
                (float(place.lon[at]), float(place.lat[at]))
                for at in ((-1, 0), (0, 0), (0, -1), (-1, -1))
            ],
            structure=SwathToWrite(
                name="Swath",
                geo_fields=[
                    FieldToWrite(name="Latitude", values=place.lat.astype(np.float32), dims=dims),
                    FieldToWrite(name="Longitude", values=place.lon.astype(np.float32), dims=dims),
                ],
                data_fields=[
                    FieldToWrite(
                        name="Value",
                        values=field_of(place),
                        dims=dims,
                        typed={"_FillValue": -9999},
                    )
                ],
            ),
        )
        write_granule(folder / name, made)
        paths.append(folder / name)
    return paths


def peak_of_files(folder: Path) -> dict[str, float]:
    """MiB that `reproject` of the files in a folder took above this process's imports."""
    before = peak_mib()
    paths = sorted(folder.glob("*.hdf"))
    made = reproject(paths, "Value", modis_tile_grid(18, 3, 1000), Options())
    peak = peak_mib() - before
    # Stored values, a reason each, and latitude, longitude and zenith.
    decoded = len(paths) * 2030 * 1354 * (2 + 1 + 8 + 8 + 4) / 2**20
    bound = decoded + made.data.nbytes / 2**20 + 64
    return {"peak_mib": round(peak, 1), "bound_mib": round(bound, 1)}


def memory() -> dict[str, float]:
    """The same from a fresh process."""
    with tempfile.TemporaryDirectory() as name:
        write_passes(Path(name))
        command = [sys.executable, "-m", "bench.swath", "--peak", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, float] = json.loads(done.stdout)
        return found


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| case | threads | Swathmill ms | CPU ms | peer | ms | CPU ms | ratio | by CPU | goal |",
        "|---|--:|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        theirs, ratios = row.theirs, row.ratios
        peer = f"{1e3 * theirs.wall_s:.0f} | {1e3 * theirs.cpu_s:.0f}" if theirs else "absent | "
        times = f"{ratios[0]:.1f} | {ratios[1]:.1f}" if ratios else " | "
        lines.append(
            f"| {row.case} | {row.threads} | {1e3 * row.ours.wall_s:.1f} | "
            f"{1e3 * row.ours.cpu_s:.1f} | {row.peer} | {peer} | {times} | {row.goal:g} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table and keep it under bench/out."""
    parser = argparse.ArgumentParser(description="Swath search and geolocation against peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        sys.stdout.write(json.dumps(peak_of_files(options.peak)))
        return
    if options.threads:
        rows = s1(options.threads, options.rounds)
        sys.stdout.write(json.dumps([asdict(row) for row in rows]))
        return
    rows = [
        row
        for part in (
            *(s1_apart(threads, options.rounds) for threads in (1, 2)),
            s2(options.rounds),
            s3(options.rounds),
        )
        for row in part
    ]
    held = memory()
    sys.stdout.write(f"{table(rows)}\n")
    for row in {row.case: row for row in rows}.values():
        sys.stdout.write(f"{row.case}: {row.accuracy}\n")
    sys.stdout.write(f"memory of S1 from files: {held}\n")
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    document = {"rows": [{**asdict(row), "ratios": row.ratios} for row in rows], "memory": held}
    (out / "swath.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
