"""Find where a raster's pixel came from: granule, row, column, stored value and quality."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.windows import Window

from modis.axes import Pixel
from reprojection.catalogue.layers import Layer
from reprojection.errors import ChoiceRefusedError
from reprojection.explain.at_hand import lacking
from reprojection.explain.gdal_line import gdalwarp_line
from reprojection.explain.made_with import options_of
from reprojection.explain.origins import InputOrigin, PixelOrigin, Quality
from reprojection.explain.run_inputs import RunAtPixel
from reprojection.explain.source_pixel import counting_pixel, nearest_pixel
from reprojection.files import AnyPath, as_paths
from reprojection.grid.grids import Grid
from reprojection.grid.pixel_at import pixel_at
from reprojection.read import qa
from reprojection.read.description import Description, SourceGranule
from reprojection.read.granule import Granule, open_granule
from reprojection.read.granule_layer import GranuleHeader, find_places, located
from reprojection.read.qa import Reason
from reprojection.reproject import (
    Options,
    reproject,
)
from reprojection.write.write import open_raster

_Rule = str | None
_REASONS = {
    Reason.VALID: "it has a value",
    Reason.FILL: "the nearest source pixel is fill",
    Reason.CODE: "the nearest source pixel holds a code, or lies outside the valid range",
    Reason.QA: "the nearest source pixel fails the QA rule",
    Reason.NO_GRANULE: "no granule reaches it",
}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Where a pixel of a raster came from.

    Attributes:
        layer: The layer's name.
        row: The pixel's row in the raster, from 0.
        column: The pixel's column in the raster, from 0.
        stored: What the file holds there.
        value: The value in `units`; None where there is none.
        units: The layer's units.
        granules: File names of the raster's granules.
        origin: The source pixel; of a blending method, the nearest that counts. None where no
            granule reaches the pixel or its granule is not at hand.
        note: Which of the two it is, else "".
        gdalwarp: The shell command that comes nearest to how the raster was made, or "".
        gdalwarp_note: In what its pixels differ, or why there is no command.
        made: What made a reduction's raster: package, version, parameters and window; else "".
        inputs: What the run of its cell was given at the pixel, down to granules.
    """

    layer: str
    row: int
    column: int
    stored: float | int
    value: float | None
    units: str
    granules: tuple[str, ...]
    origin: PixelOrigin | None
    note: str
    gdalwarp: str
    gdalwarp_note: str
    made: str = ""
    inputs: tuple[InputOrigin, ...] = ()


def explain(
    path: AnyPath, lon: float, lat: float, *, granules: AnyPath | Iterable[AnyPath] = ()
) -> Explanation:
    """Explain one pixel of a raster: its source pixel, stored value and quality.

    Of a reduction's raster, all that its run was given at the pixel is explained in this way. Bit
    fields of QA layers are decoded by the catalogue, from the product's user guide.

    Args:
        path: A GeoTIFF that Swathmill wrote.
        lon: Longitude in degrees, WGS84; 190 is the same place as -170.
        lat: Latitude in degrees, WGS84.
        granules: Granule files, or folders to look for them in, by the names and digests that the
            raster gives; none by default, and then the source pixel is not told.

    Returns:
        The explanation.

    Raises:
        BadFormatError: the file is not a raster of Swathmill.
        ChoiceRefusedError: the place is outside the raster, or a reduction made it that does not
            say of what.
        ReprojectionError: a granule that is at hand cannot be read.
    """
    opened = open_raster(Path(path))
    said, grid = opened.said, opened.said.grid.grid()
    row, column = _pixel(grid, lon, lat)
    with rasterio.open(path) as dataset:
        stored = dataset.read(1, window=Window(column, row, 1, 1)).item()
    empty = opened.nodata is not None and (stored == opened.nodata or stored != stored)
    found = _find(said, as_paths(granules))
    value = None if empty else stored * said.scale + said.offset
    if package := dict(said.provenance.parameters).get("package"):
        lineage = said.provenance.lineage
        if lineage is None:
            raise ChoiceRefusedError(
                f"{path} was made by the package {package}, and does not say of what: an older "
                "Swathmill made it; explain the raster of a layer"
            )
        run = RunAtPixel(said, lineage, _one_pixel(grid, row, column), found, _trace)
        inputs = run.inputs()
        return Explanation(
            layer=said.provenance.layer,
            row=row,
            column=column,
            stored=stored,
            value=value,
            units=said.units,
            granules=tuple(source.name for source in said.provenance.granules),
            origin=None,
            note="" if inputs else "no run was made there: its cell had no inputs",
            gdalwarp="",
            gdalwarp_note="a package made its pixels, not gdalwarp",
            made=run.made,
            inputs=inputs,
        )
    if (record := said.provenance.record) is not None and record.sensors > 1:
        origin = None
        note = f"it is the mean of {record.sensor}; ask for each by itself with overlap: all"
        line, line_note = "", "a mean of sensors is made by no gdalwarp"
    else:
        origin, note = _trace(said, _one_pixel(grid, row, column), found, empty=empty)
        line, line_note = gdalwarp_line(said, grid, opened.dtype, opened.nodata, found)
    return Explanation(
        layer=said.provenance.layer,
        row=row,
        column=column,
        stored=stored,
        value=value,
        units=said.units,
        granules=tuple(source.name for source in said.provenance.granules),
        origin=origin,
        note=note,
        gdalwarp=line,
        gdalwarp_note=line_note,
    )


