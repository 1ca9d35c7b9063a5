"""The request document: the same in YAML for the command line and in JSON for the API."""

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

import modis.collection
from reprojection.resampling import Method, Statistic
from tasks.field_guide import YES_NO, ModelGuide, PartOfDocument
from tasks.mail_address import ADDRESS, LONGEST
from tasks.packages.package_reference import NAME, OWNER, PATTERN, PackageReference
from tasks.packages.parameters import ParameterText
from tasks.packages.rasters import REFERENCE, ExactRaster, is_raster
from tasks.packages.requires import RequiresField
from tasks.refusal_wording import FieldWords, listed, refusal
from tasks.request.measurements import (
    read_measurements,
    utc_offset,
)
from tasks.request.records.bridge import BRIDGES, with_bridge
from tasks.request.records.part import RECORD, RECORD_NAME, RecordPart, is_record
from tasks.request.region.region import IN_PLACE, REGION_KINDS, SITES, Region
from tasks.request.sites import parse_sites

Merge = Literal["nadir", "latest", "mean", "first"]
Use = Literal["same-day", "covering", "nearest", "previous", "static"]
Overlap = Literal["prefer", "mean", "all"]
Deliver = Literal["both", "results", "inputs", "cells"]

WINDOW = re.compile(
    "date|month|season|year|all|day-of-year|month-of-year|season-of-year|"
    "([2-9]|[1-9][0-9]|[12][0-9]{2}|3[0-5][0-9]|36[0-6])-day(-of-year)?"
)
"""The kinds of windows of time (tasks/request/windows.py)."""

MOST_LABELS = 10
LABEL = r"^[^\s,]([^,\n]*[^\s,])?$"
Labels = Annotated[
    tuple[
        Annotated[
            str,
            Field(pattern=LABEL, max_length=40),
            FieldWords(
                what="a label",
                remedy="Write a word or a few, at most 40 characters, without a comma.",
            ),
        ],
        ...,
    ],
    Field(max_length=MOST_LABELS),
    AfterValidator(lambda labels: tuple(dict.fromkeys(labels))),
    FieldWords(
        what="a list of labels", remedy="Write at most 10 words: [thesis, drought].", label="Labels"
    ),
]
"""Words by which a person finds requests again."""

_EVERY = "[*]"
_MOST_LAYERS = 64

_NUMBER = FieldWords(what="a number", remedy="Write a number, like 0.0353.")
_NAME = "A name has small letters, digits and dashes, like"


def _collection(value: object) -> object:
    """Normalise a collection as people write it: 6, 6.1, "006", "6.1", "061" -> "6", "61"."""
    text = modis.collection.Collection(str(value).removeprefix("R"))
    return str(text) if text.isdigit() else value


# Ocean colour has the year of its reprocessing: R2022.0.
Collection = Annotated[
    str,
    BeforeValidator(_collection),
    Field(pattern=r"^([0-9]{0,3}|(19|20)[0-9]{2,3})$"),
    FieldWords(
        what="the number of a collection",
        remedy="Write its number, like 6.1 or 61.",
        label="Collection",
    ),
]


def _look(label: str) -> FieldWords:
    return FieldWords(
        what="a number of days", remedy="Write a whole number from 0 to 3700.", label=label
    )


def _record_or_name(schema: dict[str, Any]) -> None:
    """Say in the JSON schema that a product has a name or is a record."""
    schema["properties"]["record"] = {
        "type": "string",
        "pattern": f"^{RECORD_NAME}$",
        "description": "A record, in place of `name` and `collection`.",
    }
    schema["properties"]["bridge"] = {
        "enum": [*BRIDGES],
        "default": "none",
        "description": "Of a record: `offset` and `linear` stand for `overlap: all` and the "
        "reduction `bridge` over the whole time.",
    }
    schema["required"] = [name for name in schema["required"] if name != "name"]
    schema["oneOf"] = [{"required": ["name"]}, {"required": ["record"]}]


