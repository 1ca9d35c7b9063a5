"""Which granules are read in part: those of which sites or a small region take few bytes.

A granule that a region covers for the most part is collected whole: others will take it, too. Of a
swath a raster takes layers whole, with all that says where their pixels lie, so one cell is enough
to read them. Of a tile on another grid than MODIS' the record does not name the grid: the share is
told by the box around its boundary. It only decides; what is read, the cells themselves say.

What parts will take is estimated from the granule's size and from the layers that the catalogue
knows: a layer may lie in one piece, so all of it counts. Chunks make it less.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, Protocol, runtime_checkable

from archives.model import GranuleRecord
from modis.box import LonLatBox
from modis.collection import Collection
from modis.tile import Tile
from reprojection.catalogue import Product
from reprojection.grid.grids import Grid, modis_tile_grid
from reprojection.warp.source_window import source_window
from service_manager.planner.cells import WindowCell, grid_spec
from service_manager.planner.draft import Draft
from service_manager.planner.granules import collected
from tasks.bag.spec import CollectSpec, GridSpec, Input, PartsSpec
from tasks.holdings.parts import WHOLE_BYTES
from tasks.request.resolved import ResolvedLayer, ResolvedProduct
from tasks.storage.schema import PARTS_AND_RECORDS, written

Why = Literal[
    "in part",
    "near",
    "part in storage",
    "in storage",
    "small",
    "no parts",
    "no size",
    "most of it",
    "upgrade",
]
_STRUCTURE = 1_000_000  # bytes of a granule besides its values, where they are many
_LESS = 0.5  # of a granule's bytes: parts of more save nothing that would pay their calls
_PLACES = 2  # layers' worth of a swath that say where its pixels lie
_OF_GEOLOCATION = 0.6  # the share that latitudes and longitudes take of a granule of geolocation
_MOST_CELLS = 16  # of a request; one of more is no small region
_OF_AREA = 0.5  # of a granule's pixels: cells that take more have it collected
_TILE_METRES = 1000  # pixels of tiles, and of the globe in degrees, by which that is told
_GLOBE_DEGREES = 0.1
_BOX_PIXELS = 1000  # along the longer side of a box around a tile on another grid
_MOST_DEGREES = 90.0  # that such a box may span; beyond, a pole or 180 degrees may lie within
_SWATH_PIXELS = 40_000  # of the globe: about a swath of MODIS at the equator
_COARSE_PIXELS = 64  # along a cell, by which that is told
_SAID: Mapping[Why, str] = {
    "near": "{count} read where they lie ({whole})",
    "part in storage": "{count} already in storage, in part (of {whole})",
    "in storage": "{count} already in storage, whole ({whole})",
    "small": "{count} fetched whole ({whole}): they are small",
    "no parts": "{count} fetched whole ({whole}): their source sends no parts",
    "no size": "{count} fetched whole: their source does not say how large they are",
    "most of it": "{count} fetched whole ({whole}): the layers take most of each",
    "upgrade": "{count} fetched whole ({whole}) until an upgrade of this service is ended",
}


@runtime_checkable
class _Dividing(Protocol):
    """An archive that may send parts of granules."""

    def divides(self, record: GranuleRecord) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Reads:
    """Granules of a product, for one reason: how many, bytes to be read, and all of theirs."""

    granules: int = 0
    read: int = 0
    whole: int = 0

    def plus(self, read: int, whole: int) -> "Reads":
        """Count one more."""
        return Reads(granules=self.granules + 1, read=self.read + read, whole=self.whole + whole)

    def joined(self, other: "Reads") -> "Reads":
        """Count those of another, too."""
        return Reads(
            granules=self.granules + other.granules,
            read=self.read + other.read,
            whole=self.whole + other.whole,
        )


Counted = Mapping[Why, Reads]


@dataclass
class PartsPlan:
    """Decides granule by granule, for sites or for the cells of a request's rasters.

    `there` tells whether the artifact of a task key is stored; `mask` is the request's.
    """

    archive: object
    there: Callable[[str], bool]
    mask: bool
    cells: Sequence[WindowCell]
    counts: dict[int, dict[Why, Reads]] = field(default_factory=dict)
    _small: dict[tuple[Tile | None, LonLatBox | None, str, tuple[int, ...]], bool] = field(
        default_factory=dict
    )

    def plan(
        self,
        wanted: ResolvedProduct,
        record: GranuleRecord,
        band: int | None,
        sites: Input,
        solar_times: tuple[str, ...],
        draft: Draft,
    ) -> list[Input]:
        """Add the tasks that fetch a granule and its companions, in part or whole, for sites."""
        spec = _spec(wanted, record, band, self.mask, inputs=(sites,), solar_times=solar_times)
        return self._planned(wanted, record, spec, draft)

    def near(
        self, wanted: ResolvedProduct, records: Iterable[GranuleRecord], band: int | None
    ) -> bool:
        """Tell whether a date's granules are read for sites where they lie, each of them whole."""
        every = [one for record in records for one in (record, *record.companions)]
        if not all(one.stamp for one in every) or written() < PARTS_AND_RECORDS:
            return False
        specs = ((record, _spec(wanted, record, band, self.mask)) for record in records)
        if not {self._decided(wanted, *each) for each in specs} <= {"small", "most of it"}:
            return False
        for one in every:
            mine = self.counts.setdefault(wanted.number, {})
            mine["near"] = mine.get("near", Reads()).plus(0, one.size)
        return True

    def plan_cells(
        self,
        wanted: ResolvedProduct,
        record: GranuleRecord,
        band: int,
        places: Sequence[int],
        draft: Draft,
    ) -> list[Input] | None:
        """Add the tasks that fetch a granule for few small cells; None where it is no such case."""
        if not self._is_small(wanted, record, places):
            return None
        driver: tuple[ResolvedLayer, ...] = ()
        if wanted.geometry == "swath":
            places = places[:1]
            driver = () if wanted.driver in wanted.layers else (wanted.driver,)
        grids = tuple(grid_spec(self.cells[place].grid) for place in places)
        which = band if wanted.stack > 1 else None
        spec = _spec(wanted, record, which, self.mask, grids=grids, driver=driver)
        return self._planned(wanted, record, spec, draft)

    def _is_small(
        self, wanted: ResolvedProduct, record: GranuleRecord, places: Sequence[int]
    ) -> bool:
        """Tell whether cells take a small part of a granule's pixels."""
        if len(self.cells) > _MOST_CELLS or wanted.choice.exact is not None:
            return False
        if 0 < record.size <= WHOLE_BYTES:
            return False
        lies, box = (wanted.geometry, record.tile is None), None
        if lies == ("outlined", True):  # a tile on another grid
            box = _box_of(record)
            if box is None:
                return False
        elif lies not in (("tile", False), ("globe", True), ("swath", True)):
            return False  # it is a cut-out of a tile, or lies otherwise
        swath = wanted.geometry == "swath"
        about = record.tile, box, wanted.geometry, tuple(places)
        if about not in self._small:
            source = _pixels_of(record.tile) if box is None else _pixels_in(box)
            parts = [source_window(source, _coarse(self.cells[n].grid)) for n in places]
            taken = sum(part.rows * part.columns for part in parts)
            every = _SWATH_PIXELS if swath else source.height * source.width
            self._small[about] = taken < _OF_AREA * every
        return self._small[about]

    def _planned(
        self, wanted: ResolvedProduct, record: GranuleRecord, spec: PartsSpec, draft: Draft
    ) -> list[Input]:
        every = (record, *record.companions)
        whole = sum(one.size for one in every)
        why = self._decided(wanted, record, spec)
        inputs = []
        fresh = False
        if why in ("in part", "part in storage"):
            fresh = spec.key not in draft.lines
            inputs = [Input(key=draft.add(spec), name=record.name)]
        else:
            for one in every:
                key, line = collected(one)
                fresh = fresh or key not in draft.lines
                draft.put(key, line)
                inputs.append(Input(key=key, name=one.name))
        if fresh:
            mine = self.counts.setdefault(wanted.number, {})
            read = {"in part": spec.expected, "in storage": 0, "part in storage": 0}.get(why, whole)
            mine[why] = mine.get(why, Reads()).plus(read, whole)
        return inputs

    def take(self) -> Mapping[int, Counted]:
        """Return what was counted since the last call, by product choice."""
        found, self.counts = self.counts, {}
        return found

    def _decided(self, wanted: ResolvedProduct, record: GranuleRecord, spec: PartsSpec) -> Why:
        every = (record, *record.companions)
        whole = sum(one.size for one in every)
        if not all(one.size for one in every):
            return "no size"
        if whole <= WHOLE_BYTES or wanted.choice.exact is not None:
            return "small"
        if spec.expected > _LESS * whole:
            return "most of it"
        divided = isinstance(self.archive, _Dividing) and all(map(self.archive.divides, every))
        if not divided:
            return "no parts"
        # Parts come first: a request that is repeated takes the artifacts that were made of them.
        if self.there(spec.key):
            return "part in storage"
        if any(self.there(collected(one)[0]) for one in every):
            return "in storage"
        if written() < PARTS_AND_RECORDS:
            return "upgrade"
        return "in part"


