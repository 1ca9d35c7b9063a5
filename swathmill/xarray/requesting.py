"""The request document that makes a dataset's rasters on a server."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr
import yaml

from modis.tile import TILE_PIXELS, TILE_SIZE, Tile
from reprojection.errors import ChoiceRefusedError, GridError
from reprojection.files import AnyPath
from reprojection.grid.grids import Grid, modis_lattice
from reprojection.reproject import Options
from swathmill.xarray.explaining import GRANULES, OPTIONS, grid_of
from tasks.errors import RequestRefusedError
from tasks.request.document import Request, parse_request
from tasks.request.resolved import resolve

Document = dict[str, object]

_SHARED = ("merge", "mask", "units", "codes", "extra_bands", "clamp")
_INSET = 0.25  # of a pixel: bounds that lie on edges of pixels may be snapped to either side
_MOST_POINTS = 1024  # along a side


def request_of(dataset: xr.Dataset, fields: Mapping[str, object], path: AnyPath | None) -> Document:
    """Make the document; raises what `SwathmillAccessor.to_request` does."""
    layers = _layers(dataset)
    grid = grid_of(dataset)
    if grid is None:
        raise ChoiceRefusedError("the dataset has no grid: it is of granules, not of `load`")
    first, last = (str(np.sort(dataset.time.values)[at])[:10] for at in (0, -1))
    product = {
        "name": str(dataset.attrs["product"]),
        "collection": str(dataset.attrs["collection"]),
        "layers": list(layers),
    }
    options = list(layers.values())
    document: Document = {
        "products": [product],
        "region": {},
        "time": {"start": first, "end": last},
        "grid": _grid(grid),
        "resampling": _resampling(layers),
        **_shared(options),
    }
    document["region"] = _region(document, grid)
    title = {"title": fields["title"]} if "title" in fields else {}
    document = {**title, **document, **fields}
    _check(parse_request(document), layers)
    if path is not None:
        text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=100)
        Path(path).write_text(text, "utf-8")
    return document


def _layers(dataset: xr.Dataset) -> dict[str, Options]:
    """Return the layers of a dataset and the options that made each."""
    found: dict[str, Options] = {}
    for name, held in dataset.data_vars.items():
        options = held.encoding.get(OPTIONS)
        if not isinstance(options, Options) or GRANULES not in held.encoding:
            raise ChoiceRefusedError(
                f"{name!r} does not say how it was made: make the request of what `load` gave, not "
                "of what was computed of it"
            )
        found[str(held.attrs["layer"])] = options
    if not found:
        raise ChoiceRefusedError("the dataset has no variable")
    return found


def _shared(options: Sequence[Options]) -> Document:
    """Return the options that go for all layers of a request, where they are not its defaults."""
    usual, found = Options(), Document()
    for name in _SHARED:
        every = {getattr(one, name) for one in options}
        if len(every) > 1:
            raise ChoiceRefusedError(
                f"{name} differs between layers ({', '.join(map(str, sorted(every)))}), and a "
                "request has one for all: make a request of each, by dataset[[...]]"
            )
        (value,) = every
        if value != getattr(usual, name):
            found[name] = list(value) if isinstance(value, tuple) else value
    if any(one.search != usual.search for one in options):
        raise ChoiceRefusedError("a request knows no search='valid'")
    rules = [one.qa for one in options if one.qa is not None]
    if any(rule != rules[0] for rule in rules):
        raise ChoiceRefusedError(
            "rules of quality differ between layers, and a request has one for all: make a request "
            "of each, by dataset[[...]]"
        )
    if rules:
        found["qa"] = rules[0] if isinstance(rules[0], str) else _plain(rules[0])
    return found


def _plain(rule: Mapping[str, Mapping[str, Sequence[int]]]) -> Document:
    return {
        layer: {name: [int(value) for value in values] for name, values in fields.items()}
        for layer, fields in rule.items()
    }


def _resampling(layers: Mapping[str, Options]) -> object:
    methods = {name: one.resampling for name, one in layers.items()}
    return next(iter(methods.values())) if len(set(methods.values())) == 1 else methods


def _grid(grid: Grid) -> Document:
    if grid.system.is_modis_sinusoidal:
        for metres, pixels in TILE_PIXELS.items():
            if grid.transform[0] == TILE_SIZE / pixels:
                return {"modis": metres}
    return {"crs": grid.system.normal_text, "resolution": grid.transform[0]}


def _region(document: Document, grid: Grid) -> Document:
    """Choose a region whose grid is the dataset's."""
    tried: Sequence[Document] = [_box(grid)] if grid.system.is_plain_lonlat else _polygons(grid)
    for region in tried:
        try:
            made = resolve(parse_request({**document, "region": region})).target.grid
        except (RequestRefusedError, GridError):
            continue
        if (made.transform, made.shape) == (grid.transform, grid.shape):
            return region
    raise ChoiceRefusedError(
        "no request has the dataset's grid: its pixels lie at multiples of their side from the "
        "CRS's origin, as those of a Lattice, and it does not cross 180 degrees"
    )


