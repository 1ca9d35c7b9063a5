"""The submission form: what was typed, kept as typed, and the request document it means."""

import datetime as dt
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast
from uuid import uuid4

import yaml
from starlette.datastructures import FormData

from modis.collection import Collection
from modis.yaml_text import dump_yaml, load_yaml
from portal.submit.quality import QualityLayer, quality_layers
from tasks.errors import RequestRefusedError
from tasks.refusal_wording import listed
from tasks.request.document import GUIDE, Reduction, Request, parse_request
from tasks.request.records.part import RECORD, is_record
from tasks.request.region.files import is_notation
from tasks.request.region.region import Region

Document = dict[str, object]

_LONG = 2_000  # characters of a polygon
_COMMA = re.compile(r"[,\n](?![^\[]*\])")


@dataclass(frozen=True, kw_only=True)
class ProductCard:
    """One product on the form: the layers ticked and the layer names typed."""

    uid: str
    name: str
    collection: Collection
    layers: tuple[str, ...] = ()
    more: str = ""
    day_night: str = "any"
    overpasses: str = "merged"
    use: str = "same-day"
    look_back: str = ""
    look_ahead: str = ""
    overlap: str = "prefer"
    prefer: str = ""  # names, with commas between
    near: str = ""


@dataclass(frozen=True, kw_only=True)
class Form:
    """Every field of the form as text; empty fields are absent from the document."""

    title: str = ""
    products: tuple[ProductCard, ...] = ()
    region_kind: str = "bbox"
    west: str = ""
    south: str = ""
    east: str = ""
    north: str = ""
    tiles: str = ""
    geojson: str = ""
    place: str = ""
    sites: str = ""
    clip: str = ""
    start: str = ""
    end: str = ""
    every_from: str = ""
    every_to: str = ""
    grid_kind: str = "crs"
    crs: str = "EPSG:4326"
    resolution: str = "0.01"
    modis: str = "1000"
    resampling: str = ""
    resampling_map: str = ""
    merge: str = "nadir"
    qa: str = ""
    qa_bits: tuple[str, ...] = ()
    qa_rule: str = ""
    mask: str = "yes"
    units: str = "stored"
    codes: str = "mask"
    extra_bands: tuple[str, ...] = ()
    clamp: str = ""
    cells: str = ""
    cube: str = "none"
    weight: str = "none"
    on_missing: str = "skip"
    first: str = "oldest"
    first_dates: str = ""  # where `first` is DATES
    package: str = ""
    window: str = "month"
    parameters: str = ""
    parameter_fields: tuple[str, ...] = ()  # the parameters that have a field of their own
    steps: str = ""  # as YAML, where `package` is STEPS
    deliver: str = "both"
    measured: str = ""
    measured_sites: str = ""
    compare: str = ""
    time_zone: str = ""
    join: str = "auto"
    tolerance: str = "30"
    least_share: str = "0.75"
    notify: str = ""
    labels: str = ""
    group: str = ""
    standing: str = "0"
    submission: str = field(default_factory=lambda: secrets.token_hex(5))


DATES = "dates"
"""In place of an order of the results: dates are written as text."""

STEPS = "*steps*"
"""In place of a package: the reduction is written as text."""

WINDOWS = (
    ("date", "day"),
    ("8-day", "8 days, as NASA's composites"),
    ("16-day", "16 days, as NASA's composites"),
    ("month", "month"),
    ("season", "season"),
    ("year", "year"),
    ("all", "the whole time"),
    ("day-of-year", "day of the year, over all years"),
    ("8-day-of-year", "8 days of the year, over all years"),
    ("month-of-year", "month of the year, over all years"),
    ("season-of-year", "season of the year, over all years"),
)
"""The windows that the form offers; a document may name any number of days."""


STANDING = (
    ("0", "no"),
    ("1", "each day at most"),
    ("7", "each week at most"),
    ("30", "each month at most"),
)
"""How often the form lets a request go on with new data; a document may name any number of days."""


