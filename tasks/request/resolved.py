"""What a request comes to, worked out once: its target, its products and layers with all choices.

The checks, the estimate, the planner and the specifications of tasks carry it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Literal

from modis.composites import composite_end
from reprojection.catalogue import Geometry, LayerEntry, LayerFacts, Product, product
from reprojection.catalogue.layers import LayerKind
from reprojection.resampling import STATISTICS, TRAITS, MethodTraits
from tasks.canonical import canonical
from tasks.errors import RequestRefusedError
from tasks.packages.rasters import ExactRaster, is_raster
from tasks.request.document import ProductChoice, Request
from tasks.request.joins import Join
from tasks.request.record_products import with_products
from tasks.request.steps import Step, steps_of
from tasks.request.target import Target, target

COMPARED_CELLS = 16
"""Cells at most in which two sensors of a record are compared, spread over the region."""

_LEFT_TO_WORKER = MethodTraits(reach=1.0)
"""What a method does at most that a worker chooses, by the granule ("default")."""


@dataclass(frozen=True, kw_only=True)
class ResolvedLayer:
    """One layer as it will be reprojected.

    `facts` are what the catalogue says of it. `resampling` is "default" where only
    the file can tell. `qa` is the part of the QA rule that concerns its product, as one canonical
    text. `reach` is how far in metres beyond a target pixel the kernel looks; `whole_pixel` whether
    it looks at all of the pixel, not its centre only.
    """

    name: str
    facts: LayerFacts = field(repr=False)
    resampling: str
    merge: str
    qa: str
    mask: bool
    units: Literal["stored", "physical", "brightness"]
    reach: float
    whole_pixel: bool

    @property
    def entry(self) -> LayerEntry | None:
        """Return its entry in the catalogue; None: nothing describes it."""
        return self.facts.entry

    @property
    def is_continuous(self) -> bool:
        """Tell whether its values have differences."""
        return self.entry is None or self.entry.kind is LayerKind.CONTINUOUS


@dataclass(frozen=True, kw_only=True)
class ResolvedProduct:
    """One product choice of a request, by its number there.

    `entry` is its catalogue entry, None: the catalogue does not know it. `period` counts the days
    between two granules of one place, `covers` those that one covers, `phase` those from January
    1st to the first of a year, where no granule tells. `stack` is the number of days of which a
    granule holds a band each, 1 if it is of one date; then `period` is 1, too. `driver` is the
    layer by whose values the granules of swaths are chosen; it may be of another choice of the same
    product and half of the day. `join` says which of its dates a reduction's windows take. `head`
    is the number of the first of the products that stand for one another in a record, its own where
    there are none; then `period` and `phase` are the record's.
    """

    number: int
    choice: ProductChoice
    entry: Product | None = field(repr=False)
    geometry: Geometry
    period: int
    covers: int
    phase: int
    stack: int
    layers: tuple[ResolvedLayer, ...]
    driver: ResolvedLayer
    join: Join
    head: int

    @property
    def field(self) -> str:
        """The field of the document that names it."""
        return self.choice.field_at(self.number)

    def named(self, layer: ResolvedLayer) -> str:
        """Return product and layer, for people."""
        return f"{self.choice.name} {layer.name}"

    @property
    def companions(self) -> tuple[str, ...]:
        """The products whose granules say where the pixels of its layers lie."""
        every = dict.fromkeys(one.facts.geolocation for one in (*self.layers, self.driver))
        return tuple(name for name in every if name)

    @property
    def first_start(self) -> date:
        """The first day on which granules may start that belong to the request."""
        return self.join.first - timedelta(days=self.stack - 1)


@dataclass(frozen=True, kw_only=True)
class ResolvedRequest:
    """A request with all that follows from its document and the catalogue.

    In `request` the products of records stand in place of them. `steps` are those of its reduction.
    """

    request: Request
    target: Target
    products: tuple[ResolvedProduct, ...]
    steps: tuple[Step, ...]

    def dates_of(self, number: int, start: date) -> list[tuple[int, date]]:
        """List the dates of granules that start on a day, each with its band.

        Dates are left out that are neither delivered nor taken by a window of a reduction.
        """
        product = self.products[number]
        dates = [(0, start)]
        if product.choice.exact is not None:
            days = product.choice.exact.raster.days
            dates = [(days.index(start) if days else 0, start)]
        if product.stack > 1:
            count = (composite_end(start, product.stack) - start).days + 1
            dates = [(band, start + timedelta(days=band)) for band in range(count)]
        return [
            (band, day)
            for band, day in dates
            if self.request.delivers(day) or product.join.wants(day)
        ]

    def compared(self) -> Iterator[list[int]]:
        """Yield the products of each record whose sensors are compared, in order of preference.

        They are compared on dates that both have, in cells of rasters, and only continuous values
        have a difference.
        """
        request = self.request
        if request.region.in_place or request.deliver in ("inputs", "cells"):
            return
        members: dict[int, list[ResolvedProduct]] = {}
        for one in self.products:
            if one.choice.part is not None and one.stack == 1:
                members.setdefault(one.choice.part.place, []).append(one)
        for alike in members.values():
            if any(layer.is_continuous for layer in alike[0].layers):
                yield [one.number for one in alike]

    def with_geometry(self, number: int, geometry: Geometry) -> ResolvedProduct:
        """Resolve again a product that the catalogue does not know.

        The geometry has been read from the product's granules.
        """
        return _product(self.request, self.target, number, None, geometry)


def resolve(request: Request) -> ResolvedRequest:
    """Work out what a request comes to, from its document and the catalogue alone.

    A product that the catalogue does not know is taken for a swath product until a granule of it
    says otherwise.

    Raises:
        RequestRefusedError: naming the field, for a CRS, resolution or region that cannot be, a
            step that takes what is not there, or a record that does not have what is asked of it.
    """
    request = with_products(request)
    known = [_entry_of(choice) for choice in request.products]
    goal = target(request, known)
    return ResolvedRequest(
        request=request,
        target=goal,
        products=tuple(
            _product(request, goal, number, entry, entry.geometry if entry else "swath")
            for number, entry in enumerate(known)
        ),
        steps=steps_of(request),
    )


def _entry_of(choice: ProductChoice) -> Product | None:
    """Return what the catalogue, or a user's raster itself, says of a product; None: nothing.

    Raises RequestRefusedError for a raster that has not been looked up.
    """
    if choice.exact is not None:
        return choice.exact.raster.product()
    if is_raster(choice.name):
        raise RequestRefusedError(
            "products", f"the raster {choice.name} is not known here.", "Push it first."
        )
    return product(choice.name, choice.collection)


def suits(known: Product | None, entry: LayerEntry | None, method: str) -> bool:
    """Say whether a method chosen for the whole request goes for a layer, by the catalogue.

    Not a blending one for classes, bit fields and what is nearest by nature (an azimuth); for
    swaths none that needs a lattice.
    """
    nearest = entry is not None and entry.resampling == "nearest"
    classes = entry is not None and (nearest or entry.kind is not LayerKind.CONTINUOUS)
    swath = known is not None and known.geometry == "swath"
    traits = TRAITS[method]
    tiled = known is not None and not swath
    if (swath and not traits.swaths) or (tiled and method in STATISTICS):
        return False
    return not (traits.blends and classes)


def _product(
    request: Request, goal: Target, number: int, known: Product | None, geometry: Geometry
) -> ResolvedProduct:
    choice = request.products[number]
    alike = [one for one in request.products if one.is_same_product(choice)]
    every = {
        name: _layer(request, one, known, name, goal, geometry)
        for one in alike
        for name in one.layers
    }
    if geometry == "swath":
        every = _of_equal_reach(every)
    layers = tuple(every[name] for name in choice.layers)
    stack = min(layer.facts.days for layer in layers)
    dated = known if stack == 1 else None
    period, covers = (dated.period, dated.covers) if dated else (1, 1)
    if choice.exact is not None:
        _check_raster(choice, choice.exact, number, request)
    phase, head, part = known.phase if known and stack == 1 else 0, number, choice.part
    if part is not None and part.shares_dates:
        period, phase = part.every, 0
        head = next(n for n, one in enumerate(request.products) if one.part_place == part.place)
    return ResolvedProduct(
        number=number,
        choice=choice,
        entry=known,
        geometry=geometry,
        period=period,
        covers=covers,
        phase=phase,
        stack=stack,
        layers=layers,
        driver=every[alike[0].layers[0]],
        join=Join.of(choice, covers, request),
        head=head,
    )


def _check_raster(choice: ProductChoice, exact: ExactRaster, number: int, request: Request) -> None:
    """Refuse what has no meaning for a user's raster."""
    field = choice.field_at(number)
    names = [one.name for one in exact.raster.layers]
    for place, layer in enumerate(choice.layers):
        if layer not in names:
            raise RequestRefusedError(
                f"{field}.layers.{place}",
                f"{choice.name} has no layer {layer!r}.",
                f"Its layers are: {', '.join(names)}.",
            )
    if choice.day_night != "any" or choice.overpasses != "merged":
        raise RequestRefusedError(
            field,
            f"{choice.name} is a raster, which is neither of day or night nor of an overpass.",
            "Leave day_night and overpasses out.",
        )
    if request.region.in_place:
        kind = request.region.kind
        raise RequestRefusedError(
            field,
            f"{choice.name} is a raster, and at {kind} only granules are read.",
            f"Ask for a region and a grid, or read the raster at the {kind} yourself.",
        )
    if not exact.raster.days and request.steps and choice.use != "static":
        raise RequestRefusedError(
            f"{field}.use",
            f"{choice.name} is of no date, so `use: {choice.use}` finds none in a window.",
            "Write use: static.",
        )
    if any(
        one.name == choice.name and one.collection != choice.collection for one in request.products
    ):
        raise RequestRefusedError(
            f"{field}.name",
            f"two rasters are called {choice.name}.",
            "Ask for one of them, or push one under another name.",
        )


