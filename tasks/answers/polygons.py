"""Answers about the values of results within polygons."""

from typing import Literal

from pydantic import Field

from tasks.answers.answer import Answer


class ClassShare(Answer):
    """The share that a class has of a polygon."""

    value: int
    name: str = Field(description="Empty where the file does not name it.")
    share: float = Field(description="Share of the polygon's area that has a value.")


class PolygonValues(Answer):
    """What a polygon holds of a layer on a date."""

    date: str
    mean: float | None = Field(
        description="Mean of the values, each weighted by the area in m² that the polygon has of "
        "the pixel; null without a value, and for classes and bit fields."
    )
    std: float | None = Field(
        description="Standard deviation of the values (of the population), weighted as the mean; "
        "null as the mean, and at a point."
    )
    valid_share: float = Field(
        description="Share of the polygon's area in the raster whose pixels have a value."
    )
    count: float = Field(
        description="Number of pixels with a value; one at the edge counts with the share of it "
        "that lies inside."
    )
    classes: tuple[ClassShare, ...] = Field(
        (),
        description="Of a layer of classes: the share of each by area, the greatest first; of more "
        "than 64 classes none is listed.",
    )


class PolygonSeries(Answer):
    """A layer within a polygon, or at a point, by date.

    `pixels` and `area_km2` are of the polygon's part in the raster; of a point, of its pixel.
    """

    polygon: str = Field(description="The polygon's name; without one, its number.")
    kind: Literal["polygon", "point"]
    layer: str
    units: str
    pixels: float = Field(description="Number of pixels, by shares.")
    area_km2: float = Field(description="On the ellipsoid of WGS84.")
    note: str = Field(description="What is to be known: it reaches beyond the raster, or lies off.")
    values: tuple[PolygonValues, ...]


class PolygonsAnswer(Answer):
    """Values of layers within polygons, by polygon, layer and date."""

    request: str
    weights: Literal["area on the WGS84 ellipsoid"] = "area on the WGS84 ellipsoid"
    notes: tuple[str, ...] = Field(description="How polygons differ from those that were sent.")
    series: tuple[PolygonSeries, ...]
