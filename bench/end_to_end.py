"""From an HDF4 granule to a Cloud Optimized GeoTIFF, whole: Swathmill against its peers.

    python -m bench.end_to_end [--rounds N]

One sinusoidal tile of 2400 x 2400 pixels and seven int16 layers, deflated in HDF4, onto EPSG:4326
at 0.0045 degrees by nearest neighbour, as one DEFLATE COG with averaged overviews and the
horizontal predictor. The peers: gdalwarp (Debian's gdal-bin; a process of its own, less the time
it takes to start) at DEFLATE level 6, its default, and at 1, its quickest; and a pipeline of pyhdf,
rasterio's `reproject` and its COG driver at level 1, in this process. Peers have 512 MB to warp in;
all take turns and are judged by medians. Files are read back and compared; of pixels that differ,
how far the exact source position (PROJ at the pixel) lies from the edge between two source pixels
is shown: GDAL's approximation errs by up to 0.125 pixels.

Memory: Swathmill in a process of its own; its peak above what its imports take, beside the bound:
decoded layers, output, and 64 MiB.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import rasterio
import rasterio.warp
from pyhdf.SD import SD, SDC
from pyproj import Transformer

from bench.turns import Took, peak_mib, take_turns
from modis.sphere import SPHERE_RADIUS
from modis.tile import TILE_SIZE, Tile
from reprojection.grid.grids import Grid, Lattice
from reprojection.read.description import Band, Provenance, SourceGranule
from reprojection.read.granule import open_granule
from reprojection.read.raster import Raster
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    GridToWrite,
    write_granule,
)
from reprojection.warp.warp import SourceTile, warp
from reprojection.write.write import write_cog

LAYERS = tuple(f"sur_refl_b{number:02d}" for number in range(1, 8))
SIDE = 2400
FILL = -28672
GOAL = 4.0
_START = datetime(2012, 6, 1, tzinfo=UTC)
_SINUSOIDAL = f"+proj=sinu +R={SPHERE_RADIUS} +nadgrids=@null +units=m +wktext"


def make_granule(folder: Path, start: datetime = _START, tile: str = "h18v04") -> Path:
    """A tile like MOD09A1: smooth reflectances with texture, and a tenth of fill."""
    place = Tile.parse(tile)
    rng = np.random.default_rng((7, place.h, place.v, start.toordinal()))
    row, col = np.indices((SIDE, SIDE), dtype=np.float32)
    ground = np.sin(row / 170) * np.cos(col / 230) + 0.5 * np.sin(row / 31 + col / 47)
    clouds = np.sin(row / 200 + 1.0) * np.sin(col / 310) > 0.72
    fields = []
    for number, name in enumerate(LAYERS):
        texture = rng.normal(0, 25, (SIDE, SIDE))
        values = np.round(1800 + 200 * number + 900 * ground + texture).astype(np.int16)
        values[clouds] = FILL
        fields.append(
            FieldToWrite(
                name=name,
                values=values,
                dims=("YDim", "XDim"),
                typed={"valid_range": (-100, 16000), "_FillValue": FILL},
                attributes={"scale_factor": 0.0001, "add_offset": 0.0, "units": "reflectance"},
            )
        )
    south, north = place.south, place.north
    (west, east) = (float(side) for side in place.sides(np.array((south + north) / 2)))
    name = f"MOD09A1.A{start:%Y%j}.{tile}.061.2012170000000.hdf"
    granule = GranuleToWrite(
        local_name=name,
        product="MOD09A1",
        collection=61,
        start=start,
        end=start + timedelta(days=8),
        produced=datetime(2012, 6, 18, tzinfo=UTC),
        day_night="Day",
        ring=[(west, south), (west, north), (east, north), (east, south)],
        structure=GridToWrite(
            name="MOD_Grid_500m_Surface_Reflectance",
            upper_left=(place.left, place.top),
            lower_right=(place.left + TILE_SIZE, place.top - TILE_SIZE),
            fields=fields,
        ),
    )
    write_granule(folder / name, granule)
    return folder / name


def target() -> Grid:
    """The tile's box of longitude and latitude: about 9 megapixels."""
    return Lattice(crs="EPSG:4326", resolution=0.0045).snap((0.0, 40.0, 15.55, 50.0))