def _layer(
    request: Request,
    choice: ProductChoice,
    known: Product | None,
    name: str,
    goal: Target,
    geometry: Geometry,
) -> ResolvedLayer:
    facts = known.facts(name) if known else LayerFacts(name=name)
    entry, own = facts.entry, facts.resolution
    coarser = goal.pixel_metres / own if own else 1.0
    method = _method(request, known, facts, name, coarser, geometry)
    overlaps = geometry == "swath" or facts.orbits is not None
    return ResolvedLayer(
        name=name,
        facts=facts,
        resampling=method,
        merge=_merge(request, entry) if overlaps else "nadir",
        qa=_qa(request, known, facts),
        mask=request.mask,
        units=_units(request, choice, entry),
        reach=_reach(method, own, coarser, goal),
        whole_pixel=TRAITS.get(method, _LEFT_TO_WORKER).whole_pixel,
    )


def _units(
    request: Request, choice: ProductChoice, entry: LayerEntry | None
) -> Literal["stored", "physical", "brightness"]:
    """Return in which units a layer is; a record's sensors may store theirs differently."""
    if choice.part is not None:
        continuous = entry is None or entry.kind is LayerKind.CONTINUOUS
        return "physical" if continuous else "stored"
    return request.units


def _of_equal_reach(layers: Mapping[str, ResolvedLayer]) -> dict[str, ResolvedLayer]:
    """Give all layers of a swath product the widest reach among them.

    They need the same granules, because the granule of a pixel is chosen once for all layers.
    """
    reach = max(layer.reach for layer in layers.values())
    whole = any(layer.whole_pixel for layer in layers.values())
    return {name: replace(layer, reach=reach, whole_pixel=whole) for name, layer in layers.items()}