def _box(grid: Grid) -> Document:
    west, south, east, north = grid.bounds
    inset = _INSET * grid.transform[0]
    corners = (west + inset, south + inset, east - inset, north - inset)
    return {"bbox": [round(float(one), 9) for one in corners]}


def _polygons(grid: Grid) -> list[Document]:
    """List regions from few points to many: the tiles of the tile grid, then the grid's outline."""
    found = _tiles(grid)
    points = 4
    while points <= _MOST_POINTS:
        found.append({"geojson": _outline(grid, points)})
        points *= 4
    return found


def _tiles(grid: Grid) -> list[Document]:
    metres = _grid(grid).get("modis")
    if not isinstance(metres, int):
        return []
    lattice = modis_lattice(metres)
    cells = lattice.cells(grid)
    return [{"tiles": [Tile.at_cell(cell.col, cell.row).name for cell in cells]}]


def _outline(grid: Grid, points: int) -> Document:
    """Trace a grid's edge in longitude and latitude, a quarter of a pixel inside."""
    a, _, c, _, e, f = grid.transform
    across = c + a * np.linspace(_INSET, grid.width - _INSET, points + 1)
    down = f + e * np.linspace(_INSET, grid.height - _INSET, points + 1)
    x = np.concatenate([across, np.full(points, across[-1]), across[-2::-1], np.full(points, c)])
    y = np.concatenate(
        [np.full(points + 1, down[0]), down[1:], np.full(points, down[-1]), down[-2::-1]]
    )
    x[3 * points + 1 :] = across[0]
    lon, lat = grid.system.to_lonlat(x, y)
    ring = [
        [round(float(one), 7), round(float(other), 7)] for one, other in zip(lon, lat, strict=True)
    ]
    return {"type": "Polygon", "coordinates": [ring]}


def _check(request: Request, layers: Mapping[str, Options]) -> None:
    """Refuse what a server would make otherwise: the method, the rule or the leading layer."""
    (product, *_) = resolve(request).products
    for layer in product.layers:
        options = layers[layer.name]
        known = layer.entry is not None
        if known and layer.resampling != options.resampling:
            raise ChoiceRefusedError(
                f"a request would resample {layer.name!r} by {layer.resampling}, and the dataset "
                f"has it by {options.resampling}"
            )
        if bool(layer.qa) != (options.qa is not None):
            raise ChoiceRefusedError(
                f"a request has one rule of quality for all layers, and {layer.name!r} would be "
                f"made with {layer.qa or 'none'}: make a request of each, by dataset[[...]]"
            )
        leads = options.driver.layer if options.driver else layer.name
        if product.geometry == "swath" and options.merge != "mean" and leads != product.driver.name:
            raise ChoiceRefusedError(
                f"{layer.name!r} follows {leads!r}, and in a request it would follow "
                f"{product.driver.name!r}, its first layer: put {leads!r} first"
            )