def read_form(data: FormData) -> Form:
    """Read the form as a browser sent it; checkboxes that it did not send are off."""
    several = ("extra_bands", "qa_bits", "parameter_fields")
    blank = {f.name: "" for f in fields(Form) if f.name not in ("products", *several)}
    texts = {name: str(data.get(name, "")).strip() for name in blank}
    return replace(
        Form(),
        **{
            name: value
            for name, value in texts.items()
            if name != "parameters" and (name != "submission" or value)
        },
        products=tuple(_card(data, str(value)) for value in data.getlist("product")),
        extra_bands=tuple(str(value) for value in data.getlist("extra_bands")),
        qa_bits=tuple(str(value) for value in data.getlist("qa_bits")),
        parameters=_parameters(data, texts["parameters"]),
        parameter_fields=_parameter_fields(data),
    )


_PARAMETER = "parameter-"


def _parameter_fields(data: FormData) -> tuple[str, ...]:
    return tuple(name.removeprefix(_PARAMETER) for name in data if name.startswith(_PARAMETER))


def _parameters(data: FormData, text: str) -> str:
    """Return the parameters as lines: of their fields, and of the text for all others."""
    values = {
        name: " ".join(str(data[_PARAMETER + name]).split()) for name in _parameter_fields(data)
    }
    own = _lines({name: value for name, value in values.items() if value})
    return "\n".join(filter(None, (own, text)))


def _card(data: FormData, value: str) -> ProductCard:
    uid, _, rest = value.partition("|")
    name, _, collection = rest.partition("|")
    return ProductCard(
        uid=uid[:16],
        name=name,
        collection=Collection(collection),
        layers=tuple(str(layer) for layer in data.getlist(f"layer-{uid}")),
        more=str(data.get(f"more-{uid}", "")).strip(),
        day_night=str(data.get(f"day_night-{uid}", "any")),
        overpasses=str(data.get(f"overpasses-{uid}", "merged")),
        use=str(data.get(f"use-{uid}", "same-day")),
        look_back=str(data.get(f"look_back-{uid}", "")).strip(),
        look_ahead=str(data.get(f"look_ahead-{uid}", "")).strip(),
        overlap=str(data.get(f"overlap-{uid}", "prefer")),
        prefer=str(data.get(f"prefer-{uid}", "")).strip(),
        near=str(data.get(f"near_real_time-{uid}", "")),
    )


def new_card(name: str, collection: str, layers: Sequence[str] = ()) -> ProductCard:
    """Make a card for a product newly added to the form."""
    return ProductCard(
        uid=secrets.token_hex(4),
        name=name.strip(),
        collection=Collection(collection),
        layers=tuple(layers),
    )


def form_of(request: Request) -> Form:
    """Fill in the form that would submit this request, so that it can be submitted with changes."""
    form = Form(
        title=request.title,
        products=tuple(
            replace(
                new_card(p.name, p.collection, p.layers),
                day_night=p.day_night,
                overpasses=p.overpasses,
                use=p.use,
                look_back="" if p.look_back is None else str(p.look_back),
                look_ahead="" if p.look_ahead is None else str(p.look_ahead),
                overlap=p.overlap,
                prefer=", ".join(p.prefer),
                near="yes" if p.near_real_time else "",
            )
            for p in request.products
        ),
        start=request.time.start.isoformat(),
        end=request.time.end.isoformat(),
        every_from=request.time.every.first if request.time.every else "",
        every_to=request.time.every.last if request.time.every else "",
        clip="yes" if request.region.clip else "",
        merge=request.merge,
        mask="yes" if request.mask else "",
        units=request.units,
        codes=request.codes,
        extra_bands=request.extra_bands,
        clamp="yes" if request.clamp else "",
        cells="yes" if request.cells else "",
        cube=request.cube,
        weight=request.weight,
        on_missing=request.on_missing,
        first=request.first if isinstance(request.first, str) else DATES,
        first_dates=("" if isinstance(request.first, str) else ", ".join(map(str, request.first))),
        deliver=request.deliver,
        notify=request.notify,
        labels=", ".join(request.labels),
        group=request.group,
        standing=str(request.standing),
    )
    return _with_measurements(_with_choices(_with_places(form, request), request), request)