def explain_pixel(
    paths: Sequence[Path], layer: str, pixel: Grid, options: Options, at: Pixel
) -> Explanation:
    """Explain a pixel of granules of one date, as `explain` does of a raster that was made of them.

    Args:
        paths: The granules.
        layer: The layer.
        pixel: A grid of this one pixel.
        options: How the raster was made.
        at: Row and column to name in the explanation.

    Raises:
        ReprojectionError: as `reproject`.
    """
    raster = reproject(paths, layer, pixel, options)
    granules = {one.name for one in raster.provenance.granules}
    beside = tuple(SourceGranule(name=one.name) for one in paths if one.name not in granules)
    said = replace(raster, provenance=replace(raster.provenance, beside=beside)).description()
    stored, empty = raster.data[0, 0, 0].item(), not raster.valid()[0, 0]
    origin, note = _trace(said, pixel, _find(said, paths), empty=empty)
    return Explanation(
        layer=layer,
        row=at.row,
        column=at.col,
        stored=stored,
        value=None if empty else said.physical(stored),
        units=said.units,
        granules=tuple(source.name for source in said.provenance.granules),
        origin=origin,
        note=note,
        gdalwarp="",
        gdalwarp_note="there is no raster to compare with",
    )


def _pixel(grid: Grid, lon: float, lat: float) -> Pixel:
    if (found := pixel_at(grid, lon, lat)) is not None:
        return found
    raise ChoiceRefusedError(
        f"longitude {lon}, latitude {lat} is outside the raster, whose bounds in its CRS are "
        f"{tuple(grid.bounds)}; write longitude before latitude"
    )


def _one_pixel(grid: Grid, row: int, column: int) -> Grid:
    a, b, c, d, e, f = grid.transform
    corner = (a * column + b * row + c, d * column + e * row + f)
    return Grid(crs=grid.crs, transform=(a, b, corner[0], d, e, corner[1]), width=1, height=1)


def _find(said: Description, granules: Sequence[Path]) -> dict[str, Path]:
    """Find the files of the raster's granules, by name, in the raster's order."""
    files: dict[str, Path] = {}
    for path in granules:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            files.setdefault(file.name, file)
    names = [source.name for source in said.provenance.files]
    return {name: files[name] for name in names if name in files}


def _trace(
    said: Description, pixel: Grid, found: Mapping[str, Path], *, empty: bool
) -> tuple[PixelOrigin | None, str]:
    if note := lacking(said.provenance.files, found):
        return None, note
    options = options_of(said)
    layer = said.provenance.layer
    nearest_only = Options(
        resampling="nearest",
        merge=options.merge if options.merge != "mean" else "nadir",
        qa=options.qa,
        mask=options.mask,
        search=options.search,
        extra_bands=("source", "reason"),
        driver=options.driver,
    )
    paths = list(found.values())
    seen = reproject(paths, layer, pixel, nearest_only)
    number, reason = int(seen.data[1].item()), Reason(int(seen.data[2].item()))
    places = find_places(paths, layer).places
    if number == 0 and (leading := _leading(paths, pixel, options)):
        places = [places[leading - 1]]
    if number == 0 and not empty:
        return _counting(places, pixel, options)
    if any(place.layer.bands and not place.layer.index for place in places):
        return None, f"to see the source pixel, make a raster of one orbit, like {layer}[0]"
    # If no granule has a value, take the granule that came closest to giving one.
    candidates = [places[number - 1]] if number else places
    for place in candidates:
        origin = _origin(place, pixel, options)
        if origin is not None and (number or origin.reason == _REASONS[reason]):
            return origin, ""
    return (None, _REASONS[reason]) if empty else _counting(places, pixel, options)