class ProductChoice(PartOfDocument):
    """A product and the layers wanted of it; `Name[*]` stands for every band of a layer.

    `overpasses` says what becomes of the several overpasses of a day: "merged" makes one raster of
    a layer and day, "all" one of each overpass.
    `use` says which dates of it a window of a reduction takes. `look_back` and `look_ahead` are
    the days around a window in which `nearest`, `previous` and `static` look for a date.

    A user's raster is named `raster:NAME`, and has no collection. Nor has a record, which is
    named by `record: NAME` in place of `name`, or as `record:NAME` there. Of it, `prefer` names
    sensors or products that come before the others, and `overlap` says what becomes of a date that
    several have: "prefer" takes the first, "mean" their mean at each pixel, "all" delivers each by
    itself. `bridge: offset` or
    `linear` is short for `overlap: all` and a reduction (`tasks/request/records/bridge.py`).

    With `near_real_time` LANCE's granules stand for standard ones that are not there yet.
    """

    name: Annotated[
        str,
        FieldWords(
            what="the short name of a product",
            remedy="A short name has 3 to 20 letters, digits and underscores, like MCD15A2.",
            label="Product",
        ),
    ] = Field(pattern=rf"^[A-Za-z0-9_][A-Za-z0-9_-]{{2,39}}$|^{REFERENCE}|^{RECORD}{RECORD_NAME}$")
    collection: Collection = Field("", validate_default=True)
    layers: Annotated[
        tuple[
            Annotated[
                str,
                Field(min_length=1),
                FieldWords(
                    what="the name of a layer",
                    remedy="Name each layer as its granules do: [Lai_1km].",
                ),
            ],
            ...,
        ],
        FieldWords(
            what="a list of layers",
            remedy="Name at least one layer and at most 64: [Lai_1km].",
            label="Layers",
        ),
    ] = Field(min_length=1, max_length=_MOST_LAYERS)
    day_night: Literal["any", "day", "night"] = "any"
    overpasses: Literal["merged", "all"] = "merged"
    use: Annotated[
        Use,
        FieldWords(
            what="a way to use dates",
            remedy="Choose same-day, covering, previous, nearest or static.",
            label="Dates of a product",
        ),
    ] = "same-day"
    look_back: Annotated[Annotated[int, Field(ge=0, le=3700)] | None, _look("Days before")] = None
    look_ahead: Annotated[Annotated[int, Field(ge=0, le=3700)] | None, _look("Days after")] = None
    prefer: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=40)], ...],
        FieldWords(
            what="a list of sensors or products", remedy="Write a list: [VIIRS, Aqua MODIS]."
        ),
    ] = Field((), max_length=10)
    overlap: Overlap = "prefer"
    near_real_time: Annotated[bool, YES_NO] = False
    _exact: ExactRaster | None = PrivateAttr(None)
    _part: RecordPart | None = PrivateAttr(None)
    _place: int | None = PrivateAttr(None)

    model_config = ConfigDict(json_schema_extra=_record_or_name)

    @property
    def part(self) -> RecordPart | None:
        """The record that it is a product of; None: it was asked for itself."""
        return self._part

    def at(self, place: int) -> Self:
        """Return the choice with its number in the document, where a record stands for several."""
        made = self.model_copy()
        made._place = place
        return made

    def field_at(self, number: int) -> str:
        """Return the field of the document that names it; `number` is its own among all."""
        return f"products.{number if self._place is None else self._place}"

    def part_of(self, part: RecordPart, product: str, collection: str) -> Self:
        """Return the choice of one product of a record in place of the record's."""
        layers = {part.names[own]: own for own in part.names}
        named = {
            "name": product,
            "collection": _collection(collection),
            "layers": tuple(layers[layer] for layer in self.layers),
            "prefer": (),
            "overlap": "prefer",
        }
        made = self.model_copy(update=named)
        made._part, made._place = part, part.place
        return made

    @property
    def part_place(self) -> int | None:
        """The number of its record among the document's products; None: it is of no record."""
        return self._part.place if self._part is not None else None

    @property
    def asked(self) -> str:
        """The name by which it was asked for: the record's, if it is one or a product of one."""
        return self._part.record if self._part is not None else self.name.removeprefix(RECORD)

    def goes_by(self, name: str) -> bool:
        """Tell whether a step of a reduction means it by a name.

        Products of a record that stand for one another go by the record's name alone.
        """
        alone = self._part is None or not self._part.shares_dates
        return name == self.asked or (alone and name == self.name)

    @property
    def asked_layers(self) -> tuple[str, ...]:
        """The layers by the names that were asked for."""
        return tuple(map(self.asked_layer, self.layers))

    def asked_layer(self, layer: str) -> str:
        """Return what a layer was asked for as: by the record's name of it."""
        return self._part.names[layer] if self._part is not None else layer

    @property
    def exact(self) -> ExactRaster | None:
        """The version of a raster that is meant; None: a product, or not looked up yet."""
        return self._exact

    def exact_as(self, found: ExactRaster) -> Self:
        """Return the choice of a raster with the version that its name means."""
        named = {"name": found.raster.product_name, "collection": found.collection}
        made = self.model_copy(update=named)
        made._exact = found
        return made

    @model_validator(mode="before")
    @classmethod
    def _of_record(cls, given: object) -> object:
        """Read `record: NAME` as the name `record:NAME`; refuse what is not made of records."""
        if not isinstance(given, dict):
            return given
        if "record" not in given:
            return given
        if "name" in given:
            raise ValueError("has name and record; give one of the two")
        rest = {key: value for key, value in given.items() if key != "record"}
        return {"name": f"{RECORD}{given['record']}", **rest}

    @field_validator("collection")
    @classmethod
    def _needed(cls, collection: str, said: ValidationInfo) -> str:
        name = str(said.data.get("name", ""))
        if is_record(name):
            if collection:
                raise ValueError(
                    f"{name} is a record, which says itself which collection of each product it "
                    "takes; leave it out"
                )
            return collection
        if is_raster(name) and collection:
            raise ValueError(
                f"{name} is a raster, which has no collection; leave it out, and write a version "
                "behind the name: raster:NAME@VERSION"
            )
        if not collection and not is_raster(name):
            raise PydanticCustomError("missing", "Field required")
        return collection

    @field_validator("layers")
    @classmethod
    def _every_band(cls, layers: tuple[str, ...], said: ValidationInfo) -> tuple[str, ...]:
        if not any(layer.endswith(_EVERY) for layer in layers):
            return layers
        name, collection = said.data.get("name", ""), said.data.get("collection", "")
        every = tuple(one for layer in layers for one in _bands(layer, name, collection))
        if len(every) > _MOST_LAYERS:
            raise ValueError(
                f"with every band these are {len(every)} layers, and {_MOST_LAYERS} are allowed; "
                "name fewer bands"
            )
        return every

    @model_validator(mode="after")
    def _of_records_alone(self) -> Self:
        given = [n for n in ("prefer", "overlap") if getattr(self, n) != _unless_given(n)]
        if given and not is_record(self.name):
            raise ValueError(
                f"`{given[0]}` says something of records alone, and {self.name} is a product; "
                "leave it out"
            )
        return self

    @model_validator(mode="after")
    def _near(self) -> Self:
        if self.near_real_time and is_raster(self.name):
            raise ValueError("a raster has no near real time edition; leave near_real_time out")
        return self

    @model_validator(mode="after")
    def _looks(self) -> Self:
        given = [n for n in ("look_back", "look_ahead") if getattr(self, n) is not None]
        takes = {"nearest": 2, "previous": 1, "static": 2}.get(self.use, 0)
        if (given and not takes) or (self.look_ahead is not None and takes == 1):
            raise ValueError(
                f"{given[-1]} has no meaning with use: {self.use}; leave it out, or choose nearest "
                "or static"
            )
        return self

    def is_same_product(self, other: "ProductChoice") -> bool:
        """Tell whether another choice is of the same product and half of the day."""
        mine = self.name, self.collection, self.day_night
        return mine == (other.name, other.collection, other.day_night)