def _with_measurements(form: Form, request: Request) -> Form:
    given = request.measurements
    if given is None:
        return form
    compare = given.model_dump(mode="json", exclude_defaults=True)["compare"]
    plain = {layer: one["column"] if len(one) == 1 else one for layer, one in compare.items()}
    sites = given.sites or ""
    return replace(
        form,
        measured=given.table,
        measured_sites=sites if isinstance(sites, str) else json.dumps(sites),
        compare=yaml.safe_dump(plain, sort_keys=False).strip(),
        time_zone=given.time_zone,
        join=given.join,
        tolerance=str(given.tolerance),
        least_share=f"{given.least_share:g}",
    )


def _with_places(form: Form, request: Request) -> Form:
    region, grid = request.region, request.grid
    if region.bbox is not None:
        west, south, east, north = (f"{edge:.10g}" for edge in region.bbox)
        form = replace(form, west=west, south=south, east=east, north=north)
    elif region.tiles is not None:
        form = replace(form, region_kind="tiles", tiles=", ".join(region.tiles))
    elif region.place is not None:
        form = replace(form, region_kind="place", place=region.place)
    elif region.sites is not None:
        given = region.sites
        text = given if isinstance(given, str) else json.dumps(given)
        return replace(form, region_kind="sites", sites=text)
    else:
        form = replace(form, region_kind="geojson", geojson=json.dumps(region.geojson))
    if grid.modis is not None:
        return replace(form, grid_kind="modis", modis=str(grid.modis))
    return replace(form, crs=grid.crs or "", resolution=f"{grid.resolution or 0:.12g}")


def _with_choices(form: Form, request: Request) -> Form:
    if isinstance(request.resampling, dict):
        form = replace(form, resampling="map", resampling_map=_lines(request.resampling))
    elif request.resampling:
        form = replace(form, resampling=request.resampling)
    if isinstance(request.qa, dict):
        form = _with_rule(form, request.qa)
    elif request.qa:
        form = replace(form, qa=request.qa)
    if request.steps and not _is_plain(request.steps):
        steps = request.model_dump(mode="json", exclude_defaults=True)["reduction"]
        return replace(form, package=STEPS, steps=yaml.safe_dump(steps, sort_keys=False))
    for step in request.steps:
        form = replace(
            form,
            package=step.package,
            window=step.window_kind,
            parameters=_lines(step.parameters),
        )
    return form


def _with_rule(form: Form, rule: Mapping[str, Mapping[str, Sequence[int]]]) -> Form:
    """Tick the values of a quality rule that the form offers; write out the others."""
    offered = {
        value.key for layer in quality_of(form) for field in layer.fields for value in field.values
    }
    ticked: list[str] = []
    written: dict[str, dict[str, list[int]]] = {}
    for layer, names in rule.items():
        for name, values in names.items():
            keys = [f"{layer}|{name}|{value}" for value in values]
            if offered.issuperset(keys):
                ticked += keys
            else:
                written.setdefault(layer, {})[name] = list(values)
    text = yaml.safe_dump(written, default_flow_style=None) if written else ""
    return replace(form, qa="rule", qa_bits=tuple(ticked), qa_rule=text)


def quality_of(form: Form) -> tuple[QualityLayer, ...]:
    """List the quality layers of the form's products, with the values to tick."""
    return quality_layers((card.name, card.collection, layers_of(card)) for card in form.products)


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(_line(name, value) for name, value in values.items())


def _line(name: str, value: str) -> str:
    """Write a parameter as `name: value`, or as JSON has it where that would not come back."""
    line = f"{name}: {value}"
    if line.isprintable() and not line.startswith('"') and name_and_value(line) == (name, value):
        return line
    return f"{json.dumps(name)}: {json.dumps(value)}"


def name_and_value(line: str) -> tuple[str, str]:
    """Read a line of parameters, `name: value` or both in quotes; "" for what is not there."""
    line = line.strip()
    if line.startswith('"'):
        with suppress(ValueError, RecursionError):
            ((name, value),) = json.loads(f"{{{line}}}").items()
            if isinstance(value, str):
                return str(name), value
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


