"""Aggregation into a group: what one run of a reduction gets, standing alone.

`manifest.json` says what is in the group; for each layer there is one GeoTIFF with a band per day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import rasterio
from pydantic import BaseModel, ConfigDict
from rasterio.windows import Window

from reprojection.write.write import open_raster
from tasks.model.categories import Category
from tasks.model.model import ArtifactFile
from tasks.model.packages import layer_labels
from tasks.model.spec import Band, GridSpec, GroupSpec
from tasks.run.classify import AttemptError
from worker.phases.context import Context

MANIFEST = "manifest.json"
_BLOCK = 256
_ROWS = 1024


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Granule(_Model):
    """A granule behind a band."""

    name: str
    produced: str = ""


class ManifestBand(_Model):
    """One band of a stack: where it is, what it shows, and for how much it counts.

    `start` and `end` are those of its granules, ISO 8601 in UTC; `date` is the nominal start day.
    """

    file: str
    band: int
    product: str
    collection: str
    layer: str
    date: str
    weight: float
    start: str = ""
    end: str = ""
    granules: tuple[Granule, ...] = ()


class Manifest(_Model):
    """The document a package reads: which group this is, its grid, its bands."""

    group: str
    cell: str
    window: str
    grid: GridSpec | None
    bands: tuple[ManifestBand, ...]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One stack to be: its file and the bands in it with their rasters, by day."""

    file: str
    bands: tuple[tuple[Band, Path], ...]


def group(spec: GroupSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Stack the cells by layer and write the manifest."""
    fetched = context.fetch_inputs()
    layers = sort_layers(spec.bands, {index: files[0] for index, files in fetched.items()})
    folder = context.folder("group")
    for n, layer in enumerate(layers):
        context.tell(0.5 + 0.4 * n / len(layers), f"stacking {layer.file}")
        stack(layer, folder / layer.file)
    text = manifest(spec, layers).model_dump_json(indent=1)
    (folder / MANIFEST).write_text(text + "\n", "utf-8")
    context.tell(0.9, f"storing {spec.group}")
    return tuple(context.upload(folder / name) for name in (MANIFEST, *(x.file for x in layers)))


def sort_layers(bands: Sequence[Band], paths: Mapping[int, Path]) -> tuple[Layer, ...]:
    """The stacks of a group, each with its days in order; `paths` are by index of the band."""
    labels = layer_labels(bands)
    chosen: dict[str, list[tuple[Band, Path]]] = {label: [] for label in labels.values()}
    for index, band in enumerate(bands):
        label = labels[band.product, band.collection, band.layer]
        chosen[label].append((band, paths[index]))
    return tuple(
        Layer(file=f"{label}.tif", bands=tuple(sorted(found, key=lambda item: item[0].day)))
        for label, found in chosen.items()
    )


def manifest(spec: GroupSpec, layers: Sequence[Layer]) -> Manifest:
    """What the package reads: the group, its grid, and each band's place and meaning."""
    return Manifest(
        group=spec.group,
        cell=spec.cell,
        window=spec.window,
        grid=spec.grid,
        bands=tuple(
            _described(layer.file, n, band, path)
            for layer in layers
            for n, (band, path) in enumerate(layer.bands, 1)
        ),
    )


def _described(file: str, number: int, band: Band, path: Path) -> ManifestBand:
    said = open_raster(path).said.provenance
    return ManifestBand(
        file=file,
        band=number,
        product=band.product,
        collection=band.collection,
        layer=band.layer,
        date=band.day.isoformat(),
        weight=band.weight,
        start=said.start,
        end=said.end,
        granules=tuple(Granule(name=g.name, produced=g.produced) for g in said.granules),
    )


def stack(layer: Layer, to: Path) -> None:
    """Copy each day's first band into one file, in blocks of rows.

    Raises:
        AttemptError: unknown, when the cells differ in shape, type or nodata.
    """
    first = layer.bands[0][1]
    with rasterio.open(first) as like:
        profile = {
            "driver": "GTiff",
            "dtype": like.dtypes[0],
            "count": len(layer.bands),
            "nodata": like.nodata,
            "width": like.width,
            "height": like.height,
            "crs": like.crs,
            "transform": like.transform,
            "interleave": "band",
            "tiled": True,
            "blockxsize": _BLOCK,
            "blockysize": _BLOCK,
            "compress": "deflate",
            "predictor": 3 if like.dtypes[0].startswith("float") else 2,
            "BIGTIFF": "IF_SAFER",
        }
        shown = (like.dtypes[0], repr(like.nodata), like.width, like.height)
    scales, offsets, units = [], [], []
    with rasterio.open(to, "w", **profile) as out:
        for n, (band, path) in enumerate(layer.bands, 1):
            with rasterio.open(path) as cell:
                found = (cell.dtypes[0], repr(cell.nodata), cell.width, cell.height)
                if found != shown:
                    raise AttemptError(
                        Category.UNKNOWN,
                        f"{layer.file}: {band.day} has type, nodata and shape {found}, the first "
                        f"day has {shown}",
                    )
                for row in range(0, cell.height, _ROWS):
                    rows = Window(0, row, cell.width, min(_ROWS, cell.height - row))
                    out.write(cell.read(1, window=rows), n, window=rows)
                scales.append(cell.scales[0])
                offsets.append(cell.offsets[0])
                units.append(cell.units[0] or "")
            out.set_band_description(n, band.day.isoformat())
        out.scales, out.offsets, out.units = scales, offsets, units
