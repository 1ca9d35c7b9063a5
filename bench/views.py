"""Tiles of a map before a request: how long one takes, of a tile granule and of a day of swaths.

    python -m bench.views [--tiles 40 --rounds 3]

Tiles of 256 pixels as PNG, as the portal draws them, in its process that reads; those of the swaths
are the nearest pixels of twelve synthetic granules of 1 km. Beside them rio-tiler, the library in
titiler, draws the same tiles from a Cloud Optimized GeoTIFF of the same tile granule, if it is
installed (no lock has it), which needs the file to be made before. All are warm: each tile was
drawn once before, none is taken from what was drawn.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.transform import Affine

from archives.formats.boundary import touches
from archives.kinds.folder import describe
from bench.swath import write_passes
from bench.swath_datasets import PASSES, field
from portal.views.drawing import Asked, draw
from portal.views.tile_matrix import WEB_MERCATOR
from reprojection.grid.grids import modis_tile_grid
from reprojection.isolation import ReadingProcess
from reprojection.read.granule import open_granule
from reprojection.reproject import Options
from reprojection.sample.sample import write_sample_archive

Place = tuple[int, int, int]

_VALID = 100  # the greatest valid leaf area, as stored


def places(zoom: int, box: tuple[float, float, float, float], most: int) -> list[Place]:
    """Return tiles of a zoom whose centres lie in a box, at most so many, evenly spread."""
    found = []
    for col in range(1 << zoom):
        for row in range(1 << zoom):
            at = WEB_MERCATOR.box(zoom, col, row)
            lon, lat = (at.west + at.east) / 2, (at.south + at.north) / 2
            if box[0] < lon < box[2] and box[1] < lat < box[3]:
                found.append((zoom, col, row))
    step = max(1, len(found) // most)
    return found[::step][:most]


def timed(work: Callable[[Place], object], at: Sequence[Place], rounds: int) -> list[float]:
    """Return the milliseconds of each tile, of all rounds after a first one."""
    for one in at:
        work(one)
    found = []
    for _ in range(rounds):
        for one in at:
            begun = time.perf_counter()
            work(one)
            found.append(1000 * (time.perf_counter() - begun))
    return found


def said(what: str, times: Sequence[float]) -> None:
    """Print a line of the table."""
    p99 = statistics.quantiles(times, n=100)[98]
    print(f"| {what} | {statistics.median(times):.1f} | {p99:.1f} |", flush=True)


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print("| tiles | median, ms | p99, ms |\n|---|---|---|")
    with (
        tempfile.TemporaryDirectory(prefix="swathmill-bench-") as name,
        ReadingProcess(modules=("portal.views.drawing",)) as process,
    ):
        folder = Path(name)
        tile = next(p for p in write_sample_archive(folder, ("tiles",)) if "h18v03" in p.name)
        over_land = places(8, (1.0, 50.5, 14.0, 59.5), arguments.tiles)
        said(
            "of a tile granule",
            timed(drawer(process, [tile], "Lai_1km"), over_land, arguments.rounds),
        )
        if find_spec("rio_tiler"):
            cog = written_cog(tile, folder / "tile.tif")
            said("the same by rio-tiler from a COG", timed(peer(cog), over_land, arguments.rounds))
        else:
            print("| rio-tiler | absent | |")
        swaths = write_passes(folder, PASSES, field)
        around = places(7, (-20.0, 40.0, 30.0, 68.0), arguments.tiles)
        said("of twelve swaths", timed(drawer(process, swaths, "Value"), around, arguments.rounds))
    return 0


def drawer(process: ReadingProcess, files: Sequence[Path], layer: str) -> Callable[[Place], object]:
    """Draw as the portal does, of the granules that may touch a tile."""
    records = {
        path: describe(path.name, str(path), path.stat().st_size, process.read_outline(path), None)
        for path in files
    }

    def work(at: Place) -> bytes:
        box = WEB_MERCATOR.box(*at)
        touching = [path for path, one in records.items() if one and touches(one, box)]
        asked = Asked(
            files=tuple(map(str, touching or files[:1])),
            folders=(files[0].parent,),
            layer=layer,
            grid=WEB_MERCATOR.grid(*at),
            options=Options(units="physical"),
        )
        return process.run(draw, asked, "png", 0.0, 7.0)

    return work


def written_cog(granule: Path, to: Path) -> Path:
    """Write a layer of a tile granule as a COG, as somebody would who serves it by titiler."""
    with open_granule(granule) as found:
        values = np.asarray(found.read("Lai_1km"), np.uint8)
        (info,) = found.grids.values()
    assert info.tile is not None
    grid = modis_tile_grid(*info.tile, 1000)
    with rasterio.open(
        to, "w", driver="COG", height=values.shape[0], width=values.shape[1], count=1,
        dtype="uint8", crs=rasterio.CRS.from_user_input(grid.crs),
        transform=Affine(*grid.transform), nodata=255, compress="deflate",
    ) as dataset:  # fmt: skip
        dataset.write(np.where(values > _VALID, 255, values), 1)
    return to


def peer(cog: Path) -> Callable[[Place], object]:
    """Draw by rio-tiler from an open file."""
    from rio_tiler.colormap import cmap
    from rio_tiler.io import Reader

    reader, colours = Reader(str(cog)), cmap.get("viridis")

    def work(at: Place) -> bytes:
        zoom, col, row = at
        image: Any = reader.tile(col, row, zoom)
        image.rescale(((0, 70),))
        drawn: bytes = image.render(img_format="PNG", colormap=colours)
        return drawn

    return work


if __name__ == "__main__":
    sys.exit(main())