def _leading(paths: Sequence[Path], pixel: Grid, options: Options) -> int:
    """Return the index of the granule that gives the driving layer's value; 0 if none does."""
    driver = options.driver
    if driver is None or options.merge == "mean":
        return 0
    chosen = Options(
        resampling=driver.resampling,
        merge=options.merge,
        qa=driver.qa,
        mask=options.mask,
        search=options.search,
        extra_bands=("source",),
    )
    return int(reproject(paths, driver.layer, pixel, chosen).data[1].item())


def _counting(
    places: Sequence[GranuleHeader], pixel: Grid, options: Options
) -> tuple[PixelOrigin | None, str]:
    """Find the nearest source pixel that a blending method uses; the very nearest has no value."""
    best: tuple[float, Pixel, GranuleHeader] | None = None
    for place in places:
        with open_granule(place.path) as granule:
            why = _why(granule, place, options, granule.read(place.layer))
            found = counting_pixel(granule, place, pixel, why)
        if found is not None and (best is None or found[0] < best[0]):
            best = (*found, place)
    if best is None:
        return None, "its value comes from source pixels around it that could not be singled out"
    _, at, place = best
    return _origin(place, pixel, options, at), ""


def _why(
    granule: Granule, place: GranuleHeader, options: Options, values: npt.NDArray[np.generic]
) -> npt.NDArray[np.uint8]:
    why = qa.reasons(granule, place.layer, options.qa if options.mask else None, values)
    if not options.mask:
        why[why != Reason.FILL] = Reason.VALID
    return why


def _origin(
    place: GranuleHeader, pixel: Grid, options: Options, at: Pixel | None = None
) -> PixelOrigin | None:
    """Describe the source pixel at a row and column, or else the nearest one.

    Returns None if the granule does not reach the pixel.
    """
    with open_granule(place.path) as granule:
        values = granule.read(place.layer)
        why = _why(granule, place, options, values)
        search_valid = options.search == "valid"
        at = at or nearest_pixel(granule, place, pixel, why, search_valid=search_valid)
        if at is None:
            return None
        row, column = at
        zenith = None
        if place.grid is None:
            angles = located(granule, place).sensor_zenith
            zenith = None if angles is None else float(angles[row, column])
        return PixelOrigin(
            granule=place.name,
            row=row,
            column=column,
            stored=values[row, column].item(),
            reason=_REASONS[Reason(int(why[row, column]))],
            quality=tuple(_qualities(granule, place.layer, options, row, column)),
            sensor_zenith=zenith,
        )


def _qualities(
    granule: Granule, layer: Layer, options: Options, row: int, column: int
) -> Iterator[Quality]:
    """Yield the layer's own QA layer and those that the rule names, decoded for one pixel."""
    rule = options.qa if options.mask else None
    named = [found.qa_layer.base_name for found in qa.resolve_rule(granule, layer, rule)]
    own = [layer.qa] if layer.qa is not None and layer.qa in granule.layers else []
    for name in dict.fromkeys([*own, *named]):
        about = granule.layers[name]
        try:
            rows, columns = qa.placement(granule, layer, about)
        except ChoiceRefusedError:
            continue  # the layer's own QA layer; no rule needs it
        at = row if rows is None else rows[row], column if columns is None else columns[column]
        numbers = [int(value) for value in granule.read_all_bands(about)[:, at[0], at[1]]]
        yield Quality(
            layer=name,
            stored=numbers[0] if len(numbers) == 1 else _joined(numbers),
            fields=tuple(qa.decode(granule, name, numbers[0] if len(numbers) == 1 else numbers)),
        )


def _joined(numbers: Sequence[int]) -> int:
    return sum((number & 0xFF) << (8 * place) for place, number in enumerate(numbers))
