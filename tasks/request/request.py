"""The request document: the same in YAML for the command line and in JSON for the API."""

import datetime as dt
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from tasks.errors import RequestRefusedError

METHODS = (
    "nearest",
    "bilinear",
    "cubic",
    "average",
    "gdal-average",
    "mode",
    "min",
    "max",
    "median",
)
Method = Literal[
    "nearest", "bilinear", "cubic", "average", "gdal-average", "mode", "min", "max", "median"
]
Merge = Literal["nadir", "latest", "mean", "first"]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


def _collection(value: object) -> object:
    """Collections as people write them: 6, 6.1, "006", "6.1", "061" -> "6", "61"."""
    if value == 0o61:
        raise ValueError('YAML reads a bare 061 as the octal number 49; write "061" or 6.1')
    text = str(value).strip().removesuffix(".0").replace(".", "")
    if text.isdigit() and len(text) <= 3:
        return text.lstrip("0") or "0"
    return value


Collection = Annotated[str, BeforeValidator(_collection), Field(pattern=r"^[0-9]{1,3}$")]


class ProductChoice(_Document):
    """A product and the layers wanted of it."""

    name: str = Field(pattern=r"^[A-Za-z0-9_]{3,20}$")
    collection: Collection
    layers: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1, max_length=64)
    day_night: Literal["any", "day", "night"] = "any"


class Region(_Document):
    """Exactly one of a longitude/latitude box, MODIS tiles, or a GeoJSON polygon."""

    bbox: tuple[float, float, float, float] | None = None
    tiles: tuple[str, ...] | None = None
    geojson: dict[str, Any] | None = None
    clip: bool = False

    @field_validator("bbox")
    @classmethod
    def _on_earth(
        cls, box: tuple[float, float, float, float] | None
    ) -> tuple[float, float, float, float] | None:
        if box is None:
            return None
        west, south, east, north = box
        if not (-180 <= west <= 180 and -180 <= east <= 180):
            raise ValueError(f"longitudes {west:g} and {east:g} must lie in -180..180")
        if not (-90 <= south < north <= 90):
            raise ValueError(
                f"latitudes {south:g} and {north:g} must lie in -90..90, south before north; "
                "the order is west, south, east, north"
            )
        if west == east:
            raise ValueError("west and east are the same longitude")
        return box

    @field_validator("tiles")
    @classmethod
    def _tiles(cls, tiles: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for tile in tiles or ():
            digits = tile[1:3] + tile[4:6]
            if not (len(tile) == 6 and tile[0] == "h" and tile[3] == "v" and digits.isdigit()):
                raise ValueError(f"{tile!r} is not a tile; write it like h18v04")
            if int(tile[1:3]) > 35 or int(tile[4:6]) > 17:
                raise ValueError(f"{tile} is off the tile grid, which is h00..h35 by v00..v17")
        return tiles

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [n for n in ("bbox", "tiles", "geojson") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of bbox, tiles or geojson, not {len(given)}")
        if self.tiles is not None and not self.tiles:
            raise ValueError("tiles is empty; name at least one, like h18v04")
        return self


class Time(_Document):
    """Inclusive days, UTC, by a granule's nominal start day."""

    start: dt.date
    end: dt.date

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.end < self.start:
            raise ValueError(f"end {self.end} is before start {self.start}; swap them")
        return self


class GridChoice(_Document):
    """A CRS with a resolution in its units, or the sinusoidal tile grid at 250, 500 or 1000 m."""

    crs: str | None = None
    resolution: float | None = Field(None, gt=0)
    modis: Literal[250, 500, 1000] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.modis is not None and (self.crs or self.resolution):
            raise ValueError("give either modis, or crs with resolution")
        if self.modis is None and (not self.crs or not self.resolution):
            raise ValueError("give crs and resolution (in the CRS's units), or modis: 500")
        return self


class Reduction(_Document):
    """The scientist's own computation: a package, and what one run of it gets."""

    package: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    group_by: tuple[Literal["cell", "date", "month", "year", "all"], ...] = ("cell", "month")
    parameters: dict[str, str] = Field(default_factory=dict)

    @field_validator("group_by")
    @classmethod
    def _groups(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        windows = [g for g in groups if g != "cell"]
        if "cell" not in groups or len(windows) != 1:
            raise ValueError("group_by is cell and one of date, month, year, all: [cell, month]")
        return groups


class Request(_Document):
    """What a scientist submits."""

    title: str = Field("", max_length=200)
    products: tuple[ProductChoice, ...] = Field(min_length=1, max_length=20)
    region: Region
    time: Time
    grid: GridChoice
    resampling: Method | dict[str, Method] | None = None
    merge: Merge = "nadir"
    qa: Literal["best", "good"] | dict[str, dict[str, tuple[int, ...]]] | None = None
    mask: bool = True
    units: Literal["stored", "physical"] = "stored"
    codes: Literal["mask", "keep"] = "mask"
    extra_bands: tuple[Literal["count", "source", "reason"], ...] = ()
    cells: bool = False  # deliver the cells too
    cube: Literal["none", "netcdf", "zarr"] = "none"  # deliver each layer over time, too
    weight: Literal["none", "days"] = "none"
    on_missing: Literal["skip", "fail"] = "skip"
    reduction: Reduction | None = None
    notify: str = Field("", pattern=r"^$|^[^@\s]+@[^@\s]+$", max_length=254)


def parse_request(document: object) -> Request:
    """A request from a decoded document.

    Raises:
        RequestRefusedError: naming the first offending field, what is wrong and what to do.
    """
    try:
        return Request.model_validate(document)
    except ValidationError as error:
        raise _refusal(error) from None


def load_request(path: Path) -> Request:
    """A request from a YAML or JSON file; errors as `parse_request`."""
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RequestRefusedError(
            str(path), "no such file.", "Give the path of a request document."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RequestRefusedError(
            str(path), f"is not YAML: {error}.", "Mend the document; examples/ has some to copy."
        ) from None
    return parse_request(document)


def dump_request(request: Request) -> str:
    """The request as JSON text, without what was left at its default."""
    return json.dumps(request.model_dump(mode="json", exclude_defaults=True))


def _refusal(error: ValidationError) -> RequestRefusedError:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "document"
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        problem = "there is no such field"
        remedy = f"Check its spelling; the fields are: {', '.join(Request.model_fields)}."
        if len(first["loc"]) > 1:
            remedy = "Check its spelling."
    elif first["type"] == "missing":
        problem, remedy = "is missing", "Add it to the document."
    else:
        shown = repr(first.get("input"))
        problem = f"{problem} (given: {shown[:120]})"
        remedy = "Correct this field and submit again."
    return RequestRefusedError(field, problem + ".", remedy)
