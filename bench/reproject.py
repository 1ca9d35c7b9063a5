"""Grid to grid: Swathmill against rasterio, on the same arrays in one run.

    python -m bench.reproject [--quick] [--cases G1 G3 ...] [--threads N]

Both sides write to arrays allocated beforehand, take turns, and are judged by their medians;
rasterio has `warp_mem_limit=512`, without which it is up to twice slower. Accuracy is measured
against float64 PROJ at every pixel (nearest: the share of pixels that differ and are no ties).
Peak memory is what a fresh process takes above its imports and its arrays. The swath and
end-to-end cases have their own modules, `bench.swath` and `bench.end_to_end`.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.warp import Resampling
from rasterio.warp import reproject as peer_reproject

from reprojection.blocks import plan_blocks
from reprojection.coordinates import Coordinates, SourceSpace, exact_coordinates, plan_rows
from reprojection.grids import Grid, Lattice, modis_tile_grid, project_bounds
from reprojection.places import Chunk, centres
from reprojection.warp import Method, Source, warp

FILL = -28672
OUT = Path(__file__).parent / "out" / "reproject.json"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One comparison. `resolution` is in target CRS units, `goal` the ratio asked for."""

    name: str
    tiles: tuple[tuple[int, int], ...]
    metres: int
    crs: str
    resolution: float
    method: Method
    goal: float
    bands: int = 1
    box: tuple[float, float, float, float] | None = None