def told(product: str, counted: Counted) -> str:
    """Say what of a product's granules is read, and why; "" where all of them are small."""
    if {*counted} <= {"small"}:
        return ""
    said = []
    part = counted.get("in part")
    if part is not None:
        said.append(
            f"reads up to about {_size(part.read)} of {_size(part.whole)}: of "
            f"{_many(part.granules)} only the parts that are needed"
        )
    for why, text in _SAID.items():
        reads = counted.get(why)
        if reads is not None:
            are = "is" if reads.granules == 1 else "are"
            count = f"{_many(reads.granules)} {are}"
            said.append(text.format(count=count, whole=_size(reads.whole)))
    return f"{product}: {'; '.join(said)}."


def _size(count: int) -> str:
    return f"{count / 1e6:,.{0 if count >= 1e7 else 1}f} MB"


def _many(count: int) -> str:
    return f"{count:,} granule{'' if count == 1 else 's'}"


def _expected(wanted: ResolvedProduct, record: GranuleRecord) -> int:
    """Estimate the bytes that are taken of a granule."""
    if record.size <= WHOLE_BYTES:
        return record.size
    share = 1.0
    if record.product != wanted.choice.name:
        share = _OF_GEOLOCATION
    elif wanted.entry is not None:
        share = _share(wanted.entry, wanted, located=bool(record.companions))
    return min(record.size, round(_STRUCTURE + share * record.size))


