"""Records: products of several sensors that go on with one another, kept as data in YAML.

One file per record lies beside this module. It names the products in order of preference, each in
one collection, and which layer of each is which layer of the record. Which of them has a date is
known only where granules are listed; nothing here says when a sensor ends.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modis.collection import versioned
from modis.yaml_text import load_own_yaml
from reprojection.catalogue import LayerEntry, Product, product
from reprojection.catalogue.layers import LayerKind
from reprojection.errors import CatalogueError

PREFIX = "record:"
"""Before the name of a record where products are named: `record:ndvi-16day`."""

NAME = r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*"
"""How records are called."""

Preset = Literal["best", "good"]
PRESETS: tuple[Preset, ...] = ("best", "good")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sensor(_Entry):
    """An instrument on a satellite; its products begin with `code`. `since` is its first day."""

    code: str
    platform: str
    instrument: str
    since: date
    crossing: str = ""

    @property
    def text(self) -> str:
        """Name it for people: "Terra MODIS"."""
        return f"{self.platform} {self.instrument}"


_SENSORS = {
    one.code: one
    for one in (
        Sensor(
            code="MOD",
            platform="Terra",
            instrument="MODIS",
            since=date(2000, 2, 18),
            crossing="10:30, since 2020 earlier each year",
        ),
        Sensor(
            code="MYD",
            platform="Aqua",
            instrument="MODIS",
            since=date(2002, 7, 4),
            crossing="13:30, since 2021 later each year",
        ),
        Sensor(code="MCD", platform="Terra and Aqua", instrument="MODIS", since=date(2000, 2, 18)),
        Sensor(
            code="VNP",
            platform="Suomi NPP",
            instrument="VIIRS",
            since=date(2012, 1, 17),
            crossing="13:30",
        ),
        Sensor(
            code="VJ1",
            platform="NOAA-20",
            instrument="VIIRS",
            since=date(2018, 1, 1),
            crossing="13:30, half an orbit from Suomi NPP",
        ),
        Sensor(
            code="VJ2",
            platform="NOAA-21",
            instrument="VIIRS",
            since=date(2023, 2, 10),
            crossing="13:30, a quarter of an orbit from NOAA-20",
        ),
    )
}
# What names hold that begin otherwise.
_SPELT = {
    "MODIS_T": "MOD",
    "MODIST_": "MOD",
    "MODIS_A": "MYD",
    "MODISA_": "MYD",
    "VIIRS_NPP": "VNP",
    "VIIRS_SNPP": "VNP",
    "VIIRSN_": "VNP",
    "VIIRS_JPSS1": "VJ1",
    "VIIRS_N20": "VJ1",
    "VIIRS_NOAA20": "VJ1",
    "VIIRSJ1_": "VJ1",
    "VIIRS_N21": "VJ2",
    "VIIRS_NOAA21": "VJ2",
    "VIIRSJ2_": "VJ2",
}


def sensor_of(name: str) -> Sensor | None:
    """Return the sensor of a product by its name; None if the name tells none."""
    spelt = (code for part, code in _SPELT.items() if part in name)
    return _SENSORS.get(next(spelt, name[:3]))


class RecordLayer(_Entry):
    """A layer of a record: the name that most products have for it, its unit and what it is."""

    name: str
    units: str = ""
    title: str = ""


class Member(_Entry):
    """A product of a record in one collection; `names` are its layers that are named otherwise."""

    product: str
    collection: str
    names: dict[str, str] = Field(default_factory=dict)

    @property
    def sensor(self) -> Sensor | None:
        """The sensor that it is of."""
        return sensor_of(self.product)

    @property
    def text(self) -> str:
        """Name it as data centres do: "MOD13A2.061"."""
        return versioned(self.product, self.collection)

    @property
    def entry(self) -> Product | None:
        """Its entry in the catalogue; None: it has none."""
        return product(self.product, self.collection)


class Record(_Entry):
    """Products that go on with one another.

    `every` counts the days between two dates of the record, from each January 1st; a composite
    stands for its own first day. `members` are in order of preference. `evidence` says on what it
    rests that the layers are one quantity, `differs` what does change from sensor to sensor.
    `begins` is the first day where it is later than the first of a sensor.
    """

    name: str = Field(pattern=f"^{NAME}$")
    title: str = Field(min_length=1)
    keywords: str = ""
    every: int = Field(ge=1, le=366)
    layers: dict[str, RecordLayer] = Field(min_length=1)
    members: tuple[Member, ...] = Field(min_length=2)
    evidence: str = Field(min_length=40)
    differs: str = Field(min_length=20)
    begins: date | None = None

    def layer_of(self, member: Member, layer: str) -> str:
        """Return what a product calls a layer of the record."""
        return member.names.get(layer, self.layers[layer].name)

    def entry_of(self, member: Member, layer: str) -> LayerEntry | None:
        """Return what the catalogue says of a layer of a product; None: nothing."""
        known = member.entry
        return known.layer(self.layer_of(member, layer)) if known else None

    def kind_of(self, layer: str) -> LayerKind:
        """Return the kind of a layer: whether its values may be blended."""
        found = self.entry_of(self.members[0], layer)
        return found.kind if found else LayerKind.CONTINUOUS

    def rules(self, layer: str) -> tuple[Preset, ...]:
        """List the QA rules in words that mean alike for a layer of each sensor.

        A word is none that one product lacks, or by which some leave clouds out and others do not:
        the record would change with its sensors.
        """
        presets = [_presets(member, self, layer) for member in self.members]
        return tuple(
            word
            for word in PRESETS
            if all(word in own for own in presets)
            and len({_sees_clouds(own[word]) for own in presets}) == 1
        )

    @property
    def since(self) -> date:
        """The first day of the record, or of the first of its sensors."""
        first = min(one.sensor.since for one in self.members if one.sensor is not None)
        return self.begins or first

    @property
    def sensors(self) -> tuple[str, ...]:
        """Its sensors, for people, in order of preference."""
        named = (one.sensor.text for one in self.members if one.sensor is not None)
        return tuple(dict.fromkeys(named))

    @property
    def is_swath(self) -> bool:
        """Say whether its products are swaths."""
        return any(one.entry is not None and one.entry.geometry == "swath" for one in self.members)


def _presets(member: Member, record: Record, layer: str) -> Mapping[str, Iterable[str]]:
    """Return the rules in words of a product's layer, each with the fields that it looks at."""
    entry, known = record.entry_of(member, layer), member.entry
    if entry is None or known is None or entry.qa is None:
        return {}
    quality = known.layer(entry.qa)
    return quality.presets if quality is not None else {}


def _sees_clouds(fields: Iterable[str]) -> bool:
    return any("cloud" in name.casefold() for name in fields)


@lru_cache(maxsize=1)
def records() -> dict[str, Record]:
    """Return every record by its name; raise CatalogueError for a file that is none."""
    return {one.name: one for one in _read()}


def record(name: str) -> Record | None:
    """Return a record, named with or without its prefix; None if there is none."""
    return records().get(name.removeprefix(PREFIX))


def _read() -> Iterator[Record]:
    for file in sorted(files(__name__).iterdir(), key=lambda one: one.name):
        if file.name.endswith(".yaml"):
            yield read_record(file.name, file.read_text(encoding="utf-8"))


def read_record(file_name: str, text: str) -> Record:
    """Read a record's file; raise CatalogueError where it breaks the schema."""
    try:
        said = load_own_yaml(text)
        own = {"name": file_name.removesuffix(".yaml")}
        found = Record.model_validate({**own, **said} if isinstance(said, dict) else said)
    except (yaml.YAMLError, ValidationError) as error:
        raise CatalogueError(f"{file_name} of the records: {error}") from None
    if f"{found.name}.yaml" != file_name:
        raise CatalogueError(f"{file_name} of the records holds {found.name}; call them alike")
    return found
