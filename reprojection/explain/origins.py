"""Where a pixel came from: source pixels with their quality, and what a run was given there."""

from dataclasses import dataclass

from reprojection.read.qa import DecodedField


@dataclass(frozen=True, kw_only=True)
class Quality:
    """One QA layer at a pixel: its stored value and its decoded bit fields."""

    layer: str
    stored: int
    fields: tuple[DecodedField, ...]


@dataclass(frozen=True, kw_only=True)
class PixelOrigin:
    """The source pixel: granule, row and column in the layer (from 0), and stored value."""

    granule: str
    row: int
    column: int
    stored: float | int
    reason: str
    quality: tuple[Quality, ...]
    sensor_zenith: float | None = None


@dataclass(frozen=True, kw_only=True)
class InputOrigin:
    """What a run of a package was given at a pixel: a layer on a date, or an earlier step's output.

    Attributes:
        product: The product, or the earlier step by its name in the request.
        layer: The layer, or the output.
        date: Its nominal day; of an earlier step the first day of its window.
        time: Start of its overpass, HH:MM in UTC; "" for the whole day.
        window: The window of the earlier step; "" for a layer.
        weight: Its weight in the window.
        stored: What its cell holds at the pixel; None for an output of an earlier step, which is
            not kept, and where its granules are not at hand.
        value: The value in `units`; None where there is none, or `stored` is None.
        units: Its units.
        granules: The granules of its cell.
        origin: The source pixel, as in an `Explanation`.
        note: Why there is none, else "".
        inputs: What the run of the earlier step was given.
    """

    product: str
    layer: str
    date: str
    time: str
    window: str
    weight: float
    stored: float | int | None
    value: float | None
    units: str
    granules: tuple[str, ...]
    origin: PixelOrigin | None
    note: str
    inputs: tuple["InputOrigin", ...] = ()
