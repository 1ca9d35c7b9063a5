"""What is known of a user's own raster, such as elevation or a land mask: its catalogue entry.

Such a raster is kept as one HDF5 file (`reprojection/user_rasters/conversion.py` writes it), which
holds this description as text. So a file tells by itself what a catalogue tells of other products.
"""

import re
from datetime import date
from itertools import pairwise

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from reprojection.catalogue import LayerEntry, Product
from reprojection.catalogue.layers import LayerKind, Scaling

DESCRIPTION = "SwathmillRaster"
"""The attribute of the file that holds the description, as JSON."""
PREFIX = "raster:"
NAME = r"[a-z0-9][a-z0-9-]{0,62}"
LAYER = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")

Ring = tuple[tuple[float, float], ...]


class RasterLayer(BaseModel):
    """One layer: physical values are `stored * scale + offset`; `nodata` is no value."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str
    dtype: str
    kind: LayerKind
    units: str = ""
    title: str = ""
    nodata: int | float | None = None
    valid_range: tuple[int | float, int | float] | None = None
    scale: float = 1.0
    offset: float = 0.0
    classes: dict[int, str] = Field(default_factory=dict)


class UserRaster(BaseModel):
    """A user's raster: its grid, its layers, its dates (none: it is of no date).

    `transform` is (a, b, c, d, e, f) as in `Grid`, `resolution` the pixel's side in metres,
    `outline` the rings of longitude and latitude around it. `period` is the number of days for
    which each date stands.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str = Field(pattern=rf"^{NAME}$")
    crs: str
    transform: tuple[float, float, float, float, float, float]
    width: int
    height: int
    resolution: float
    outline: tuple[Ring, ...]
    layers: tuple[RasterLayer, ...]
    days: tuple[date, ...] = ()
    period: int = 1

    @property
    def product_name(self) -> str:
        """The name of its product, without owner and version: `raster:elevation`."""
        return f"{PREFIX}{self.name}"

    @property
    def box(self) -> tuple[float, float, float, float]:
        """West, south, east and north of its outline, in degrees; west > east across 180.

        So it is in GeoJSON (RFC 7946, 5.2). The box leaves out the widest gap of longitudes.
        """
        points = np.array([point for ring in self.outline for point in ring])
        south, north = points[:, 1].min(), points[:, 1].max()
        east_of = np.unique(points[:, 0])
        west, east = east_of[0], east_of[-1]
        gaps = np.diff(east_of)
        if gaps.size and gaps.max() > 360 - (east - west):
            at = int(gaps.argmax())
            west, east = east_of[at + 1], east_of[at]
        return float(west), float(south), float(east), float(north)

    def product(self) -> Product:
        """Return its entry in the form of the catalogue's; dates are no bands there."""
        return Product(
            name=self.product_name,
            collections=("",),
            family="raster",
            title=self.name,
            geometry="raster",
            resolution=self.resolution,
            period=self.period,
            covers=self.period,
            scaling=Scaling.ADD,
            layers={one.name: _entry(one) for one in self.layers},
        )


def _entry(layer: RasterLayer) -> LayerEntry:
    return LayerEntry(
        kind=layer.kind,
        classes=layer.classes,
        units=layer.units,
        fill=layer.nodata,
        valid_range=layer.valid_range,
        title=layer.title,
    )


def usual_period(days: tuple[date, ...]) -> int:
    """Return the most frequent number of days from one date to the next; 1 without two dates."""
    gaps = [(after - before).days for before, after in pairwise(days)]
    return max(set(gaps), key=lambda gap: (gaps.count(gap), -gap)) if gaps else 1
