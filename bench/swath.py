"""Swaths onto a grid (S1) and coarse geolocation to fine (S2), against their peers.

    python -m bench.swath

S1: three 1 km granules (8.2 million footprints: two of one orbit, one of the next) onto a MODIS
tile of 1200 x 1200 pixels, nearest footprint of each granule. The peer is pyresample's kd-tree
with its build, radius 1,500 m, one tree per granule as our rule asks, and one tree for all. S2: the
5 km geolocation of one granule to 1 km, against what is at hand of python-geotiepoints. Each side
takes what it needs from latitudes and longitudes on.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reprojection.geolocation import Geolocation
from reprojection.grids import Grid, modis_tile_grid
from reprojection.interpolation import AxisMap, interpolate_positions
from reprojection.orbit import SCAN_SECONDS, swath
from reprojection.swath import Swath, nearest
from reprojection.targets import pixel_centres

RADIUS_M = 6371007.181
REACH_M = 1500.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: seconds of both sides (a peer's are None where it is missing)."""

    case: str
    threads: int
    ours_s: float
    peer: str
    peer_s: float | None
    goal: float
    accuracy: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How many times faster than the peer."""
        return None if self.peer_s is None else self.peer_s / self.ours_s


def best(act: Callable[[], object], times: int) -> float:
    """The shortest of several runs, in seconds."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        took.append(time.perf_counter() - start)
    return min(took)


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


def s1(times: int) -> list[Row]:
    """Three granules onto tile h18v03."""
    granules = [granule(600.0, 14.0), granule(900.0, 14.0), granule(750.0, 14.0 - 24.7)]
    grid = modis_tile_grid(18, 3, 1000)

    def ours(threads: int) -> list[npt.NDArray[np.int32]]:
        targets = pixel_centres(grid)
        return [nearest(Swath.of(one), targets, threads=threads) for one in granules]

    found = ours(1)
    accuracy = s1_accuracy(granules, grid, found)
    peers = pyresample_peers(granules, grid, times)
    rows = []
    for threads in (1, 2):
        seconds = best(lambda t=threads: ours(t), times)  # type: ignore[misc]
        for peer, took in peers.items():
            rows.append(
                Row(
                    case="S1 three 1 km swaths onto 1200 x 1200",
                    threads=threads,
                    ours_s=seconds,
                    peer=peer,
                    peer_s=took,
                    goal=10.0,
                    accuracy=accuracy,
                )
            )
    return rows


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
        away, _ = cKDTree(centres).query(wanted, distance_upper_bound=20_000 / RADIUS_M)
        mine = index.ravel()[::7]
        some = mine >= 0
        own = np.linalg.norm(centres[mine[some]] - wanted[some], axis=1)
        farther = (own - away[some]) * RADIUS_M
        worst = max(worst, float(farther.max(initial=0.0)))
        seen += int(some.sum())
        # Within 500 m of a centre every footprint reaches.
        wrong += int((~some & (away < 500.0 / RADIUS_M)).sum())
    return {"farther_m": worst, "missed": float(wrong), "compared": float(seen)}


def pyresample_peers(
    granules: list[Geolocation], grid: Grid, times: int
) -> dict[str, float | None]:
    """Seconds of pyresample's kd-tree with its build, one thread."""
    names = ("pyresample kd-tree, one per granule", "pyresample kd-tree, one for all")
    if find_spec("pyresample") is None:
        return dict.fromkeys(names)
    from pyresample import kd_tree
    from pyresample.geometry import AreaDefinition, SwathDefinition

    area = AreaDefinition(
        "tile",
        "tile",
        "tile",
        "+proj=sinu +R=6371007.181 +units=m +no_defs",
        grid.width,
        grid.height,
        grid.bounds,
    )

    def search(parts: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]) -> None:
        for lon, lat in parts:
            kd_tree.get_neighbour_info(
                SwathDefinition(lon, lat), area, REACH_M, neighbours=1, nprocs=1
            )

    apart = [(one.lon, one.lat) for one in granules]
    joined = [tuple(np.concatenate(side) for side in zip(*apart, strict=True))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            names[0]: best(lambda: search(apart), times),
            names[1]: best(lambda: search([(lon, lat) for lon, lat in joined]), times),
        }


def s2(times: int) -> list[Row]:
    """406 x 271 coarse points to 2030 x 1354, scan by scan."""
    fine = granule(600.0, 14.0)
    lat = np.ascontiguousarray(fine.lat[2::5, 2::5])
    lon = np.ascontiguousarray(fine.lon[2::5, 2::5])
    rows = AxisMap(fine=2030, coarse=406, offset=2, increment=5, group=10)
    columns = AxisMap(fine=1354, coarse=lat.shape[1], offset=2, increment=5, group=1354)

    def ours() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return interpolate_positions(lat, lon, rows, columns)

    made = ours()
    off = np.linalg.norm(_vectors(*made) - _vectors(fine.lat, fine.lon), axis=-1) * RADIUS_M
    peer_s = None
    if find_spec("geotiepoints") is not None:
        from geotiepoints import modis5kmto1km

        peer_s = best(lambda: modis5kmto1km(lon, lat), times)
    return [
        Row(
            case="S2 5 km geolocation to 1 km",
            threads=1,
            ours_s=best(ours, times),
            peer="geotiepoints",
            peer_s=peer_s,
            goal=30.0,
            accuracy={"median_m": float(np.median(off)), "worst_m": float(off.max())},
        )
    ]


def _vectors(lat: npt.NDArray[np.float64], lon: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    phi, lam = np.radians(lat), np.radians(lon)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)


def run(times: int = 3) -> list[Row]:
    """All rows."""
    return [*s1(times), *s2(times)]


def main() -> None:
    """Print the table and keep it under bench/out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    rows = run(parser.parse_args().times)
    for row in rows:
        peer = "  absent" if row.peer_s is None else f"{1e3 * row.peer_s:6.0f} ms"
        ratio = "" if row.ratio is None else f"{row.ratio:6.1f}x of {row.goal:.0f}x"
        print(  # noqa: T201
            f"{row.case:40} {row.threads} thread(s) {1e3 * row.ours_s:7.1f} ms | {peer} "
            f"{row.peer:36} {ratio} {row.accuracy}"
        )
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    text = json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=2)
    (out / "swath.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
