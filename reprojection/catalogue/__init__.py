"""The product catalogue: what Swathmill knows about MODIS products, kept as data in YAML.

One file per product family lies beside this module. A product without an entry still works from the
attributes of its files; an entry adds what the attributes omit or state wrongly.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from itertools import product as product_of
from typing import Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from modis.collection import Collection
from modis.granule_name import standard_product
from modis.yaml_text import load_own_yaml
from reprojection.catalogue.layers import LayerKind, Scaling, split_index
from reprojection.errors import CatalogueError
from reprojection.resampling import Method

Geometry = Literal["swath", "tile", "globe", "outlined", "raster"]
"""A globe is one file of a date, on a geographic grid around the Earth (climate modelling grid);
outlined are tiles of other grids (EASE-Grid, Black Marble), which lie where their outline says; a
raster is a user's own file of all dates (`reprojection/catalogue/user_raster.py`)."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class BitField(_Entry):
    """A range of bits of a QA layer: first bit (0 is the least of byte 0), length, meanings.

    In a layer of several QA bytes, bit 8 is the first bit of the second byte, and so on.
    """

    start: int = Field(ge=0, lt=512)
    length: int = Field(ge=1, le=32)
    values: dict[int, str] = Field(default_factory=dict)


class Axis(_Entry):
    """An axis that a layer has besides rows and columns: what it runs over, and how far.

    `of` is one word for what tells its bands apart (wavelength, pressure level, day, orbit).
    `names` are those of its bands, where they have some; then they give the length. An axis without
    a length is as long as each granule makes it. Of an axis of orbits, `cosines` names the layer
    with the cosine of each orbit's view zenith angle.
    """

    of: str = Field(min_length=1)
    length: int | None = Field(None, ge=1)
    names: tuple[str, ...] = ()
    cosines: str = ""

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, said: object) -> object:
        if isinstance(said, dict) and "names" in said and "length" not in said:
            return {**said, "length": len(said["names"])}
        return said

    @model_validator(mode="after")
    def _all_named(self) -> Self:
        if self.names and len(self.names) != self.length:
            raise ValueError(f"{self.length} bands have {len(self.names)} names")
        return self

    def band(self, number: int) -> str:
        """Say which band this is: "wavelength 0.55 um", "day 3 of 8"."""
        if self.names:
            return f"{self.of} {self.names[number]}"
        if self.length is None:
            return f"{self.of} {number + 1}"
        return f"{self.of} {number + 1} of {self.length}"


class LayerEntry(_Entry):
    """The catalogue's entry for one layer; absent fields are taken from the file.

    `codes` are stored values that are not data, `classes` name the values of a class layer.
    `resolution` is the layer's own in metres if it differs from its product's. `scaled_by` says by
    which scales and offsets of each band (`reflectance_scales`) physical values are made. Of
    radiances, `planck` has the central wavenumber (1/cm), slope and intercept (K) of each band, by
    the first three letters of the product; `temperatures` names the file's own table of brightness
    temperatures, with `*` for the layer's name. `solar_time` names the layer that says when a pixel
    was seen, in hours of the local solar time: UTC + longitude / 15 degrees. `geolocation` names
    the product that says where this layer's pixels lie if it is not its product's, with `?` for the
    first three letters of the product.
    """

    kind: LayerKind = LayerKind.CONTINUOUS
    codes: dict[int, str] = Field(default_factory=dict)
    classes: dict[int, str] = Field(default_factory=dict)
    resampling: Method | None = None
    qa: str | None = None
    solar_time: str = ""
    bits: dict[str, BitField] = Field(default_factory=dict)
    presets: dict[str, dict[str, list[int]]] = Field(default_factory=dict)
    scaling: Scaling | None = None
    scale: float | None = None
    offset: float | None = None
    units: str | None = None
    fill: float | int | None = None
    valid_range: tuple[int | float, int | float] | None = None
    resolution: float | None = Field(None, gt=0)
    scaled_by: Literal["reflectance", "radiance"] | None = None
    planck: dict[str, tuple[tuple[float, float, float], ...]] = Field(default_factory=dict)
    temperatures: str = ""
    geolocation: str = ""
    title: str = ""

    @field_validator("codes", "classes", mode="before")
    @classmethod
    def _spread_ranges(cls, codes: object) -> object:
        """Expand an entry that names a range of codes: `"33-254": unused`."""
        if not isinstance(codes, dict):
            return codes
        spread: dict[int, str] = {}
        for key, meaning in codes.items():
            low, dash, high = str(key).partition("-")
            last = int(high) if dash and low else int(key) if not low else int(low)
            for code in range(int(low) if low else int(key), last + 1):
                spread[code] = meaning
        return spread

    @model_validator(mode="after")
    def _presets_name_bits(self) -> Self:
        for preset, rule in self.presets.items():
            for name in rule:
                if name not in self.bits and name != "value":
                    raise ValueError(f"preset {preset!r} names the bit field {name!r}, not in bits")
        return self