NORTH = ((18, 4),)
CASES = (
    Case(name="G1", tiles=NORTH, metres=500, crs="EPSG:4326", resolution=1 / 240,
         method="nearest", goal=25, box=(0, 40, 15.56, 50)),
    Case(name="G1x7", tiles=NORTH, metres=500, crs="EPSG:4326", resolution=1 / 240,
         method="nearest", goal=20, bands=7, box=(0, 40, 15.56, 50)),
    Case(name="G2", tiles=NORTH, metres=500, crs="EPSG:4326", resolution=1 / 240,
         method="bilinear", goal=25, box=(0, 40, 15.56, 50)),
    Case(name="G3n", tiles=NORTH, metres=250, crs="EPSG:32632", resolution=231.656358,
         method="nearest", goal=18),
    Case(name="G3b", tiles=NORTH, metres=250, crs="EPSG:32632", resolution=231.656358,
         method="bilinear", goal=15),
    Case(name="G3c", tiles=NORTH, metres=250, crs="EPSG:32632", resolution=231.656358,
         method="cubic", goal=15),
    Case(name="G4", tiles=((18, 3), (19, 3), (18, 4), (19, 4)), metres=500, crs="EPSG:4326",
         resolution=1 / 240, method="nearest", goal=20, box=(5, 45, 25, 55)),
    Case(name="G5", tiles=((10, 5),), metres=500, crs="EPSG:5070", resolution=1853.2508663,
         method="gdal-average", goal=6, box=(-117, 30, -92, 40)),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one case took: milliseconds, source pixels of error, MiB above imports and arrays."""

    case: str
    method: str
    bands: int
    megapixels: float
    ours_ms: float
    rasterio_ms: float
    ratio: float
    goal: float
    worst_coordinate_error: float
    nearest_wrong: float | None
    ours_peak_mib: float
    rasterio_peak_mib: float


def made(case: Case) -> tuple[list[Source], Grid, Grid]:
    """A case's tiles of random int16 with a tenth of fill, their mosaic's grid, and its target."""
    rng = np.random.default_rng(2012)
    sources = []
    for h, v in case.tiles:
        grid = modis_tile_grid(h, v, case.metres)
        bands = []
        for _ in range(case.bands):
            pixels = rng.integers(0, 10000, grid.shape, dtype=np.int16)
            pixels[rng.random(grid.shape, dtype=np.float32) < 0.1] = FILL
            bands.append(pixels)
        sources.append(Source(bands=bands, grid=grid))
    hs, vs = [h for h, _ in case.tiles], [v for _, v in case.tiles]
    first = modis_tile_grid(min(hs), min(vs), case.metres)
    whole = Grid(
        crs=first.crs,
        transform=first.transform,
        width=first.width * (max(hs) - min(hs) + 1),
        height=first.height * (max(vs) - min(vs) + 1),
    )
    box = case.box or (0.0, 40.0, 14.0, 50.0)
    target = Lattice(crs=case.crs, resolution=case.resolution).snap(project_bounds(box, case.crs))
    return sources, whole, target


def mosaic_of(case: Case, sources: list[Source], whole: Grid) -> NDArray[np.int16]:
    """The tiles as the one array that rasterio needs; making it is not on its clock."""
    array = np.full((case.bands, *whole.shape), FILL, np.int16)
    space = SourceSpace.of(whole)
    left, top = space.offset(whole)
    for source in sources:
        col, row = space.offset(source.grid)
        for number, band in enumerate(source.bands):
            place = array[number, row - top :, col - left :]
            place[: source.grid.height, : source.grid.width] = band
    return array


def contenders(
    case: Case, threads: int
) -> tuple[Callable[[], object], Callable[[], object], NDArray[np.int16]]:
    """Ours and rasterio's warp of a case, and the array ours writes to."""
    sources, whole, target = made(case)
    ours = np.empty((case.bands, *target.shape), np.int16)
    theirs = np.empty_like(ours)
    mosaic = mosaic_of(case, sources, whole)
    source_crs, target_crs = CRS.from_wkt(whole.crs), CRS.from_user_input(case.crs)
    resampling = Resampling[case.method.removeprefix("gdal-")]

    def mine() -> object:
        return warp(sources, target, case.method, fill=FILL, threads=threads, out=ours)

    def peer() -> object:
        return peer_reproject(
            mosaic,
            theirs,
            src_transform=rasterio.Affine(*whole.transform),
            src_crs=source_crs,
            src_nodata=FILL,
            dst_transform=rasterio.Affine(*target.transform),
            dst_crs=target_crs,
            dst_nodata=FILL,
            resampling=resampling,
            warp_mem_limit=512,
            num_threads=threads,
        )

    return mine, peer, ours


def accuracy(case: Case, made_by_us: NDArray[np.int16]) -> tuple[float, float | None]:
    """Worst coordinate error in source pixels, and the share of wrong nearest pixels."""
    sources, whole, target = made(case)
    space = SourceSpace.of(whole)
    coordinates = Coordinates(grid=target, space=space)
    plan = plan_rows(coordinates) if coordinates.is_rowwise else plan_blocks(coordinates)
    mosaic = mosaic_of(case, sources, whole)[0] if case.method == "nearest" else None
    left, top = space.offset(whole)
    worst, wrong = 0.0, 0
    for start in range(0, target.height, 512):
        rows = np.arange(start, min(start + 512, target.height))
        chunk = Chunk(top=start, bottom=start + len(rows), left=0, right=target.width)
        exact = np.stack(
            exact_coordinates(target, space, rows[:, None], np.arange(target.width)[None, :]), -1
        )
        worst = max(worst, float(np.nanmax(np.abs(centres(plan, chunk, quick=True) - exact))))
        if mosaic is None:
            continue
        at = np.floor(exact - (left, top)).astype(np.int64)
        inside = ((at >= 0) & (at < (whole.width, whole.height))).all(axis=-1)
        picked = mosaic[at[..., 1].clip(0, whole.height - 1), at[..., 0].clip(0, whole.width - 1)]
        wanted = np.where(inside, picked, FILL)
        tie = (np.abs(exact - np.rint(exact)) < 1e-4).any(axis=-1)
        wrong += int(((made_by_us[0][rows] != wanted) & ~tie).sum())
    return worst, None if mosaic is None else wrong / (target.width * target.height)


def peak_memory(case: Case, side: str, threads: int) -> float:
    """MiB a fresh process takes for one warp above its imports and its arrays."""
    command = [sys.executable, "-m", "bench.reproject", "--peak", case.name, side]
    done = subprocess.run(
        [*command, "--threads", str(threads)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def measure_peak(case: Case, side: str, threads: int) -> float:
    """The growth of this process's peak over one warp, its arrays touched beforehand."""
    mine, peer, ours = contenders(case, threads)
    ours[:] = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (mine if side == "ours" else peer)()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def measure(case: Case, rounds: int, threads: int) -> Result:
    """One case, both sides taking turns."""
    mine, peer, ours = contenders(case, threads)
    mine()
    peer()
    times: dict[str, list[float]] = {"ours": [], "rasterio": []}
    for _ in range(rounds):
        for name, side in (("ours", mine), ("rasterio", peer)):
            start = time.perf_counter()
            side()
            times[name].append((time.perf_counter() - start) * 1000)
    took = {name: statistics.median(values) for name, values in times.items()}
    worst, wrong = accuracy(case, ours)
    return Result(
        case=case.name,
        method=case.method,
        bands=case.bands,
        megapixels=round(ours[0].size / 1e6, 1),
        ours_ms=round(took["ours"], 2),
        rasterio_ms=round(took["rasterio"], 1),
        ratio=round(took["rasterio"] / took["ours"], 1),
        goal=case.goal,
        worst_coordinate_error=float(f"{worst:.2g}"),
        nearest_wrong=wrong,
        ours_peak_mib=round(peak_memory(case, "ours", threads), 1),
        rasterio_peak_mib=round(peak_memory(case, "rasterio", threads), 1),
    )


def table(results: list[Result]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| case | method | Mpx | Swathmill ms | rasterio ms | ratio | goal | worst error px | "
        "nearest wrong | peak MiB, ours | rasterio |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for r in results:
        wrong = "" if r.nearest_wrong is None else f"{r.nearest_wrong:.1e}"
        lines.append(
            f"| {r.case} | {r.method} | {r.megapixels} | {r.ours_ms} | {r.rasterio_ms} | "
            f"{r.ratio} | {r.goal:g} | {r.worst_coordinate_error} | {wrong} | "
            f"{r.ours_peak_mib} | {r.rasterio_peak_mib} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the cases, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description="Grid to grid against rasterio")
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine")
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak", nargs=2, metavar=("CASE", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    by_name = {case.name: case for case in CASES}
    if options.peak:
        name, side = options.peak
        sys.stdout.write(f"{measure_peak(by_name[name], side, options.threads)}\n")
        return
    chosen = [by_name[name] for name in options.cases or by_name]
    results = [measure(case, 3 if options.quick else 9, options.threads) for case in chosen]
    sys.stdout.write(table(results) + "\n")
    OUT.parent.mkdir(exist_ok=True)
    document = {"threads": options.threads, "results": [asdict(result) for result in results]}
    OUT.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