def ours(granule_path: Path, out: Path, threads: int = 1) -> None:
    """Read, warp and write the seven layers as Swathmill does."""
    with open_granule(granule_path) as granule:
        layer = granule.layer(LAYERS[0])
        info = granule.grids[layer.grid or ""]
        bands = [granule.read(name).astype(np.int16, copy=False) for name in LAYERS]
    source = Grid(
        crs=info.crs,
        transform=(info.pixel_width, 0.0, info.left, 0.0, -info.pixel_height, info.top),
        width=info.width,
        height=info.height,
    )
    grid = target()
    data = warp([SourceTile(bands=bands, grid=source)], grid, fill=FILL, threads=threads)
    raster = Raster(
        data=data,
        grid=grid,
        nodata=FILL,
        kind="continuous",
        bands=tuple(Band(name=name) for name in LAYERS),
        scale=layer.scale,
        offset=layer.offset,
        units=layer.units,
        provenance=Provenance(
            product="MOD09A1",
            collection="61",
            layer="sur_refl",
            granules=(SourceGranule(name=granule_path.name),),
        ),
    )
    write_cog(raster, out, threads=threads)


def gdal(granule_path: Path, out: Path, threads: int, level: int) -> None:
    """The same by gdalwarp's COG driver."""
    grid, stack = target(), out.with_suffix(".vrt")
    names = [
        f'HDF4_EOS:EOS_GRID:"{granule_path}":MOD_Grid_500m_Surface_Reflectance:{name}'
        for name in LAYERS
    ]
    _run(["gdalbuildvrt", "-q", "-separate", str(stack), *names])
    _run(
        [
            *("gdalwarp", "-q", "-overwrite", "-r", "near", "-wm", "512"),
            *(("-multi", "-wo", f"NUM_THREADS={threads}") if threads > 1 else ()),
            *("-s_srs", _SINUSOIDAL, "-t_srs", "EPSG:4326"),
            *("-te", *(repr(edge) for edge in grid.bounds)),
            *("-ts", str(grid.width), str(grid.height), "-of", "COG"),
            *(word for name, value in _cog(threads, level) for word in ("-co", f"{name}={value}")),
            *(str(stack), str(out)),
        ]
    )


def by_rasterio(granule_path: Path, out: Path, threads: int, level: int) -> None:
    """The same by pyhdf, `rasterio.warp.reproject` and rasterio's COG driver."""
    grid = target()
    file = SD(str(granule_path), SDC.READ)
    bands = np.stack([file.select(name).get() for name in LAYERS])
    file.end()
    made = np.full((len(LAYERS), *grid.shape), FILL, np.int16)
    pixel = TILE_SIZE / SIDE
    rasterio.warp.reproject(
        bands,
        made,
        src_transform=rasterio.Affine(pixel, 0.0, 0.0, 0.0, -pixel, 5 * TILE_SIZE),
        src_crs=_SINUSOIDAL,
        src_nodata=FILL,
        dst_transform=rasterio.Affine(*grid.transform),
        dst_crs=grid.crs,
        dst_nodata=FILL,
        num_threads=threads,
        warp_mem_limit=512,
    )
    profile = {
        "driver": "COG",
        "count": len(LAYERS),
        "dtype": "int16",
        "width": grid.width,
        "height": grid.height,
        "crs": grid.crs,
        "transform": rasterio.Affine(*grid.transform),
        "nodata": FILL,
    }
    with rasterio.open(out, "w", **profile, **dict(_cog(threads, level))) as dataset:
        dataset.write(made)


