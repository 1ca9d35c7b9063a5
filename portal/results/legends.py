"""How a layer of the results is drawn on all its dates."""

from dataclasses import dataclass

from reprojection.read.description import Colour, Description


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A class or bit pattern in a legend: its stored value, what it means, and its colour."""

    value: int
    text: str
    colour: Colour


@dataclass(frozen=True, kw_only=True)
class Legend:
    """How a layer is drawn, equally on all dates.

    `low` and `high` are the ends of the scale in `units`, None without a value; `entries` are the
    classes or the most frequent bit patterns of a layer that is not continuous.
    """

    said: Description
    nodata: float | int | None
    low: float | None
    high: float | None
    entries: tuple[Entry, ...]