@dataclass(frozen=True, kw_only=True)
class LayerFacts:
    """All that the catalogue says of a layer, or of one band of it.

    `name` is that of the whole layer, `index` the band's, empty for the whole. `entry` is None
    where nothing describes the layer; if `is_listed`, its product has it. `resolution` is in
    metres, None: not known. `axes` are those besides rows and columns, empty if none is known.
    `presets` are the rules in words over the layer that holds its quality. `geolocation` names the
    product whose granules say where its pixels lie, "" if none is needed. `solar_time` names the
    layer that says when its pixels were seen, "" where there is none: composites of several days
    say a mean time, which is no moment.
    """

    name: str
    index: tuple[int, ...] = ()
    entry: LayerEntry | None = None
    is_listed: bool = False
    resolution: float | None = None
    axes: tuple[Axis, ...] = ()
    presets: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    geolocation: str = ""
    solar_time: str = ""

    @property
    def is_quality(self) -> bool:
        """Say whether it is itself a quality layer, which a preset leaves as it is."""
        entry = self.entry
        return entry is not None and (
            entry.kind is LayerKind.BITFIELD or bool(entry.presets) or bool(entry.bits)
        )

    @property
    def bands(self) -> tuple[int, ...]:
        """The lengths of the layer's further axes; empty if one is unknown."""
        lengths = tuple(axis.length for axis in self.axes)
        return tuple(length for length in lengths if length) if all(lengths) else ()

    @property
    def days(self) -> int:
        """The number of days it holds, each in a band of its own; 1 for a named band."""
        axis = self._of("day")
        return (axis.length or 1) if axis is not None else 1

    @property
    def orbits(self) -> Axis | None:
        """The axis of orbits of a layer whose name names none of them, else None."""
        return self._of("orbit")

    def _of(self, what: str) -> Axis | None:
        whole = len(self.axes) == 1 and not self.index
        return self.axes[0] if whole and self.axes[0].of == what else None

    @property
    def band_names(self) -> tuple[str, ...]:
        """The bands of the layer as layers of their own, `Name[0]`; empty if none is known."""
        every = product_of(*(range(length) for length in self.bands))
        return tuple(f"{self.name}[{','.join(map(str, index))}]" for index in every if index)

    @property
    def band(self) -> str:
        """The band that `index` names, for people; "" for a layer without known bands."""
        if len(self.index) != len(self.axes):
            return ""
        return ", ".join(axis.band(at) for axis, at in zip(self.axes, self.index, strict=True))

    def default_resampling(self, coarser_by: float = 1.0) -> Method:
        """Choose the method for a layer whose request names none.

        `coarser_by` is the target's pixel size divided by the layer's own. A layer that the
        catalogue does not list counts as continuous; where its kind matters, call the module's
        `default_resampling`.
        """
        if self.entry is None:
            return default_resampling(LayerKind.CONTINUOUS, coarser_by)
        return self.entry.resampling or default_resampling(self.entry.kind, coarser_by)


