"""Adopt a package's raster: check it against the group's grid, describe it, write a COG."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import rasterio
from rasterio.errors import RasterioIOError

from reprojection.grid.grids import Grid
from reprojection.read.raster import Band, Pixels, Provenance, Raster, SourceGranule
from reprojection.write.write import write_cog
from tasks.model.categories import Category
from tasks.model.spec import ReduceSpec
from tasks.run.classify import AttemptError
from worker.phases.group import Manifest, ManifestBand
from worker.phases.reproject import grid_of

_SNAP = 1e-3  # pixels by which an output may be off the group's grid


@dataclass(frozen=True, kw_only=True)
class OutputOrigin:
    """What an output was made from: the group's manifest, and the layer in its name, if any."""

    spec: ReduceSpec
    manifest: Manifest
    bands: tuple[ManifestBand, ...]


def adopt(path: Path, to: Path, origin: OutputOrigin) -> float:
    """Write a package's GeoTIFF to `to` with provenance; return the valid share of its pixels.

    Pixels, nodata, scale, offset, units and band names are the package's own.

    Raises:
        AttemptError: user code failed: the file does not open, is not on the group's grid, or has
            integer pixels without a nodata value.
    """
    try:
        with rasterio.open(path) as dataset:
            data: Pixels = dataset.read()
            nodata = dataset.nodata
            found = tuple(dataset.transform)[:6]
            names = [text or f"band {n}" for n, text in enumerate(dataset.descriptions, 1)]
            scale, offset = float(dataset.scales[0]), float(dataset.offsets[0])
            units = str(dataset.units[0] or "")
    except RasterioIOError as error:
        said = str(error).replace(str(path), path.name)
        raise _failed(path, f"is not a raster that opens: {said}") from error
    raster = Raster(
        data=data,
        grid=_grid(path, origin.manifest, found, data),
        nodata=_nodata(path, data, nodata),
        kind="continuous",
        bands=tuple(Band(name=name) for name in names),
        scale=scale,
        offset=offset,
        units=units,
        provenance=_provenance(path, origin),
        completeness=origin.manifest.said,
    )
    write_cog(raster, to, overviews=False)
    return raster.valid_share


def _grid(path: Path, manifest: Manifest, found: tuple[float, ...], data: Pixels) -> Grid:
    """Check that the output is on the group's grid, as joining cells requires; return the grid."""
    if manifest.grid is None:
        raise _failed(path, "has no grid to lie on: its group has none")
    grid = grid_of(manifest.grid)
    pixel = abs(grid.transform[0])
    same = all(
        abs(one - other) <= _SNAP * pixel for one, other in zip(found, grid.transform, strict=True)
    )
    if data.shape[1:] != grid.shape or not same:
        raise _failed(
            path,
            f"has {data.shape[2]} x {data.shape[1]} pixels with the transform {found}; the inputs "
            f"have {grid.width} x {grid.height} with {grid.transform}: write it on their grid",
        )
    return grid


def _nodata(path: Path, data: Pixels, nodata: float | None) -> float | int:
    if nodata is None and data.dtype.kind == "f":
        return float("nan")
    if nodata is None:
        raise _failed(
            path,
            f"has {data.dtype} pixels and no nodata value, so empty pixels could not be "
            "distinguished from data: set nodata, or write floats",
        )
    return nodata if data.dtype.kind == "f" else int(nodata)


def _provenance(path: Path, origin: OutputOrigin) -> Provenance:
    bands = origin.bands
    sources = {SourceGranule(name=s.name, produced=s.produced) for b in bands for s in b.granules}
    return Provenance(
        product=_one([band.product for band in bands]),
        collection=_one([band.collection for band in bands]),
        layer=path.stem,
        granules=tuple(sorted(sources, key=lambda source: source.name)),
        start=min((band.start for band in bands if band.start), default=""),
        end=max((band.end for band in bands if band.end), default=""),
        parameters=(
            ("package", origin.spec.package),
            ("package_sha256", origin.spec.digest),
            ("window", origin.manifest.window),
            *sorted(origin.spec.parameters.items()),
        ),
        software=f"swathmill {version('swathmill')}",
    )


def _one(values: list[str]) -> str:
    """Return the common value, or the different values sorted and joined."""
    return ", ".join(np.unique(values).tolist())


def _failed(path: Path, problem: str) -> AttemptError:
    return AttemptError(Category.USER_CODE_FAILED, f"the package's output {path.name} {problem}")
