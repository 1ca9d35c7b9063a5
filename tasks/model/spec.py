"""What a task makes: one immutable specification per task, from the planner to the worker.

A specification's `identity()` is what its task key is computed from: everything that determines
the artifact and nothing else (no URL, owner or request).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import date
from functools import cache, cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tasks.model.keys import canonical, key_of
from tasks.model.model import Phase

ALGORITHM = 1  # raise it when the same specification would make other bytes


_quoted = json.encoder.encode_basestring_ascii


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Input(_Model):
    """A task this one waits for; `file` picks one file of its artifact, empty: all of them."""

    key: str
    name: str = ""  # for people and for names in manifests, not part of the identity
    file: str = ""

    @cached_property
    def text(self) -> str:
        """What of it is part of an identity, as canonical JSON."""
        return f"[{_quoted(self.key)},{_quoted(self.file)}]"


class GridSpec(_Model):
    """A grid: CRS text, affine (a, b, c, d, e, f) with x = a*col + b*row + c, columns, rows."""

    crs: str
    transform: tuple[float, float, float, float, float, float]
    width: int
    height: int

    @cached_property
    def text(self) -> str:
        """The grid as canonical JSON; thousands of tasks share one grid."""
        return canonical(self.model_dump()).decode("ascii")


def _text(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, GridSpec):
        return value.text
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if value == ():
        return "[]"
    return canonical(value).decode("ascii")


@cache
def _frame(kind: type[BaseModel], left_out: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """The fields of an identity in their order, each with the text before its value."""
    names = sorted({*kind.model_fields, "algorithm"} - left_out)
    frame = []
    before = "{"
    for name in names:
        before += f'"{name}":'
        if name == "algorithm":
            before += f"{ALGORITHM},"
            continue
        frame.append((name, before))
        before = ","
    return tuple(frame)


class _Spec(_Model, ABC):
    inputs: tuple[Input, ...] = ()

    @property
    @abstractmethod
    def phase(self) -> Phase:
        """The phase the task belongs to."""

    @property
    @abstractmethod
    def task_class(self) -> str:
        """What has one historical mean: phase, product, resolution, reduction package."""

    not_identity: ClassVar[frozenset[str]] = frozenset()
    """Fields that do not determine the artifact."""

    @property
    def identity(self) -> str:
        """All that determines the artifact, as the text `tasks.model.keys.canonical` would make. Where
        very many keys are needed, `tasks.model.patterns` makes them."""
        values = self.__dict__
        parts = []
        for name, before in _frame(type(self), self.not_identity):
            value = values[name]
            if name == "inputs":
                text = self._inputs
            else:
                text = _quoted(value) if value.__class__ is str else _text(value)
            parts.append(before + text)
        return "".join(parts) + "}"

    @property
    def _inputs(self) -> str:
        return "[" + ",".join([given.text for given in self.inputs]) + "]"

    @property
    def key(self) -> str:
        """The task key."""
        return key_of(self.identity)

    def over(self, kept: Mapping[int, Input]) -> Self:
        """The same task over fewer or other inputs: index among the present inputs -> input."""
        return self.model_copy(update={"inputs": tuple(kept[i] for i in sorted(kept))})


class CollectSpec(_Spec):
    """Fetch one granule into the store. Identity: product, collection and granule name, which
    holds its production time."""

    not_identity: ClassVar[frozenset[str]] = frozenset(
        {"source", "url", "size", "checksum", "checksum_type"}
    )

    kind: Literal["collect"] = "collect"
    product: str
    collection: str
    granule: str
    production: str
    source: str = ""  # which archive
    url: str = ""
    size: int = 0
    checksum: str = ""
    checksum_type: str = ""

    @property
    def phase(self) -> Phase:
        return Phase.COLLECTION

    @property
    def task_class(self) -> str:
        return f"collection {self.product}.{self.collection}"


class ReprojectSpec(_Spec):
    """Put one layer of one date's granules onto one cell: one GeoTIFF, `cell.tif`.

    Inputs are the granules' collection tasks, sorted by granule name.
    """

    kind: Literal["reproject"] = "reproject"
    product: str
    collection: str
    layer: str
    day: date
    grid: GridSpec
    resampling: str  # resolved by the planner; "default": by the file's attributes
    merge: str = "nadir"
    qa: str = ""  # canonical JSON of the QA rule, or a preset's name
    mask: bool = True
    units: Literal["stored", "physical"] = "stored"
    codes: Literal["mask", "keep"] = "mask"
    extra_bands: tuple[str, ...] = ()
    day_night: Literal["any", "day", "night"] = "any"

    @property
    def phase(self) -> Phase:
        return Phase.REPROJECTION

    @property
    def task_class(self) -> str:
        return f"reprojection {self.product}.{self.collection} {abs(self.grid.transform[0]):g}"


class MosaicSpec(_Spec):
    """Assemble cells into one Cloud Optimized GeoTIFF cropped to a region: `<name>.tif` and its
    STAC item `<name>.json`."""

    kind: Literal["mosaic"] = "mosaic"
    name: str  # file name without ending
    grid: GridSpec
    clip: str = ""  # GeoJSON geometry in longitude/latitude; empty: no clipping
    day: date | None = None

    @property
    def phase(self) -> Phase:
        return Phase.AGGREGATION

    @property
    def task_class(self) -> str:
        return f"aggregation mosaic {abs(self.grid.transform[0]):g}"


class CubeSpec(_Spec):
    """Put the rasters of one layer of all dates into one file over time: `<name>.nc`, CF NetCDF, or
    `<name>.zarr.zip`, Zarr.

    `days` runs parallel to `inputs`: the first day of each.
    """

    kind: Literal["cube"] = "cube"
    name: str  # file name without ending
    form: Literal["netcdf", "zarr"]
    grid: GridSpec
    days: tuple[date, ...]

    @property
    def phase(self) -> Phase:
        return Phase.AGGREGATION

    @property
    def task_class(self) -> str:
        return f"aggregation cube {self.form}"

    def over(self, kept: Mapping[int, Input]) -> Self:
        days = tuple(self.days[i] for i in sorted(kept))
        return super().over(kept).model_copy(update={"days": days})


class Band(_Model):
    """One input raster of a group: which layer of which product, on which day, in which cell."""

    product: str
    collection: str
    layer: str
    day: date
    cell: str
    weight: float = 1.0  # days of the composite inside the window, as a share


class GroupSpec(_Spec):
    """Group reprojected cells for one run of a reduction: `manifest.json` and, for each layer, a
    GeoTIFF with one band per day, so that the artifact stands alone.

    `bands` runs parallel to `inputs`.
    """

    kind: Literal["group"] = "group"
    group: str  # "r4c-1 2012-01": cell and window
    cell: str
    window: str
    grid: GridSpec | None
    bands: tuple[Band, ...]

    @property
    def phase(self) -> Phase:
        return Phase.AGGREGATION

    @property
    def task_class(self) -> str:
        return "aggregation group"

    def over(self, kept: Mapping[int, Input]) -> Self:
        bands = tuple(self.bands[i] for i in sorted(kept))
        return super().over(kept).model_copy(update={"bands": bands})


class ReduceSpec(_Spec):
    """Run a reduction package over one group. The only input is the group's task."""

    kind: Literal["reduce"] = "reduce"
    package: str  # name, for people
    digest: str  # SHA-256 of the package archive, which is the blob packages/<digest>.tar
    outputs: tuple[str, ...]  # file names the package declares for this group
    parameters: dict[str, str] = Field(default_factory=dict)

    @property
    def phase(self) -> Phase:
        return Phase.REDUCTION

    @property
    def task_class(self) -> str:
        return f"reduction {self.package} {self.digest[:8]}"


Spec = Annotated[
    CollectSpec | ReprojectSpec | MosaicSpec | CubeSpec | GroupSpec | ReduceSpec,
    Field(discriminator="kind"),
]
_adapter: TypeAdapter[Spec] = TypeAdapter(Spec)


def load_spec(text: str | bytes) -> Spec:
    """A specification from its JSON; raises pydantic.ValidationError when it is not one."""
    return _adapter.validate_json(text)
