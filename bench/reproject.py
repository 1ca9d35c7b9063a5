"""Grid to grid: Swathmill against rasterio, on the same arrays in one run.

    python -m bench.reproject [--rounds N] [--cases G1 G3n ...]

Both sides write to arrays allocated beforehand, with one thread and with two, take turns, and are
judged by their medians; rasterio has `warp_mem_limit=512`, without which it is up to twice slower.
Accuracy is measured against float64 PROJ at every pixel (nearest: the share of pixels that differ
and are no ties). Peak memory is that of a fresh process which loads the layers and warps once,
above what its imports take; the bound is layers, output and 64 MiB. The swath and end-to-end cases
have their own modules, `bench.swath` and `bench.end_to_end`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.warp import Resampling
from rasterio.warp import reproject as peer_reproject

from bench.turns import Took, peak_mib, take_turns
from reprojection.grid.blocks import plan_blocks
from reprojection.grid.coordinates import Coordinates, SourceSpace, exact_coordinates, plan_rows
from reprojection.grid.covering import project_bounds
from reprojection.grid.grids import Grid, Lattice, modis_tile_grid
from reprojection.grid.pixel_coordinates import Chunk, centres
from reprojection.resampling import Method
from reprojection.warp.warp import SourceTile, warp

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
    """What one case took with a number of threads; memory in MiB above what imports take.

    `worst_error` is in source pixels, `nearest_wrong` the share of pixels that differ from the
    exact nearest and are no ties.
    """

    case: str
    method: str
    bands: int
    threads: int
    megapixels: float
    ours: Took
    rasterio: Took
    goal: float
    worst_error: float
    nearest_wrong: float | None
    peak_mib: float
    bound_mib: float
    rasterio_peak_mib: float

    @property
    def ratios(self) -> tuple[float, float]:
        """The speed relative to rasterio, by wall clock and by CPU time."""
        return (
            self.rasterio.wall_s / self.ours.wall_s,
            self.rasterio.cpu_s / self.ours.cpu_s,
        )


def made(case: Case) -> list[SourceTile]:
    """A case's tiles of random int16 with a tenth of fill."""
    rng = np.random.default_rng(2012)
    sources = []
    for h, v in case.tiles:
        grid = modis_tile_grid(h, v, case.metres)
        bands = []
        for _ in range(case.bands):
            pixels = rng.integers(0, 10000, grid.shape, dtype=np.int16)
            pixels[rng.random(grid.shape, dtype=np.float32) < 0.1] = FILL
            bands.append(pixels)
        sources.append(SourceTile(bands=bands, grid=grid))
    return sources


def whole_grid(case: Case) -> Grid:
    """The grid of a case's tiles together."""
    hs, vs = [h for h, _ in case.tiles], [v for _, v in case.tiles]
    first = modis_tile_grid(min(hs), min(vs), case.metres)
    return Grid(
        crs=first.crs,
        transform=first.transform,
        width=first.width * (max(hs) - min(hs) + 1),
        height=first.height * (max(vs) - min(vs) + 1),
    )


def target_grid(case: Case) -> Grid:
    """The grid a case is warped onto."""
    box = case.box or (0.0, 40.0, 14.0, 50.0)
    return Lattice(crs=case.crs, resolution=case.resolution).snap(project_bounds(box, case.crs))


def mosaic_of(case: Case, sources: list[SourceTile], whole: Grid) -> NDArray[np.int16]:
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


def ours_of(
    case: Case, sources: list[SourceTile], target: Grid, threads: int
) -> tuple[Callable[[], object], NDArray[np.int16]]:
    """Our warp of a case, and the array it writes to."""
    out = np.empty((case.bands, *target.shape), np.int16)

    def act() -> object:
        return warp(sources, target, case.method, fill=FILL, threads=threads, out=out)

    return act, out