def _method(
    request: Request,
    known: Product | None,
    facts: LayerFacts,
    name: str,
    coarser: float,
    geometry: Geometry,
) -> str:
    wanted = request.resampling
    if isinstance(wanted, Mapping) and name in wanted:
        return wanted[name]
    if facts.entry is None:
        return "nearest" if wanted == "nearest" else "default"
    if isinstance(wanted, str) and suits(known, facts.entry, wanted):
        return wanted
    if geometry == "swath":
        return "nearest"
    return facts.default_resampling(coarser)


def _merge(request: Request, entry: LayerEntry | None) -> str:
    """Return how a layer's swaths are merged: classes and bit fields have no mean."""
    if entry is None or entry.kind is LayerKind.CONTINUOUS:
        return request.merge
    return "nadir" if request.merge == "mean" else request.merge


def _qa(request: Request, known: Product | None, facts: LayerFacts) -> str:
    rule = request.qa
    if isinstance(rule, str):
        judged = rule in facts.presets and not facts.is_quality
        return rule if known is None or judged else ""
    if not rule:
        return ""
    mine = {
        quality: {name: sorted(set(values)) for name, values in fields.items()}
        for quality, fields in rule.items()
        if known is None or known.layer(quality) is not None
    }
    return canonical(mine).decode("ascii") if mine else ""


def _reach(method: str, own: float | None, coarser: float, goal: Target) -> float:
    """Return how far in metres a method looks around a target pixel.

    A widened kernel looks as far in target pixels as a plain kernel does in source pixels.
    """
    half = TRAITS.get(method, _LEFT_TO_WORKER).reach
    if own is None:
        return half * max(goal.pixel_metres, 1000.0)
    if goal.modis is not None and own == goal.modis:
        return 0.0  # source and target pixels coincide
    return half * own * max(1.0, coarser)