def _share(entry: Product, wanted: ResolvedProduct, *, located: bool) -> float:
    """Estimate the share of a granule that layers take, with their quality and time."""
    names = entry.layer_names
    every = sum(_values(entry, name) for name in names)
    if not every:
        return 1.0
    needed: set[str] = set()
    for layer in wanted.layers:
        facts = layer.facts
        quality = facts.entry.qa if facts.entry is not None else None
        needed.update(name for name in (facts.name, quality, facts.solar_time) if name)
        needed.update(name for name in names if f'"{name}"' in layer.qa)
    taken = sum(_values(entry, name) for name in needed)
    if wanted.geometry == "swath" and not located:
        taken += _PLACES * max(_values(entry, name) for name in needed)
        every += _PLACES * max(_values(entry, name) for name in needed)
    return min(1.0, taken / every)


def _values(entry: Product, name: str) -> float:
    """Return a number that grows with a layer's values: those on a square of its product."""
    facts = entry.facts(name)
    return math.prod(facts.bands) * (entry.resolution / (facts.resolution or 1.0)) ** 2


def _spec(
    wanted: ResolvedProduct,
    record: GranuleRecord,
    band: int | None,
    mask: bool,
    *,
    inputs: tuple[Input, ...] = (),
    solar_times: tuple[str, ...] = (),
    grids: tuple[GridSpec, ...] | None = None,
    driver: tuple[ResolvedLayer, ...] = (),
) -> PartsSpec:
    layers = (*wanted.layers, *driver)
    granules = tuple(map(collect_spec, (record, *record.companions)))
    return PartsSpec(
        inputs=inputs,
        product=wanted.choice.name,
        collection=wanted.choice.collection,
        granule=record.name,
        granules=granules,
        wholes=tuple(one.key for one in granules),
        expected=sum(_expected(wanted, one) for one in (record, *record.companions)),
        layers=tuple(layer.name for layer in layers),
        qa=tuple(layer.qa for layer in layers),
        mask=mask,
        band=band,
        solar_times=solar_times,
        grids=grids,
    )


@lru_cache(maxsize=64)
def _pixels_of(tile: Tile | None) -> Grid:
    """Return pixels by which the share of a tile, or of the globe, is told that a grid takes."""
    if tile is not None:
        return modis_tile_grid(tile.h, tile.v, _TILE_METRES)
    width, height = round(360 / _GLOBE_DEGREES), round(180 / _GLOBE_DEGREES)
    transform = (_GLOBE_DEGREES, 0.0, -180.0, 0.0, -_GLOBE_DEGREES, 90.0)
    return Grid(crs="EPSG:4326", transform=transform, width=width, height=height)


def _box_of(record: GranuleRecord) -> LonLatBox | None:
    """Return the box around a boundary; None where there is none, or no box says where it lies."""
    points = [point for ring in record.boundary or () for point in ring]
    if not points:
        return None
    (west, south), (east, north) = (map(side, zip(*points, strict=True)) for side in (min, max))
    wide = east - west >= _MOST_DEGREES or max(-south, north) >= _MOST_DEGREES
    return None if wide or west == east or south == north else LonLatBox(west, south, east, north)


def _pixels_in(box: LonLatBox) -> Grid:
    """Return pixels by which the share of a box is told that a grid takes."""
    size = max(box.width, box.north - box.south) / _BOX_PIXELS
    return Grid(
        crs="EPSG:4326",
        transform=(size, 0.0, box.west, 0.0, -size, box.north),
        width=max(1, round(box.width / size)),
        height=max(1, round((box.north - box.south) / size)),
    )


def _coarse(grid: Grid) -> Grid:
    """Return a grid of few pixels that covers another one."""
    times = math.ceil(max(grid.width, grid.height) / _COARSE_PIXELS)
    a, b, c, d, e, f = grid.transform
    return Grid(
        crs=grid.crs,
        transform=(a * times, b * times, c, d * times, e * times, f),
        width=math.ceil(grid.width / times),
        height=math.ceil(grid.height / times),
    )


def collect_spec(record: GranuleRecord) -> CollectSpec:
    """Return the collection of a granule."""
    return CollectSpec(
        product=record.product,
        collection=Collection(record.collection),
        granule=record.name,
        production=record.production_time,
        source=record.source,
        url=record.url,
        size=record.size,
        checksum=record.checksum or "",
        checksum_type=record.checksum_type or "",
    )