def rasterio_of(
    case: Case, mosaic: NDArray[np.int16], whole: Grid, target: Grid, threads: int
) -> Callable[[], object]:
    """The same by rasterio."""
    out = np.empty((case.bands, *target.shape), np.int16)
    source_crs, target_crs = CRS.from_wkt(whole.crs), CRS.from_user_input(case.crs)
    resampling = Resampling[case.method.removeprefix("gdal-")]

    def act() -> object:
        return peer_reproject(
            mosaic,
            out,
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

    return act


@lru_cache(maxsize=1)
def worst_error(target: Grid, space: SourceSpace, *, quick: bool) -> float:
    """Worst error of our coordinates of pixel centres, in source pixels."""
    coordinates = Coordinates(grid=target, space=space)
    plan = plan_rows(coordinates) if coordinates.is_rowwise else plan_blocks(coordinates)
    worst = 0.0
    for chunk, exact in exact_strips(target, space):
        worst = max(worst, float(np.nanmax(np.abs(centres(plan, chunk, quick=quick) - exact))))
    return worst


def exact_strips(target: Grid, space: SourceSpace) -> Iterator[tuple[Chunk, NDArray[np.float64]]]:
    """Strips of a target with the exact source columns and rows of their pixels."""
    for start in range(0, target.height, 256):
        rows = np.arange(start, min(start + 256, target.height))
        chunk = Chunk(top=start, bottom=start + len(rows), left=0, right=target.width)
        points = exact_coordinates(target, space, rows[:, None], np.arange(target.width)[None, :])
        yield chunk, np.stack(points, -1)


def nearest_wrong(
    made_by_us: NDArray[np.int16], mosaic: NDArray[np.int16], whole: Grid, target: Grid
) -> float:
    """The share of pixels that are not the exact nearest and no ties."""
    space = SourceSpace.of(whole)
    left, top = space.offset(whole)
    wrong = 0
    for chunk, exact in exact_strips(target, space):
        at = np.floor(exact - (left, top)).astype(np.int64)
        inside = ((at >= 0) & (at < (whole.width, whole.height))).all(axis=-1)
        picked = mosaic[at[..., 1].clip(0, whole.height - 1), at[..., 0].clip(0, whole.width - 1)]
        wanted = np.where(inside, picked, FILL)
        tie = (np.abs(exact - np.rint(exact)) < 1e-4).any(axis=-1)
        wrong += int(((made_by_us[chunk.top : chunk.bottom] != wanted) & ~tie).sum())
    return wrong / made_by_us.size


def peak_memory(case: Case, side: str, threads: int, layers: Path) -> float:
    """MiB a fresh process takes, above its imports, to load a case's layers and warp them."""
    command = [sys.executable, "-m", "bench.reproject", "--peak", case.name, side, str(layers)]
    done = subprocess.run(
        [*command, "--threads", str(threads)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def save_layers(folder: Path, sources: list[SourceTile], mosaic: NDArray[np.int16]) -> None:
    """Return what `measure_peak` loads."""
    np.save(folder / "mosaic.npy", mosaic)
    for number, source in enumerate(sources):
        for band, pixels in enumerate(source.bands):
            np.save(folder / f"{number}-{band}.npy", pixels)


def measure_peak(case: Case, side: str, threads: int, folder: Path) -> float:
    """Return what this process comes to, above what it has at the start."""
    before = peak_mib()
    whole, target = whole_grid(case), target_grid(case)
    if side == "ours":
        sources = [
            SourceTile(
                grid=modis_tile_grid(h, v, case.metres),
                bands=[np.load(folder / f"{number}-{n}.npy") for n in range(case.bands)],
            )
            for number, (h, v) in enumerate(case.tiles)
        ]
        ours_of(case, sources, target, threads)[0]()
    else:
        rasterio_of(case, np.load(folder / "mosaic.npy"), whole, target, threads)()
    return peak_mib() - before


def measure(case: Case, rounds: int) -> list[Result]:
    """One case with one thread and with two, all sides taking turns."""
    sources, whole, target = made(case), whole_grid(case), target_grid(case)
    mosaic = mosaic_of(case, sources, whole)
    act, out = ours_of(case, sources, target, 1)
    took = take_turns(
        {
            "ours 1": act,
            "rasterio 1": rasterio_of(case, mosaic, whole, target, 1),
            "ours 2": ours_of(case, sources, target, 2)[0],
            "rasterio 2": rasterio_of(case, mosaic, whole, target, 2),
        },
        rounds,
    )
    quick = case.method in ("nearest", "bilinear", "cubic")
    worst = worst_error(target, SourceSpace.of(whole), quick=quick)
    wrong = None
    if case.method == "nearest":
        wrong = nearest_wrong(out[0], mosaic[0], whole, target)
    held = sum(band.nbytes for source in sources for band in source.bands) + out.nbytes
    with tempfile.TemporaryDirectory() as folder:
        layers = Path(folder)
        save_layers(layers, sources, mosaic)
        return [
            Result(
                case=case.name,
                method=case.method,
                bands=case.bands,
                threads=threads,
                megapixels=round(out[0].size / 1e6, 1),
                ours=took[f"ours {threads}"],
                rasterio=took[f"rasterio {threads}"],
                goal=case.goal,
                worst_error=worst,
                nearest_wrong=wrong,
                peak_mib=peak_memory(case, "ours", threads, layers),
                bound_mib=held / 2**20 + 64,
                rasterio_peak_mib=peak_memory(case, "rasterio", threads, layers),
            )
            for threads in (1, 2)
        ]


def table(results: list[Result]) -> str:
    """The results as a Markdown table; CPU time in brackets."""
    lines = [
        "| case | method | threads | Mpx | Swathmill ms (CPU) | rasterio ms (CPU) | "
        "ratio (of CPU) | goal | worst error px | nearest wrong | peak / bound MiB | "
        "rasterio MiB |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for r in results:
        wrong = "" if r.nearest_wrong is None else f"{r.nearest_wrong:.0e}"
        wall, cpu = r.ratios
        lines.append(
            f"| {r.case} | {r.method} | {r.threads} | {r.megapixels:g} | {_ms(r.ours)} | "
            f"{_ms(r.rasterio)} | {wall:.1f} ({cpu:.1f}) | {r.goal:g} | {r.worst_error:.4f} | "
            f"{wrong} | {r.peak_mib:.0f} / {r.bound_mib:.0f} | {r.rasterio_peak_mib:.0f} |"
        )
    return "\n".join(lines)


def _ms(took: Took) -> str:
    return f"{took.wall_s * 1000:.1f} ({took.cpu_s * 1000:.1f})"


def main() -> None:
    """Run the cases, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description="Grid to grid against rasterio")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    by_name = {case.name: case for case in CASES}
    if options.peak:
        name, side, folder = options.peak
        peak = measure_peak(by_name[name], side, options.threads, Path(folder))
        sys.stdout.write(f"{peak}\n")
        return
    results = []
    for name in options.cases or by_name:
        results += measure(by_name[name], options.rounds)
    sys.stdout.write(table(results) + "\n")
    OUT.parent.mkdir(exist_ok=True)
    rows = [
        {**asdict(result), "ratio_wall": result.ratios[0], "ratio_cpu": result.ratios[1]}
        for result in results
    ]
    document = {"rounds": options.rounds, "results": rows}
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
