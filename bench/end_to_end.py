"""From an HDF4 granule to a Cloud Optimized GeoTIFF, whole: Swathmill against gdalwarp.

    python -m bench.end_to_end

One sinusoidal tile of 2400 x 2400 pixels and seven int16 layers, deflated in HDF4, onto EPSG:4326
at 0.0045 degrees by nearest neighbour, as one DEFLATE COG with averaged overviews. Swathmill runs
in this process, gdalwarp (Debian's gdal-bin: rasterio's wheels have no HDF4 driver) in its own,
less the time it takes to start. Both files are read back and compared.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import rasterio

from reprojection.granule import open_granule
from reprojection.grids import Grid, Lattice
from reprojection.hdfeos_write import FieldToWrite, GranuleToWrite, GridToWrite, write_granule
from reprojection.raster import Band, Provenance, Raster, Source
from reprojection.structmetadata import TILE_SIZE
from reprojection.warp import Source as WarpSource
from reprojection.warp import warp
from reprojection.write import write_cog

LAYERS = tuple(f"sur_refl_b{number:02d}" for number in range(1, 8))
SIDE = 2400
FILL = -28672
GOAL = 4.0
_START = datetime(2012, 6, 1, tzinfo=UTC)
_SINUSOIDAL = "+proj=sinu +R=6371007.181 +nadgrids=@null +units=m +wktext"


def make_granule(folder: Path) -> Path:
    """A tile like MOD09A1: smooth reflectances with texture, and a tenth of fill."""
    rng = np.random.default_rng(7)
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
    name = f"MOD09A1.A{_START:%Y%j}.h18v04.061.2012170000000.hdf"
    granule = GranuleToWrite(
        local_name=name,
        product="MOD09A1",
        collection=61,
        start=_START,
        end=_START + timedelta(days=8),
        produced=_START + timedelta(days=20),
        day_night="Day",
        ring=[(0.0, 40.0), (0.0, 50.0), (15.5, 50.0), (13.0, 40.0)],
        structure=GridToWrite(
            name="MOD_Grid_500m_Surface_Reflectance",
            upper_left=(0.0, 5 * TILE_SIZE),
            lower_right=(TILE_SIZE, 4 * TILE_SIZE),
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
        bands = [granule.read(name) for name in LAYERS]
    source = Grid(
        crs=info.crs,
        transform=(info.pixel_width, 0.0, info.left, 0.0, -info.pixel_height, info.top),
        width=info.width,
        height=info.height,
    )
    grid = target()
    data = warp([WarpSource(bands=bands, grid=source)], grid, fill=FILL, threads=threads)
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
            granules=(Source(name=granule_path.name),),
        ),
    )
    write_cog(raster, out, threads=threads)


def gdal(granule_path: Path, out: Path, threads: int = 1) -> None:
    """The same by gdalwarp's COG driver, tuned: a large warp memory and exact coordinates."""
    grid, stack = target(), out.with_suffix(".vrt")
    names = [
        f'HDF4_EOS:EOS_GRID:"{granule_path}":MOD_Grid_500m_Surface_Reflectance:{name}'
        for name in LAYERS
    ]
    _run(["gdalbuildvrt", "-q", "-separate", str(stack), *names])
    box = grid.bounds
    _run(
        [
            *("gdalwarp", "-q", "-overwrite", "-r", "near", "-wm", "512"),
            *("-s_srs", _SINUSOIDAL, "-t_srs", "EPSG:4326"),
            *("-te", *(repr(edge) for edge in box), "-ts", str(grid.width), str(grid.height)),
            *("-of", "COG", "-co", "COMPRESS=DEFLATE", "-co", "OVERVIEW_RESAMPLING=AVERAGE"),
            *("-co", f"NUM_THREADS={threads}", "-co", "PREDICTOR=YES"),
            *(str(stack), str(out)),
        ]
    )


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True)


def best(act: Callable[[], None], times: int) -> float:
    """The shortest of several runs, in seconds."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        took.append(time.perf_counter() - start)
    return min(took)


def compare(one: Path, other: Path) -> float:
    """The share of pixels that differ between two files."""
    with rasterio.open(one) as mine, rasterio.open(other) as theirs:
        return float((mine.read() != theirs.read()).mean())


def run(times: int = 3) -> dict[str, object]:
    """Measure both sides; the peer's part is missing where there is no gdalwarp."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        granule = make_granule(folder)
        found: dict[str, object] = {
            "case": "end to end: HDF4, 7 bands, to EPSG:4326, DEFLATE COG with overviews",
            "goal": GOAL,
            "granule_mb": round(granule.stat().st_size / 1e6, 1),
        }
        for threads in (1, 2):
            mine, theirs = folder / f"ours{threads}.tif", folder / f"gdal{threads}.tif"
            seconds = best(lambda m=mine, t=threads: ours(granule, m, t), times)  # type: ignore[misc]
            found[f"ours_{threads}_threads_s"] = round(seconds, 3)
            found[f"ours_{threads}_threads_mb"] = round(mine.stat().st_size / 1e6, 1)
            if shutil.which("gdalwarp") is None:
                continue
            start_up = best(lambda: _run(["gdalwarp", "--version"]), times)
            peer = best(lambda p=theirs, t=threads: gdal(granule, p, t), times) - start_up  # type: ignore[misc]
            found[f"gdalwarp_{threads}_threads_s"] = round(peer, 3)
            found[f"gdalwarp_{threads}_threads_mb"] = round(theirs.stat().st_size / 1e6, 1)
            found[f"ratio_{threads}_threads"] = round(peer / seconds, 2)
            found["pixels_that_differ"] = compare(mine, theirs)
        return found


def main() -> None:
    """Print the figures and keep them under bench/out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    found = run(parser.parse_args().times)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "end_to_end.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for name, value in found.items():
        print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