def _unless_given(field: str) -> object:
    return ProductChoice.model_fields[field].default


def _bands(layer: str, name: str, collection: str) -> tuple[str, ...]:
    """List the bands that `Name[*]` stands for; another layer stands for itself."""
    # Only such a layer needs the catalogue.
    from reprojection import catalogue

    if not layer.endswith(_EVERY):
        return (layer,)
    known = catalogue.product(name, collection)
    bands = known.facts(layer.removesuffix(_EVERY)).band_names if known else ()
    if not bands:
        raise ValueError(
            f"the catalogue knows no bands of {layer.removesuffix(_EVERY)!r}, so {_EVERY} cannot "
            "stand for all of them; name them one by one, like Name[0]"
        )
    return bands


def _day_of_year(value: object) -> object:
    """Check a day of any year, MM-DD; YAML may have read it as something else."""
    text = str(value)
    try:
        dt.date.fromisoformat(f"2000-{text}")
    except ValueError:
        raise ValueError(f"{text!r} is not a day of a year; write month and day: 06-01") from None
    return text


DayOfYear = Annotated[str, BeforeValidator(_day_of_year), Field(pattern=r"^[0-9]{2}-[0-9]{2}$")]


def _day_of(label: str) -> FieldWords:
    return FieldWords(what="a day of a year", remedy='Write month and day: "06-01".', label=label)


class Season(PartOfDocument):
    """A part of each year: days `from` and `to`, both included; it may pass New Year."""

    model_config = ConfigDict(serialize_by_alias=True)

    first: Annotated[DayOfYear, _day_of("First day of the season")] = Field(alias="from")
    last: Annotated[DayOfYear, _day_of("Last day of the season")] = Field(alias="to")

    def holds(self, day: dt.date) -> bool:
        """Tell whether a day lies in the season."""
        name = f"{day:%m-%d}"
        if self.first <= self.last:
            return self.first <= name <= self.last
        return name >= self.first or name <= self.last


