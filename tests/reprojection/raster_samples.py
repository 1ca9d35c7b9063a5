"""Small rasters for the tests of what is written and read back."""

import numpy as np

from reprojection.grid.grids import Grid, Lattice
from reprojection.read.description import Band, Provenance, SourceGranule
from reprojection.read.raster import Raster

LATTICE = Lattice(crs="EPSG:32631", resolution=500.0, cell_size=64)
GRID = LATTICE.window(800, -11000, 150, 130)


def provenance(*names: str) -> Provenance:
    """Provenance of granules by name."""
    return Provenance(
        product="MOD99A1",
        collection="61",
        layer="Height",
        granules=tuple(SourceGranule(name=name, produced="2012017211237") for name in names),
        start="2012-01-01T00:00:00Z",
        end="2012-01-08T23:59:59Z",
        parameters=(("resampling", "bilinear"), ("merge", "nadir"), ("qa", None), ("mask", True)),
        operation="Inverse of UTM zone 31N",
        accuracy=2.0,
        software="swathmill 0.1.0, reprojection 1",
    )


def hills(grid: Grid = GRID, names: tuple[str, ...] = ("a.hdf", "b.hdf")) -> Raster:
    """Continuous int16 values with a hole, and a source and a reason band."""
    col0, row0 = LATTICE.index(grid)
    row, col = np.indices(grid.shape) + np.array([row0, col0])[:, None, None]
    values = np.round(3000 + 2000 * np.sin(row / 40) * np.cos(col / 50)).astype(np.int16)
    hole = (row % 100 > 80) & (col % 90 > 70)
    values[hole] = -9999
    source = np.where(hole, 0, 1 + (col > col0 + grid.width // 2)).astype(np.int16)
    reason = np.where(hole, 1, 0).astype(np.int16)
    return Raster(
        data=np.stack([values, source, reason]),
        grid=grid,
        nodata=-9999,
        kind="continuous",
        bands=(
            Band(name="Height"),
            Band(name="source", role="source"),
            Band(name="reason", role="reason"),
        ),
        scale=0.1,
        offset=-50.0,
        units="m",
        provenance=provenance(*names),
    )


def plain(values: np.ndarray, nodata: float | int | None = 255) -> Raster:
    """One band of continuous values."""
    grid = LATTICE.window(0, 0, values.shape[1], values.shape[0])
    return Raster(
        data=values[None],
        grid=grid,
        nodata=nodata,
        kind="continuous",
        bands=(Band(name="Height"),),
        provenance=provenance("a.hdf"),
    )


def classes(values: np.ndarray) -> Raster:
    """One band of three classes with a colour each."""
    grid = LATTICE.window(0, 0, values.shape[1], values.shape[0])
    return Raster(
        data=values[None].astype(np.uint8),
        grid=grid,
        nodata=255,
        kind="class",
        bands=(Band(name="Cover"),),
        codes={1: "forest", 2: "water", 9: "town"},
        colours={1: (0, 120, 0, 255), 2: (0, 0, 200, 255), 9: (200, 0, 0, 255)},
        provenance=provenance("a.hdf"),
    )