class NotFilledError(RequestRefusedError):
    """A part of the form is empty: nothing is wrong, but something is still to be filled in."""


def labels_in(text: str) -> list[str]:
    """Read labels as they are typed, with commas between."""
    return [label for label in map(str.strip, text.split(",")) if label]


@dataclass(frozen=True, kw_only=True)
class Read:
    """A form as a document, without the parts that `refused` names."""

    document: Document
    refused: tuple[RequestRefusedError, ...]


def read_document(form: Form) -> Read:
    """Build the request document that a form means.

    Values stay as typed if the document's own check reads them. `refused` holds the errors that
    only a form can contain: a part left out, or text that is not in the notation of its field.
    """
    made: Document = {
        "title": form.title,
        "merge": form.merge or "nadir",
        "mask": bool(form.mask),
        "units": form.units or "stored",
        "codes": form.codes or "mask",
        "extra_bands": list(form.extra_bands),
        "clamp": bool(form.clamp),
        "cells": bool(form.cells),
        "cube": form.cube or "none",
        "weight": form.weight or "none",
        "on_missing": form.on_missing or "skip",
        "first": (labels_in(form.first_dates) if form.first == DATES else form.first or "oldest"),
        "deliver": (form.deliver if form.package else "") or "both",
        "notify": form.notify,
        "labels": labels_in(form.labels),
        "group": form.group,
        "standing": form.standing or "0",
    }
    parts: tuple[tuple[str, Callable[[Form], object]], ...] = (
        ("products", _products),
        ("region", _region),
        ("time", _time),
        ("grid", _grid),
        ("resampling", _resampling),
        ("qa", _qa),
        ("reduction", _reduction),
        ("measurements", _measurements),
    )
    refused: list[RequestRefusedError] = []
    for name, part in parts:
        try:
            value = part(form)
        except RequestRefusedError as error:
            refused.extend((error, *error.also))
        else:
            if value is not None:
                made[name] = value
    return Read(document=made, refused=tuple(refused))


def request_of(form: Form) -> Request:
    """Build the request that a form means; raise RequestRefusedError with all errors."""
    read = read_document(form)
    absent = {error.field.partition(".")[0] for error in read.refused}
    wrong: tuple[RequestRefusedError, ...] = ()
    try:
        made = parse_request(read.document)
    except RequestRefusedError as error:
        wrong = tuple(e for e in (error, *error.also) if e.field.partition(".")[0] not in absent)
    if read.refused or wrong:
        raise joined((*wrong, *read.refused))
    return made


def so_far(form: Form, start: dt.date, end: dt.date) -> Request | None:
    """Build the request that the form's products, region and days make, to compare with an archive.

    What is still empty or wrong is the whole Earth, or the given days. Returns None without a
    product.
    """
    made = read_document(form).document
    instead: Document = {
        "region": {"bbox": [-180, -90, 180, 90]},
        "time": {"start": start, "end": end},
    }
    request = {"products": made.get("products"), **instead}
    request |= {name: made[name] for name in instead if name in made}
    for _ in range(2):
        is_raster = "sites" not in cast(Document, request["region"])
        grid: Document = {"grid": {"crs": "EPSG:4326", "resolution": 0.05}} if is_raster else {}
        try:
            return parse_request({**request, **grid})
        except RequestRefusedError as error:
            wrong = {each.field.partition(".")[0] for each in (error, *error.also)}
            request |= {name: instead[name] for name in instead if name in wrong}
    return None


def region_of(form: Form) -> Region:
    """Build the region alone; raise RequestRefusedError or ValueError if it is none yet."""
    return Region.model_validate(_region(form))


def joined(errors: Sequence[RequestRefusedError]) -> RequestRefusedError:
    """Join several errors into one, which is the first; raise IndexError if there is none."""
    first, *others = errors
    return type(first)(first.field, first.problem, first.remedy, tuple(others))


def _products(form: Form) -> list[Document]:
    if not form.products:
        raise NotFilledError(
            "products", "none is chosen.", "Add a product from the list and tick its layers."
        )
    made, refused = [], []
    for index, card in enumerate(form.products):
        try:
            made.append(_product(index, card, form))
        except RequestRefusedError as error:
            refused.append(error)
    if refused:
        first, *others = refused
        raise NotFilledError(first.field, first.problem, first.remedy, tuple(others))
    return made