def _day(label: str) -> FieldWords:
    remedy = "Write year, month and day, like 2012-01-31."
    return FieldWords(what="a day", remedy=remedy, label=label)


class Time(PartOfDocument):
    """Inclusive days, UTC, by a granule's nominal start day; with `every` only a season of each."""

    start: Annotated[dt.date, _day("First day")]
    end: Annotated[dt.date, _day("Last day")]
    every: Annotated[
        Season | None,
        FieldWords(
            what="a season",
            remedy='Write {from: "06-01", to: "08-31"}: month and day.',
            label="Season",
        ),
    ] = None

    @field_validator("end")
    @classmethod
    def _forward(cls, end: dt.date, info: ValidationInfo) -> dt.date:
        start = info.data.get("start")
        if start is not None and end < start:
            raise ValueError(f"{end} is before the first day, {start}; swap the two")
        return end

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.pieces:
            raise ValueError(
                f"no day from {self.start} to {self.end} lies in the season of `every`; "
                "choose other days or leave `every` out"
            )
        return self

    def until(self, end: dt.date, *, since: dt.date | None = None) -> "Time | None":
        """Return the same days up to another end, or only those from `since` on; None: no day."""
        try:
            return Time(start=since or self.start, end=end, every=self.every)
        except ValidationError:
            return None  # no day lies in the season

    @property
    def days(self) -> int:
        """The number of days, both ends included."""
        return sum((last - first).days + 1 for first, last in self.pieces)

    def holds(self, day: dt.date) -> bool:
        """Tell whether a day is among those asked for."""
        return self.start <= day <= self.end and (self.every is None or self.every.holds(day))

    @cached_property
    def pieces(self) -> tuple[tuple[dt.date, dt.date], ...]:
        """The days without a break: the first and last of each piece."""
        if self.every is None:
            return ((self.start, self.end),)
        found: list[tuple[dt.date, dt.date]] = []
        for offset in range((self.end - self.start).days + 1):
            day = self.start + dt.timedelta(days=offset)
            if not self.every.holds(day):
                continue
            if found and found[-1][1] == day - dt.timedelta(days=1):
                found[-1] = found[-1][0], day
            else:
                found.append((day, day))
        return tuple(found)

    def each_day(self) -> Iterator[dt.date]:
        """Yield the days."""
        for first, last in self.pieces:
            for offset in range((last - first).days + 1):
                yield first + dt.timedelta(days=offset)


class GridChoice(PartOfDocument):
    """A CRS with a resolution in its units, or the sinusoidal tile grid at 250, 500 or 1000 m."""

    crs: Annotated[
        str | None,
        FieldWords(
            what="a coordinate reference system",
            remedy="Write an EPSG code, like EPSG:4326, or WKT.",
            label="Coordinate system",
        ),
    ] = None
    resolution: Annotated[
        float | None,
        FieldWords(
            what="the side of a pixel",
            remedy="Write a number greater than 0, in the units of the coordinate system.",
            label="Pixel side",
        ),
    ] = Field(None, gt=0, allow_inf_nan=False)
    modis: Annotated[Literal[250, 500, 1000] | None, FieldWords(label="Resolution")] = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.modis is not None and (self.crs or self.resolution):
            raise ValueError("has modis and crs or resolution; give modis, or crs with resolution")
        if self.modis is None and (not self.crs or not self.resolution):
            absent = (
                "crs" if self.resolution else "resolution" if self.crs else "crs and resolution"
            )
            raise ValueError(
                f"has no {absent}; give crs and resolution (in the units of crs), or modis: 500"
            )
        return self