class Product(_Entry):
    """A data product: one short name and the collections that share this description.

    `period` counts the days from one granule to the next, `covers` those that a granule covers (a
    linter holds that to the range dates of real files), `phase` those from January 1st to the
    year's first granule. `geolocation` names the
    product whose granules say where this one's pixels lie. `bands` holds the axes that layers have
    besides rows and columns, as far as known. Each band is a layer of its own, `Name[0]`.
    `keywords` are words by which people search for the family's products, besides those of the
    title. `source` names the document that the entry is taken from, and the part of it. `dois` has
    the DOI of each collection, as far as it is certain, with `*` for the product's name, and
    `standard_names` the CF conventions' names of the quantities that layers hold, by pattern.
    """

    name: str
    collections: tuple[str, ...]
    family: str
    source: str = ""
    keywords: str = ""
    title: str
    geometry: Geometry
    resolution: float = Field(gt=0)
    period: int = Field(ge=1)
    covers: int = Field(ge=1)
    scaling: Scaling
    layers: dict[str, LayerEntry]
    bands: dict[str, tuple[Axis, ...]] = Field(default_factory=dict)
    listed: tuple[str, ...] = ()
    phase: int = 0
    geolocation: str = ""
    dois: dict[str, str] = Field(default_factory=dict)
    standard_names: dict[str, str] = Field(default_factory=dict)

    def standard_name(self, name: str) -> str:
        """Return the CF conventions' name of what a layer holds; "" if none is known."""
        base = split_index(name)[0]
        found = (word for at, word in self.standard_names.items() if fnmatchcase(base, at))
        return next(found, "")

    def doi(self, collection: str) -> str:
        """Return the DOI of a collection of this product; "" if it is not certain."""
        return self.dois.get(Collection(collection), "").replace("*", self.name)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The layers to offer, spelt as in the files; a granule may hold more."""
        plain = tuple(name for name in self.layers if not set(name) & set("*?"))
        return self.listed + tuple(name for name in plain if name not in self.listed)

    def layer(self, name: str) -> LayerEntry | None:
        """Find the entry for a layer; exact names take precedence over names with wildcards.

        If a pattern holds one `*`, a `*` in its `qa` stands for the same text.
        """
        base = split_index(name)[0]
        if base in self.layers:
            return self.layers[base]
        for pattern, entry in self.layers.items():
            if fnmatchcase(base, pattern):
                return _with_qa_filled(entry, pattern, base)
        return None

    def facts(self, name: str) -> LayerFacts:
        """Look up all that is known of a layer, or of the band that `Name[index]` names."""
        base, index = split_index(name)
        entry = self.layer(base)
        quality = self.layer(entry.qa) if entry is not None and entry.qa is not None else None
        axes = next((found for at, found in self.bands.items() if fnmatchcase(base, at)), ())
        own = entry.geolocation if entry is not None else ""
        return LayerFacts(
            name=base,
            index=index,
            entry=entry,
            is_listed=entry is not None or base in self.listed,
            resolution=(entry.resolution if entry is not None else None) or self.resolution,
            axes=self.bands.get(base, axes),
            presets=quality.presets if quality is not None else {},
            geolocation=own.replace("?", self.name[:3]) or self.geolocation,
            solar_time=entry.solar_time if entry is not None and self.period == 1 else "",
        )

    @property
    def geolocations(self) -> tuple[str, ...]:
        """The products whose granules say where the pixels of one layer or another lie."""
        every = [self.geolocation, *(self.facts(name).geolocation for name in self.layers)]
        return tuple(name for name in dict.fromkeys(every) if name)


def _with_qa_filled(entry: LayerEntry, pattern: str, name: str) -> LayerEntry:
    if entry.qa is None or "*" not in entry.qa:
        return entry
    before, _, after = pattern.partition("*")
    matched = name[len(before) : len(name) - len(after)]
    return entry.model_copy(update={"qa": entry.qa.replace("*", matched)})


def default_resampling(kind: LayerKind, coarser_by: float = 1.0) -> Method:
    """Choose bilinear for continuous layers, else nearest, or mode if at least 2x coarser."""
    if kind is LayerKind.CONTINUOUS:
        return "bilinear"
    return "mode" if coarser_by >= 2.0 else "nearest"


class _Group(_Entry):
    """Products of a family that share a description, as written in YAML."""

    names: list[str]
    collections: list[str]
    title: str
    source: str = ""
    geometry: Geometry
    resolution: float
    period: int = 1
    covers: int | None = None  # days; the period where it is absent
    scaling: Scaling | None = None
    layers: dict[str, LayerEntry]
    bands: dict[str, tuple[Axis, ...]] = Field(default_factory=dict)
    # Names that match only a wildcard of `layers`; listed here so that they can be offered.
    listed: list[str] = Field(default_factory=list)
    phase: int | None = Field(None, ge=0, lt=366)
    geolocation: str = ""

    def phase_of(self, name: str) -> int:
        """Return the days from January 1st to the year's first granule.

        Aqua's 16-day composites start 8 days after Terra's (MOD13 User's Guide).
        """
        if self.phase is not None:
            return self.phase
        return 8 if self.period == 16 and name.startswith("MYD") else 0


class _Family(_Entry):
    family: str
    source: str
    keywords: str = ""
    scaling: Scaling = Scaling.ADD
    standard_names: dict[str, str] = Field(default_factory=dict)
    dois: dict[str, str] = Field(default_factory=dict)
    products: list[_Group]
    # YAML anchors must be defined somewhere before they are used.
    shared: object = None


@lru_cache(maxsize=1)
def products() -> list[Product]:
    """List every product of the catalogue, by name."""
    names = [file.name for file in files(__name__).iterdir() if file.name.endswith(".yaml")]
    found = [item for name in names for item in _read_family(name)]
    return sorted(found, key=lambda item: (item.name, item.collections))


@lru_cache(maxsize=64)
def _read_family(file_name: str) -> tuple[Product, ...]:
    file = files(__name__) / file_name
    if not file.is_file():
        return ()
    return read_family(file_name, file.read_text(encoding="utf-8"))


def read_family(file_name: str, text: str) -> tuple[Product, ...]:
    """Read a file's products; raise CatalogueError where it breaks the schema."""
    try:
        family = _Family.model_validate(load_own_yaml(text))
    except (yaml.YAMLError, ValidationError) as error:
        raise CatalogueError(
            f"{file_name} of the catalogue: {error}; docs/reading.md lists the keys"
        ) from None
    return tuple(
        Product(
            name=name,
            collections=tuple(map(Collection, group.collections)),
            family=family.family,
            source=group.source or family.source,
            keywords=family.keywords,
            title=group.title,
            geometry=group.geometry,
            resolution=group.resolution,
            period=group.period,
            covers=group.covers or group.period,
            scaling=group.scaling or family.scaling,
            layers=group.layers,
            bands=group.bands,
            listed=tuple(group.listed),
            phase=group.phase_of(name),
            geolocation=group.geolocation.replace("?", name[:3]),
            standard_names=family.standard_names,
            dois=family.dois,
        )
        for group in family.products
        for name in group.names
    )


def collections_beside(name: str, collection: str) -> tuple[str, ...]:
    """List the collections of a product in which to look for what belongs to a collection.

    The same one is first, then the newest. Numbers differ between products: granules of VJ109 in
    collection 2 lie where those of VJ103MOD in collection 2.1 say.
    """
    own = Collection(collection)
    every = {one for item in products() if item.name == name for one in item.collections}
    others = sorted(every - {own}, key=lambda one: Collection(one).age, reverse=True)
    return (own, *others)


def product(name: str, collection: str) -> Product | None:
    """Find the entry of a product in a collection; return None if there is none.

    "6.1", "061" and "61" name the same collection. The near real time edition of a product has its
    entry: `VNP09GA_NRT`, `MCD19A2N`, and `MOD09GA` in collection `6.1NRT`.
    """
    wanted = Collection(collection.removesuffix("NRT"))
    name = standard_product(name)
    # One file per family, so that opening a granule does not read the whole catalogue.
    candidates = _read_family(_file_of(name))
    return next(
        (item for item in candidates if item.name == name and wanted in item.collections), None
    )


def _file_of(name: str) -> str:
    """Name the file that a product would stand in; "" if its name is of no family."""
    # The number follows instrument and platform: MOD, MYD, MCD; VNP, VJ1, VJ2.
    family = re.match(r"(?:[A-Z]{3}|VJ\d)(\d{2})", name)
    if family is not None:
        return f"mod{family[1]}.yaml"
    if re.match(r"X?AERDT_L2_", name):
        return "aerdt.yaml"
    if "_L3m_" in name:
        return "ocean.yaml"
    return "ghrsst.yaml" if name.endswith("-L2P") else ""