def _resampling(form: Form) -> object:
    if form.resampling == "map":
        return _pairs("resampling", form.resampling_map)
    return form.resampling or None


def _qa(form: Form) -> object:
    if form.qa != "rule":
        return form.qa or None
    typed = _yaml_mapping("qa", form.qa_rule) if form.qa_rule else {}
    if not isinstance(typed, dict):
        return typed  # the check of the document says what is wrong
    rule: dict[str, Any] = {}
    for key in form.qa_bits:
        layer, _, rest = key.partition("|")
        name, _, value = rest.partition("|")
        rule.setdefault(layer, {}).setdefault(name, []).append(value)
    for layer, names in typed.items():
        own = rule.get(layer)
        rule[layer] = {**own, **names} if own and isinstance(names, dict) else names
    if not rule:
        raise NotFilledError(
            "qa", "keeps no value.", "Tick the values to keep, or choose another option."
        )
    return rule


def _is_plain(steps: Sequence[Reduction]) -> bool:
    """Tell whether the form's own fields show all of a reduction."""
    first = steps[0]
    plain = Reduction(
        package=first.package, group_by=("cell", first.window_kind), parameters=first.parameters
    )
    return tuple(steps) == (plain,)


def _reduction(form: Form) -> object:
    if form.package == STEPS:
        if not form.steps.strip():
            raise NotFilledError(
                "reduction", "has no step.", "Write the steps, or choose a package or None."
            )
        return _yaml_mapping("reduction", form.steps)
    if not form.package:
        return None
    return {
        "package": form.package,
        "group_by": ["cell", form.window or "month"],
        "parameters": _pairs("reduction.parameters", form.parameters),
    }


def _measurements(form: Form) -> Document | None:
    if not form.measured and not form.compare:
        return None
    if not form.compare:
        raise NotFilledError(
            "measurements.compare", "is empty.", "Write each layer with its column: Lai_1km: LAI."
        )
    made: Document = {
        "table": form.measured,
        "compare": _yaml_mapping("measurements.compare", form.compare),
        "time_zone": form.time_zone,
        "join": form.join or "auto",
        "tolerance": form.tolerance or "30",
        "least_share": form.least_share or "0.75",
    }
    if form.measured_sites and form.region_kind != "sites":
        made["sites"] = form.measured_sites
    return made


LOOKS: Mapping[str, tuple[str, ...]] = {
    "previous": ("look_back",),
    "nearest": ("look_back", "look_ahead"),
    "static": ("look_back", "look_ahead"),
}
"""The fields that go with a way to use a product's dates."""


def layers_of(card: ProductCard) -> list[str]:
    """List the layers ticked, then those typed; a comma in brackets belongs to a band number."""
    typed = [name.strip() for name in _COMMA.split(card.more)]
    return [name for name in dict.fromkeys([*card.layers, *typed]) if name]


def _product(index: int, card: ProductCard, form: Form) -> Document:
    layers = layers_of(card)
    if not layers:
        raise NotFilledError(
            f"products.{index}.layers",
            f"no layer of {card.name} is chosen.",
            "Tick at least one layer, or remove the product.",
        )
    made: Document = {"name": card.name, "collection": card.collection, "layers": layers}
    if is_record(card.name):
        made = {"record": card.name.removeprefix(RECORD), "layers": layers}
        first = [name for name in map(str.strip, card.prefer.split(",")) if name]
        made |= {"prefer": first} if first else {}
        made |= {"overlap": card.overlap} if card.overlap != "prefer" else {}
    if card.near:
        made["near_real_time"] = True
    if card.day_night != "any":
        made["day_night"] = card.day_night
    if card.overpasses != "merged" and form.region_kind != "sites":
        made["overpasses"] = card.overpasses
    if form.package and card.use != "same-day":
        made["use"] = card.use
        for name in LOOKS.get(card.use, ()):
            if value := getattr(card, name):
                made[name] = value
    return made