class Reduction(PartOfDocument):
    """One step of the scientist's own computation: a package, and what one run of it gets.

    `takes` names products (`MOD11A1`), layers of them (`MOD11A1/LST_Day_1km`), earlier steps
    (`daily`) or outputs of them (`daily/et`); if it is empty, the first step takes all products and
    each later one all outputs of the step before it.
    """

    name: Annotated[str, FieldWords(what="the name of a step", remedy=f"{_NAME} daily-et.")] = (
        Field("", pattern=rf"^$|^{NAME}$")
    )
    package: Annotated[
        str,
        FieldWords(what="the name of a package", remedy=f"{_NAME} monthly-mean.", label="Package"),
    ] = Field(pattern=PATTERN)
    group_by: Annotated[
        tuple[str, ...],
        FieldWords(
            what="a way to group",
            remedy="Write cell and a window of time, like date, 8-day, month, season: "
            "[cell, month].",
            label="Group",
        ),
    ] = ("cell", "month")
    takes: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=200)], ...],
        FieldWords(
            what="a list of products, layers and earlier steps",
            remedy="Write a list: [MOD11A1, MCD15A2H/Lai_500m, daily-et].",
        ),
    ] = Field((), max_length=100)
    requires: Annotated[
        RequiresField | None,
        FieldWords(
            what="what a run must have",
            remedy="Write any, all, a share of the dates like 0.75, or {dates: 0.75, pixels: 0.5}.",
        ),
    ] = None
    parameters: Annotated[
        dict[
            str,
            Annotated[
                ParameterText,
                FieldWords(what="text", remedy='Write each value as text, in quotes: {name: "5"}.'),
            ],
        ],
        FieldWords(
            what="a list of parameters",
            remedy="Write names with values as text: {name: value}.",
            label="Parameters",
        ),
    ] = Field(default_factory=dict)
    # One run of an own package first, before anything else is spent.
    rehearse: Annotated[bool, YES_NO] = True
    deliver: Annotated[bool, YES_NO] = False  # also if a later step takes its outputs

    @field_validator("group_by")
    @classmethod
    def _groups(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        windows = [g for g in groups if g != "cell"]
        if "cell" not in groups or len(windows) != 1 or not WINDOW.fullmatch(windows[0]):
            raise ValueError(
                f"[{', '.join(groups)}] is not a way to group; name cell and one of date, 8-day "
                "(or another number of days), month, season, year, all, or of a climatology: "
                "day-of-year, 8-day-of-year, month-of-year, season-of-year: [cell, month]"
            )
        return groups

    @property
    def label(self) -> str:
        """Its name, or the package's without owner and version: a folder of the results."""
        return self.name or PackageReference.parse(self.package).name

    @property
    def window_kind(self) -> str:
        """The unit of time by which it groups."""
        return next(group for group in self.group_by if group != "cell")


class Compared(PartOfDocument):
    """The column of measurements that a layer is compared with: scale x measured + offset.

    Where a value stands for several days, `statistic` says whether it is compared with the mean of
    the days' means or with their sum.
    """

    column: Annotated[
        str,
        FieldWords(
            what="a column of the table", remedy="Write its name, as the table's first line does."
        ),
    ] = Field(min_length=1, max_length=100)
    scale: Annotated[float, _NUMBER] = Field(1.0, ge=-1e30, le=1e30)
    offset: Annotated[float, _NUMBER] = Field(0.0, ge=-1e30, le=1e30)
    statistic: Literal["mean", "sum"] = "mean"


def compared(value: object) -> object:
    """Read the name of a column alone as a comparison with it."""
    return {"column": value} if isinstance(value, str) else value


class Measurements(PartOfDocument):
    """Measurements at sites, and the layers that are compared with them.

    `table` is the text of CSV tables (tasks/request/measurements.py); in a file it may also name
    files beside it. `compare` has the layers: `Lai_1km`, `MCD15A2/Lai_1km` or, of a step,
    `daily/et`. `sites` are where, as in a region; a region that is sites says it itself.
    `tolerance` is in minutes. `least_share` is the share of a day's values that its mean needs.
    """

    table: Annotated[
        str,
        FieldWords(
            what="a table of measurements",
            remedy="Give a CSV table: FLUXNET, AmeriFlux BASE, or with columns site, time and "
            "values.",
            label="Table of measurements",
        ),
    ] = ""
    compare: Annotated[
        dict[
            Annotated[str, Field(min_length=1, max_length=200)],
            Annotated[
                Compared,
                BeforeValidator(compared, json_schema_input_type=Compared | str),
                FieldWords(
                    what="a column of the table",
                    remedy="Write its name, or {column: LE_F_MDS, scale: 0.0353}.",
                ),
            ],
        ],
        FieldWords(
            what="layers with columns of the table",
            remedy="Write each layer with its column: {Lai_1km: LAI}.",
            label="The list of compared layers, under Measurements,",
        ),
    ] = Field(min_length=1, max_length=20)
    sites: Annotated[
        str | dict[str, Any] | None,
        FieldWords(what="a table of sites", remedy=f"{SITES}.", label="Sites of the measurements"),
    ] = None
    time_zone: Annotated[
        str,
        FieldWords(
            what="a time zone",
            remedy='Write UTC, or hours ahead of it: "+01:00".',
            label="Time zone",
        ),
    ] = Field("", max_length=10)
    join: Annotated[
        Literal["auto", "overpass", "day"],
        FieldWords(what="a way to join", remedy="Choose auto, overpass or day."),
    ] = "auto"
    tolerance: Annotated[
        int,
        FieldWords(what="a number of minutes", remedy="Write a whole number from 0 to 720."),
    ] = Field(30, ge=0, le=720)
    least_share: Annotated[
        float, FieldWords(what="a share", remedy="Write a number from 0 to 1, like 0.75.")
    ] = Field(0.75, ge=0, le=1)

    @field_validator("sites")
    @classmethod
    def _sites(cls, given: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        if given is not None:
            parse_sites(given)
        return given

    @field_validator("time_zone")
    @classmethod
    def _zone(cls, text: str) -> str:
        if text:
            utc_offset(text)
        return text

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if self.table:
            read_measurements(self.table, self.columns)
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that layers are compared with."""
        return tuple(dict.fromkeys(one.column for one in self.compare.values()))


def _steps(value: object) -> object:
    """Read a single step, which needs no list, as a list of one."""
    if value is None:
        return ()
    return (value,) if isinstance(value, Mapping | Reduction) else value


def _dates(value: object) -> object:
    """Read a single date, which needs no list, as a list of one."""
    if isinstance(value, dt.date) or (isinstance(value, str) and value[:1].isdecimal()):
        return (value,)
    return value


First = Annotated[
    Literal["oldest", "newest"]
    | Annotated[tuple[dt.date, ...], Field(min_length=1, max_length=50)],
    BeforeValidator(
        _dates, json_schema_input_type=Literal["oldest", "newest"] | dt.date | tuple[dt.date, ...]
    ),
    FieldWords(
        what="an order of the results",
        remedy="Write oldest, newest, or a list of up to 50 days of `time`: [2012-01-31].",
        label="Make first",
    ),
]

_PRODUCTS = "Write a list: [{name: MCD15A2, collection: 5, layers: [Lai_1km]}]."
_METHOD = FieldWords(
    what="a method", remedy="Write a method by layer: {Lai_1km: nearest}.", label="Resampling"
)
_QA = "Write best, good, or a rule by QA layer: {FparLai_QC: {MODLAND: [0]}}."
_QaValue = Annotated[
    int, FieldWords(what="a value of a QA field", remedy=f"Values are whole numbers. {_QA}")
]
_QaField = Annotated[tuple[_QaValue, ...], FieldWords(what="a list of values to keep", remedy=_QA)]
_QaRule = Annotated[dict[str, _QaField], FieldWords(what="a rule of a QA layer", remedy=_QA)]
_Step = Annotated[
    Reduction,
    FieldWords(
        what="a step of a reduction",
        remedy="Write {name: monthly, package: monthly-mean, group_by: [cell, month]}.",
    ),
]

_SEARCH_GRID: dict[str, Any] = {"modis": 1000}
_OF_RASTERS = (
    *("resampling", "merge", "units", "codes", "extra_bands", "clamp", "cells", "cube", "weight"),
    *("steps", "deliver", "first"),
)
"""What says something of rasters alone."""


class Request(PartOfDocument):
    """Describe what a scientist submits; docs/requests.md tells every field in full.

    Attributes:
        title: Name for pages and mails, 200 characters at most; "" by default.
        products: Products and their layers, 1 to 20.
        region: `bbox` (west, south, east, north in degrees), MODIS `tiles`, `geojson`, or `sites`.
        time: `start` and `end`, inclusive days in UTC.
        grid: `crs` and `resolution` in its units, or `modis` (250, 500 or 1000 m).
        resampling: Method, or method by layer; None, the default, takes each layer's own.
        merge: As in `Options`.
        qa: As in `Options`.
        mask: As in `Options`.
        units: As in `Options`.
        codes: As in `Options`.
        extra_bands: As in `Options`.
        clamp: As in `Options`.
        cells: Whether the cells are delivered too; False by default.
        cube: "netcdf" or "zarr" also delivers each layer over time; "none" by default.
        weight: "days" weighs composites by their days in reductions; "none" by default.
        on_missing: Whether results lack what is missing ("skip", the default) or fail ("fail").
        first: Which results are made first: "oldest", the default, "newest", or a list of dates.
        steps: The field `reduction`: package, grouping and parameters, or a list of such steps;
            none by default.
        deliver: "results" delivers what the reduction makes alone; "both", the default, also the
            layers on the grid; "inputs" the layers that the reduction takes, and nothing is run;
            "cells" the cells of the results, which are not put together.
        measurements: Measurements at sites, and what is compared with them; none by default.
        notify: Address of a mail at the end; "" by default: none.
        labels: Words to find it by among one's requests, 10 at most; none by default.
        group: The group whose members may read it, `NAME` or `OWNER/NAME`; "" by default: none.
        standing: Days after which it is submitted again as soon as the archive has later days;
            0 by default: never.
    """

    title: Annotated[
        str,
        FieldWords(
            what="a title", remedy="Write one line of at most 200 characters.", label="Title"
        ),
    ] = Field("", max_length=200)
    products: Annotated[
        tuple[
            Annotated[
                ProductChoice, FieldWords(what="a product", remedy=_PRODUCTS, label="Product")
            ],
            ...,
        ],
        FieldWords(what="a list of products", remedy=_PRODUCTS, label="Products"),
    ] = Field(min_length=1, max_length=20)
    region: Annotated[
        Region,
        FieldWords(
            what="a region",
            remedy=f"Give one of {listed(REGION_KINDS)}: {{bbox: [-8.0, 50.5, 6.0, 58.5]}}.",
            label="Region",
        ),
    ]
    time: Annotated[
        Time,
        FieldWords(
            what="a span of days",
            remedy="Write {start: 2012-01-01, end: 2012-04-30}.",
            label="Time",
        ),
    ]
    grid: Annotated[
        GridChoice,
        FieldWords(
            what="a grid",
            remedy='Write {crs: "EPSG:4326", resolution: 0.01} or {modis: 500}.',
            label="Grid",
        ),
    ]
    resampling: Annotated[
        Method | Statistic | dict[str, Annotated[Method | Statistic, _METHOD]] | None, _METHOD
    ] = None
    merge: Annotated[Merge, FieldWords(label="Where granules overlap")] = "nadir"
    qa: Annotated[
        Literal["best", "good"] | dict[str, _QaRule] | None,
        FieldWords(what="a quality rule", remedy=_QA, label="Quality"),
    ] = None
    mask: Annotated[bool, replace(YES_NO, label="Mask")] = True
    units: Annotated[Literal["stored", "physical", "brightness"], FieldWords(label="Values")] = (
        "stored"
    )
    codes: Annotated[Literal["mask", "keep"], FieldWords(label="Special codes")] = "mask"
    extra_bands: Annotated[
        tuple[Literal["count", "source", "reason"], ...],
        FieldWords(
            what="a list of bands",
            remedy="Choose any of count, source, reason: [count].",
            label="Extra bands",
        ),
    ] = ()
    clamp: Annotated[bool, replace(YES_NO, label="Hold to the valid range")] = False
    cells: Annotated[bool, replace(YES_NO, label="Cells")] = False
    cube: Annotated[Literal["none", "netcdf", "zarr"], FieldWords(label="Layers over time")] = (
        "none"
    )
    weight: Annotated[Literal["none", "days"], FieldWords(label="Composites")] = "none"
    on_missing: Annotated[Literal["skip", "fail"], FieldWords(label="When an input is missing")] = (
        "skip"
    )
    first: First = "oldest"
    steps: Annotated[
        tuple[_Step, ...],
        BeforeValidator(_steps, json_schema_input_type=Reduction | tuple[Reduction, ...] | None),
        FieldWords(
            what="a reduction",
            remedy="Write {package: monthly-mean, group_by: [cell, month]}, or a list of such "
            "steps.",
            label="Reduction",
        ),
    ] = Field((), alias="reduction", max_length=20)
    deliver: Annotated[Deliver, FieldWords(label="Deliver")] = "both"
    measurements: Annotated[
        Measurements | None,
        FieldWords(
            what="measurements to compare with",
            remedy="Write {table: towers.csv, compare: {Lai_1km: LAI}}.",
            label="Measurements",
        ),
    ] = None
    notify: Annotated[
        str,
        FieldWords(
            what="an e-mail address",
            remedy="Write one address, like scientist@example.org.",
            label="Mail",
        ),
    ] = Field("", pattern=rf"^$|^{ADDRESS}$", max_length=LONGEST)
    labels: Labels = ()
    group: Annotated[
        str,
        FieldWords(what="the name of a group", remedy=f"{_NAME} forest-team.", label="Group"),
    ] = Field("", pattern=rf"^$|^(?:{OWNER}/)?{NAME}$")
    standing: Annotated[
        int,
        FieldWords(
            what="a number of days",
            remedy="Write a whole number from 1 to 366; 0: it does not stand.",
            label="Go on with new data",
        ),
    ] = Field(0, ge=0, le=366)

    model_config = ConfigDict(serialize_by_alias=True)

    @model_serializer(mode="wrap")
    def _one_or_many(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write a single step without a list."""
        found: dict[str, Any] = handler(self)
        steps = found.get("reduction")
        if steps is not None and len(steps) == 1:
            (found["reduction"],) = steps
        return found

    @model_validator(mode="before")
    @classmethod
    def _bridged(cls, document: object) -> object:
        """Write the bridge of a record as a reduction, which all that follows knows."""
        return with_bridge(document)

    @model_validator(mode="before")
    @classmethod
    def _without_grid(cls, document: object) -> object:
        """Sites are read in the granules' own pixels: the grid serves the search alone."""
        if not isinstance(document, dict) or "grid" in document:
            return document
        region = document.get("region")
        if isinstance(region, dict) and any(region.get(kind) is not None for kind in IN_PLACE):
            return {**document, "grid": _SEARCH_GRID}
        return document

    @model_validator(mode="after")
    def _only_in_place(self) -> Self:
        if not self.region.in_place:
            return self
        usual = Request.model_fields
        given = [
            usual[name].alias or name
            for name in _OF_RASTERS
            if getattr(self, name) != usual[name].default
        ]
        given += ["grid"] if self.grid != GridChoice(**_SEARCH_GRID) else []
        given += ["region.clip"] if self.region.clip else []
        given += ["overpasses"] if any(one.overpasses != "merged" for one in self.products) else []
        if given:
            raise ValueError(
                f"`{given[0]}` has no meaning for {self.region.kind}, which are read in the "
                "granules' own pixels; leave it out"
            )
        return self

    @field_validator("first")
    @classmethod
    def _first_within(cls, first: First, info: ValidationInfo) -> First:
        time = info.data.get("time")
        if isinstance(first, tuple) and isinstance(time, Time):
            for day in first:
                if not time.holds(day):
                    raise ValueError(f"{day} is not among the days of `time`; leave it out")
        return first

    @model_validator(mode="after")
    def _joined(self) -> Self:
        if self.deliver == "cells" and self.cube != "none":
            raise ValueError(
                f"`cube: {self.cube}` is made of the rasters that `deliver: cells` leaves out; "
                "leave one of them out, or write `cells: true` for both"
            )
        if self.steps:
            return self
        if self.deliver == "results":
            raise ValueError(
                "`deliver: results` delivers what a reduction makes, and there is no reduction; "
                "name one or leave `deliver` out"
            )
        for choice in self.products:
            if choice.use != "same-day":
                raise ValueError(
                    f"`use: {choice.use}` of {choice.name} says which dates a reduction takes, and "
                    "there is no reduction; name one or leave `use` out"
                )
        return self

    def delivers(self, day: dt.date) -> bool:
        """Say whether the layers of a day are delivered, whatever a reduction takes.

        Args:
            day: A day, in UTC.
        """
        return (self.deliver == "both" or not self.steps) and self.time.holds(day)

    def delivers_layers(self, day: dt.date) -> bool:
        """Say whether the layers of a day are delivered, which is planned for whatever purpose.

        Args:
            day: A day, in UTC.
        """
        return self.delivers(day) or self.deliver == "inputs"

    @property
    def read_at(self) -> str | dict[str, Any] | None:
        """The sites at which layers are read; None if there are none."""
        if self.region.sites is not None:
            return self.region.sites
        return self.measurements.sites if self.measurements is not None else None

    @property
    def hands_over_cells(self) -> bool:
        """Say whether cells are among the results."""
        return self.cells or self.deliver == "cells"

    @property
    def makes_rasters(self) -> bool:
        """Say whether cells are put together into rasters."""
        return self.deliver != "cells"


UNPLANNED = frozenset({"title", "notify", "labels", "group", "standing", "first"})
"""The fields that no task depends on: two requests that differ in them alone have equal plans."""

GUIDE = ModelGuide(
    Request,
    FieldWords(
        what="a request document",
        remedy="A request names its fields: products, region, time and grid. Copy an example.",
        label="The document",
    ),
    also={ProductChoice: ("record",)},
)
"""What each field takes, for messages, and what the form calls it."""


def parse_request(document: object) -> Request:
    """Parse a request from a decoded document.

    Raises:
        RequestRefusedError: the document has an error. The message names the first offending field,
            what is wrong and what to do; the other errors of the document are with it. Misspelt
            fields come first.
    """
    try:
        return Request.model_validate(document)
    except ValidationError as error:
        raise refusal(error, document, GUIDE) from None


def dump_request(request: Request) -> str:
    """Format the request as JSON text, without what was left at its default."""
    return json.dumps(request.model_dump(mode="json", exclude_defaults=True))