def _cog(threads: int, level: int) -> list[tuple[str, str]]:
    return [
        ("COMPRESS", "DEFLATE"),
        ("LEVEL", str(level)),
        ("PREDICTOR", "YES"),
        ("OVERVIEW_RESAMPLING", "AVERAGE"),
        ("NUM_THREADS", str(threads)),
    ]


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One side: its medians less start-up, its file, and its times over ours."""

    side: str
    threads: int
    took: Took
    file_mb: float
    ratio: float
    by_cpu: float
    pixels_that_differ: float
    farthest_from_an_edge: float


def compare(mine: Path, theirs: Path) -> tuple[float, float]:
    """The share of pixels that differ, and the farthest of them from an edge of source pixels."""
    with rasterio.open(mine) as one, rasterio.open(theirs) as other:
        differ = one.read() != other.read()
    share, (rows, cols) = float(differ.mean()), np.nonzero(differ.any(axis=0))
    if rows.size == 0:
        return share, 0.0
    a, _, c, _, e, f = target().transform
    forward = Transformer.from_crs("EPSG:4326", _SINUSOIDAL, always_xy=True)
    x, y = forward.transform(c + a * (cols + 0.5), f + e * (rows + 0.5))
    pixel = TILE_SIZE / SIDE
    across, down = np.asarray(x) / pixel, np.asarray(y) / pixel
    away = np.minimum(np.abs(across - np.round(across)), np.abs(down - np.round(down)))
    return share, float(away.max())


def run(rounds: int) -> list[Row]:
    """Measure all sides; gdalwarp's are missing where it is not installed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        granule = make_granule(folder)
        sides: dict[str, Callable[[], object]] = {}
        for threads in (1, 2):
            for side, act in _sides(threads).items():
                key = f"{side}|{threads}"
                sides[key] = partial(act, granule, folder / f"{key}.tif")
        if shutil.which("gdalwarp"):
            sides["start"] = lambda: _run(["gdalwarp", "--version"])
        took = take_turns(sides, rounds)
        start = took.pop("start", Took(wall_s=0.0, cpu_s=0.0))
        rows = []
        for key, found in took.items():
            side, number = key.split("|")
            if side.startswith("gdalwarp"):
                found = Took(wall_s=found.wall_s - start.wall_s, cpu_s=found.cpu_s - start.cpu_s)
            mine, made = took[f"Swathmill|{number}"], folder / f"{key}.tif"
            share, away = compare(folder / "Swathmill|1.tif", made)
            rows.append(
                Row(
                    side=side,
                    threads=int(number),
                    took=found,
                    file_mb=made.stat().st_size / 1e6,
                    ratio=found.wall_s / mine.wall_s,
                    by_cpu=found.cpu_s / mine.cpu_s,
                    pixels_that_differ=share,
                    farthest_from_an_edge=away,
                )
            )
        return rows


def _sides(threads: int) -> dict[str, Callable[[Path, Path], None]]:
    sides: dict[str, Callable[[Path, Path], None]] = {
        "Swathmill": lambda granule, out: ours(granule, out, threads)
    }
    if shutil.which("gdalwarp"):
        sides["gdalwarp, level 6"] = lambda granule, out: gdal(granule, out, threads, 6)
        sides["gdalwarp, level 1"] = lambda granule, out: gdal(granule, out, threads, 1)
    sides["pyhdf and rasterio, level 1"] = lambda granule, out: by_rasterio(
        granule, out, threads, 1
    )
    return sides


def peak_of_file(granule: Path) -> dict[str, float]:
    """MiB that the whole way took above this process's imports."""
    before = peak_mib()
    ours(granule, granule.with_suffix(".tif"))
    grid = target()
    pixels = len(LAYERS) * (SIDE * SIDE + grid.width * grid.height)
    return {
        "peak_mib": round(peak_mib() - before, 1),
        "bound_mib": round(2 * pixels / 2**20 + 64, 1),
    }


def memory() -> dict[str, float]:
    """The same from a fresh process."""
    with tempfile.TemporaryDirectory() as name:
        granule = make_granule(Path(name))
        command = [sys.executable, "-m", "bench.end_to_end", "--peak", str(granule)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, float] = json.loads(done.stdout)
        return found


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| side | threads | s | CPU s | file MB | over ours | by CPU | differ | off an edge, px |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row.side} | {row.threads} | {row.took.wall_s:.2f} | {row.took.cpu_s:.2f} | "
        f"{row.file_mb:.1f} | {row.ratio:.1f} | {row.by_cpu:.1f} | "
        f"{100 * row.pixels_that_differ:.2f}% | {row.farthest_from_an_edge:.3f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table and keep it under bench/out."""
    parser = argparse.ArgumentParser(description="From HDF4 to a COG against gdalwarp and rasterio")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        sys.stdout.write(json.dumps(peak_of_file(options.peak)))
        return
    rows, held = run(options.rounds), memory()
    sys.stdout.write(f"{table(rows)}\ngoal {GOAL:g}; memory: {held}\n")
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    document = {"goal": GOAL, "rows": [asdict(row) for row in rows], "memory": held}
    (out / "end_to_end.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