def _region(form: Form) -> Document:
    clip: Document = {"clip": True} if form.clip else {}
    if form.region_kind == "tiles":
        tiles = form.tiles.replace(",", " ").split()
        if not tiles:
            raise NotFilledError(
                "region.tiles", "none is named.", "Click tiles on the map, or type them: h18v03."
            )
        return {"tiles": tiles, **clip}
    if form.region_kind == "geojson":
        return {"geojson": _yaml_mapping("region.geojson", form.geojson), **clip}
    if form.region_kind == "place":
        if not form.place:
            raise NotFilledError(
                "region.place", "none is named.", "Name a country or a state: Bayern, Germany."
            )
        return {"place": form.place, **clip}
    if form.region_kind == "sites":
        if not form.sites.strip():
            raise NotFilledError(
                "region.sites", "none is named.", "Paste a table: id,latitude,longitude."
            )
        return {"sites": form.sites, **clip}
    edges = {"west": form.west, "south": form.south, "east": form.east, "north": form.north}
    absent = [name for name, value in edges.items() if not value]
    if absent:
        raise NotFilledError(
            "region.bbox",
            f"{listed(absent, 'and')} {'is' if len(absent) == 1 else 'are'} empty.",
            "Draw a box on the map or type its four edges.",
        )
    return {"bbox": list(edges.values()), **clip}


def _time(form: Form) -> Document:
    absent = [name for name in ("start", "end") if not getattr(form, name)]
    if absent:
        others = tuple(NotFilledError(f"time.{n}", "is empty.", "Choose a day.") for n in absent)
        raise NotFilledError(f"time.{absent[0]}", "is empty.", "Choose a day.", others[1:])
    every: Document = {}
    if form.every_from or form.every_to:
        every = {"every": {"from": form.every_from, "to": form.every_to}}
    return {"start": form.start, "end": form.end, **every}


_MODIS = {"250": 250, "500": 500, "1000": 1000}


def _grid(form: Form) -> Document | None:
    if form.region_kind == "sites":
        return None
    if form.grid_kind == "modis":
        return {"modis": _MODIS.get(form.modis, form.modis)}
    if not form.crs:
        raise NotFilledError(
            "grid.crs", "is empty.", "Name a coordinate reference system, such as EPSG:4326."
        )
    if not form.resolution:
        raise NotFilledError(
            "grid.resolution", "is empty.", "Give a pixel's side in the CRS's units."
        )
    return {"crs": form.crs, "resolution": form.resolution}


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        key, value = name_and_value(line)
        if not key.strip() or not value:
            raise RequestRefusedError(
                name,
                f"{line!r} is not a name with a value.",
                "Write one per line, with a colon between: name: value.",
            )
        pairs[key] = value
    return pairs


def _yaml_mapping(name: str, text: str) -> object:
    if not text:
        raise NotFilledError(name, "is empty.", "Fill it in, or choose another option.")
    if is_notation(text):
        return text  # the check of the document reports it with its name
    if text.startswith("{"):  # a polygon of many vertices: YAML takes a hundred times as long
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    try:
        return load_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        last = len(text.splitlines())  # the parser's own end of an unfinished text is after it
        where = f" at line {min(mark.line + 1, last)}" if mark is not None else ""
        wanted = GUIDE.wanted(name)
        remedy = wanted.remedy if wanted is not None else ""
        raise RequestRefusedError(name, f"cannot be read{where}.", remedy) from None


def request_yaml(request: Request) -> str:
    """Write the request in YAML as a person would, without defaults.

    A polygon of many vertices is one line of JSON: the rest of the document stays in sight, and it
    is written in a fortieth of the time.
    """
    made = request.model_dump(mode="json", exclude_defaults=True)
    made["time"] |= {"start": request.time.start, "end": request.time.end}
    polygon = json.dumps(made["region"].get("geojson"))
    if len(polygon) <= _LONG:
        return dump_yaml(made)
    mark = f"polygon-{uuid4().hex}"
    del made["region"]["geojson"]
    made["region"]["geojson"] = mark  # last in its line: what else the region says is in sight
    return dump_yaml(made).replace(mark, polygon, 1)
