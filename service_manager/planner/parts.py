"""Which granules are read in part: those of which the sites take far less than all bytes.

What parts will take is estimated from the granule's size and from the layers that the catalogue
knows: a layer may lie in one piece, so all of it counts. Chunks make it less.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from archives.model import GranuleRecord
from modis.collection import Collection
from reprojection.catalogue import Product
from reprojection.catalogue.layers import split_index
from service_manager.planner.draft import Draft
from service_manager.planner.granules import collected
from service_manager.planner.layers import ProductLayers
from tasks.bag.spec import CollectSpec, Input, PartsSpec
from tasks.holdings.parts import WHOLE_BYTES
from tasks.storage.schema import PARTS_AND_RECORDS, written

Why = Literal["in part", "in storage", "small", "no parts", "no size", "most of it", "upgrade"]
_STRUCTURE = 1_000_000  # bytes of a granule besides its values, where they are many
_LESS = 0.5  # of a granule's bytes: parts of more save nothing that would pay their calls
_PLACES = 2  # layers' worth of a swath that say where its pixels lie
_OF_GEOLOCATION = 0.6  # the share that latitudes and longitudes take of a granule of geolocation
_SAID: Mapping[Why, str] = {
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
    """Decides granule by granule; `there` tells whether the artifact of a task key is stored."""

    archive: object
    there: Callable[[str], bool]
    counts: dict[int, dict[Why, Reads]] = field(default_factory=dict)

    def plan(
        self,
        wanted: ProductLayers,
        record: GranuleRecord,
        band: int | None,
        sites: Input,
        solar_times: tuple[str, ...],
        draft: Draft,
    ) -> list[Input]:
        """Add the tasks that fetch a granule and its companions, in part or whole."""
        every = (record, *record.companions)
        whole = sum(one.size for one in every)
        why, expected = self._decided(wanted, record)
        inputs = []
        fresh = False
        if why == "in part":
            spec = _spec(wanted, record, band, sites, solar_times, expected)
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
            read = {"in part": expected, "in storage": 0}.get(why, whole)
            mine[why] = mine.get(why, Reads()).plus(read, whole)
        return inputs

    def take(self) -> Mapping[int, Counted]:
        """Return what was counted since the last call, by product choice."""
        found, self.counts = self.counts, {}
        return found

    def _decided(self, wanted: ProductLayers, record: GranuleRecord) -> tuple[Why, int]:
        every = (record, *record.companions)
        whole = sum(one.size for one in every)
        if not all(one.size for one in every):
            return "no size", 0
        if whole <= WHOLE_BYTES or wanted.choice.exact is not None:
            return "small", 0
        expected = sum(_expected(wanted, one) for one in every)
        if expected > _LESS * whole:
            return "most of it", 0
        divided = isinstance(self.archive, _Dividing) and all(map(self.archive.divides, every))
        if not divided:
            return "no parts", 0
        if any(self.there(collected(one)[0]) for one in every):
            return "in storage", 0
        if written() < PARTS_AND_RECORDS:
            return "upgrade", 0
        return "in part", expected


def told(product: str, counted: Counted) -> str:
    """Say what of a product's granules is read, and why; "" where all of them are small."""
    if {*counted} <= {"small"}:
        return ""
    said = []
    part = counted.get("in part")
    if part is not None:
        said.append(
            f"reads up to about {_size(part.read)} of {_size(part.whole)}: of "
            f"{_many(part.granules)} only the parts that the sites take"
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


def _expected(wanted: ProductLayers, record: GranuleRecord) -> int:
    """Estimate the bytes that the sites take of a granule."""
    if record.size <= WHOLE_BYTES:
        return record.size
    share = 1.0
    if record.product != wanted.choice.name:
        share = _OF_GEOLOCATION
    elif wanted.entry is not None:
        share = _share(wanted.entry, wanted, located=bool(record.companions))
    return min(record.size, round(_STRUCTURE + share * record.size))


def _share(entry: Product, wanted: ProductLayers, *, located: bool) -> float:
    """Estimate the share of a granule that layers take, with their quality and time."""
    names = entry.layer_names
    every = sum(_values(entry, name) for name in names)
    if not every:
        return 1.0
    needed: set[str] = set()
    for layer in wanted.layers:
        base = split_index(layer.name)[0]
        known = entry.layer(base)
        beside = (known.qa if known is not None else None, entry.solar_time_of(base))
        needed.update(name for name in (base, *beside) if name)
        needed.update(name for name in names if f'"{name}"' in layer.qa)
    taken = sum(_values(entry, name) for name in needed)
    if wanted.geometry == "swath" and not located:
        taken += _PLACES * max(_values(entry, name) for name in needed)
        every += _PLACES * max(_values(entry, name) for name in needed)
    return min(1.0, taken / every)


def _values(entry: Product, name: str) -> float:
    """Return a number that grows with a layer's values: those on a square of its product."""
    known = entry.layer(name)
    pixel = (known.resolution if known is not None else None) or entry.resolution
    bands = 1
    for length in entry.bands_of(name):
        bands *= length
    return bands * (entry.resolution / pixel) ** 2


def _spec(
    wanted: ProductLayers,
    record: GranuleRecord,
    band: int | None,
    sites: Input,
    solar_times: tuple[str, ...],
    expected: int,
) -> PartsSpec:
    granules = tuple(map(_collect, (record, *record.companions)))
    return PartsSpec(
        inputs=(sites,),
        product=wanted.choice.name,
        collection=wanted.choice.collection,
        granule=record.name,
        granules=granules,
        wholes=tuple(one.key for one in granules),
        expected=expected,
        layers=tuple(layer.name for layer in wanted.layers),
        qa=tuple(layer.qa for layer in wanted.layers),
        mask=wanted.layout.request.mask,
        band=band,
        solar_times=solar_times,
    )


def _collect(record: GranuleRecord) -> CollectSpec:
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
