"""The result of reprojection: pixels on a grid, with everything a file must say about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from reprojection.grid.grids import Grid
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.read.description import Band, Colour, Description, GridDescription, Provenance
from reprojection.read.lineage import Kind

if TYPE_CHECKING:
    import xarray as xr

Pixels = npt.NDArray[np.generic]

_ROWS_AT_ONCE = 256


def share_of(some: int, pixels: int) -> float:
    """Return a share of pixels, rounded to six significant digits."""
    return float(f"{some / pixels:.6g}")


@dataclass(frozen=True, kw_only=True)
class Raster:
    """Pixels on a grid, with everything that a file says about them.

    A pixel is worth `stored * scale + offset` in `units`.

    Attributes:
        data: Stored pixels, shape (bands, grid.height, grid.width), of one dtype.
        grid: Where they lie.
        nodata: What a pixel without a value holds, outside the valid range; None: every pixel has
            one. Bands of role "count", "source" and "reason" are never empty.
        kind: "continuous", "class" or "bitfield": whether values may be blended.
        bands: Name and role of each band.
        provenance: Granules, times and options that the pixels depend on.
        scale: Factor from stored to physical values, 1 by default.
        offset: What is added then, 0 by default.
        units: Physical units, "" by default.
        codes: Names of the values of a class layer or band.
        colours: Red, green, blue and opacity (0 to 255) by value of a class layer.
        completeness: Which expected inputs are missing; by default none.
        notes: What the granules state of the layer and was not understood, so not applied.

    Raises:
        ValueError: the data are not of three dimensions, or not of as many bands as are named.
    """

    data: Pixels
    grid: Grid
    nodata: float | int | None
    kind: Kind
    bands: tuple[Band, ...]
    provenance: Provenance
    scale: float = 1.0
    offset: float = 0.0
    units: str = ""
    codes: Mapping[int, str] = field(default_factory=dict)
    colours: Mapping[int, Colour] = field(default_factory=dict)
    completeness: Completeness = WHOLE
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.data.ndim != 3 or len(self.data) != len(self.bands):
            raise ValueError(f"{self.data.shape} pixels do not fit {len(self.bands)} bands")

    def valid(self, band: int = 0) -> npt.NDArray[np.bool_]:
        """Return where a band has a value, bool of shape (height, width).

        Args:
            band: Number of the band, from 0, the default.
        """
        plane = self.data[band]
        if self.nodata is None or self.bands[band].is_index:
            return np.ones(plane.shape, bool)
        valid: npt.NDArray[np.bool_] = np.not_equal(plane, self.nodata)
        if np.isnan(self.nodata):
            valid = ~np.isnan(plane)
        return valid

    @property
    def valid_share(self) -> float:
        """The share of pixels with a value in at least one band of the layer's own.

        It is rounded to six significant digits, and is 0 only if no pixel has a value.
        """
        return share_of(self.valid_pixels, self.grid.pixels)

    @property
    def valid_pixels(self) -> int:
        """The number of pixels of `data` with a value in at least one band of the layer's own."""
        own = [n for n, band in enumerate(self.bands) if band.role == self.bands[0].role]
        found = 0
        for start in range(0, self.data.shape[1], _ROWS_AT_ONCE):
            strip = replace(self, data=self.data[:, start : start + _ROWS_AT_ONCE])
            found += int(np.logical_or.reduce([strip.valid(band) for band in own]).sum())
        return found

    def values(self, band: int = 0) -> npt.NDArray[np.float64]:
        """Return a band in `units`: float64, shape (height, width), NaN where it has no value.

        Args:
            band: Number of the band, from 0, the default.
        """
        physical: npt.NDArray[np.float64] = self.data[band].astype(np.float64)
        if self.bands[band].role == "data":
            physical = physical * self.scale + self.offset
        physical[~self.valid(band)] = np.nan
        return physical

    def to_xarray(self) -> "xr.Dataset":
        """Make a dataset of the raster, a variable for each band, named after the layer.

        The values are those of `data`, and attributes say the rest as CF has it: `_FillValue`,
        `scale_factor`, `add_offset`, flags. `xarray.decode_cf` makes physical values of them. The
        CRS is found by rioxarray and odc-geo.

        Raises:
            ChoiceRefusedError: the grid is rotated, or xarray is not installed.
        """
        from reprojection.read.raster_dataset import dataset_of

        return dataset_of(self.description(), self.grid, self.data, self.nodata)

    @classmethod
    def of(
        cls, said: Description, data: Pixels, nodata: float | int | None, grid: Grid | None = None
    ) -> Self:
        """Make the raster that is described.

        Args:
            said: All but its pixels.
            data: Stored pixels, shape (bands, height, width).
            nodata: What a pixel without a value holds; None: every pixel has one.
            grid: Where the pixels lie, if that is another grid than is described.
        """
        return cls(
            data=data,
            grid=grid or said.grid.grid(),
            nodata=nodata,
            kind=said.kind,
            bands=said.bands,
            scale=said.scale,
            offset=said.offset,
            units=said.units,
            codes=said.codes,
            colours=said.colours,
            provenance=said.provenance,
            completeness=said.completeness,
            notes=said.notes,
        )

    def description(self) -> Description:
        """Describe everything except pixels and nodata, as a file holds it in JSON."""
        return Description(
            kind=self.kind,
            units=self.units,
            scale=self.scale,
            offset=self.offset,
            bands=self.bands,
            codes=dict(sorted(self.codes.items())),
            colours=dict(sorted(self.colours.items())),
            provenance=self.provenance,
            grid=GridDescription(
                crs=self.grid.crs,
                transform=self.grid.transform,
                width=self.grid.width,
                height=self.grid.height,
            ),
            completeness=self.completeness,
            notes=self.notes,
        )
