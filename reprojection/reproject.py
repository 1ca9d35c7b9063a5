"""Granules of one date onto one grid: the order of masking, resampling and merging."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from reprojection.raster import Raster

if TYPE_CHECKING:
    from reprojection.catalogue import Product
    from reprojection.grids import Grid

Merge = Literal["nadir", "latest", "mean", "first"]
ExtraBand = Literal["count", "source", "reason"]

# Raised whenever the same granules and options would give other pixels: part of every task key.
ALGORITHM = "1"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How granules become pixels. The defaults are those of a request that says nothing.

    `resampling` None means the layer's default. `qa` is a rule by QA layer and field
    (`{"FparLai_QC": {"MODLAND": [0]}}`), a preset's name ("best", "good") or None. `mask` False
    keeps what the valid range and codes would remove, and only fill is empty. `units` "physical"
    gives float32. `codes` "keep" adds a class band. `search` "valid" looks within the footprint
    radius for the nearest pixel with a value, "footprint" takes the nearest whatever it holds.
    """

    resampling: str | None = None
    merge: Merge = "nadir"
    qa: str | Mapping[str, Mapping[str, Sequence[int]]] | None = None
    mask: bool = True
    units: Literal["stored", "physical"] = "stored"
    codes: Literal["mask", "keep"] = "mask"
    search: Literal["footprint", "valid"] = "footprint"
    extra_bands: tuple[ExtraBand, ...] = ()


def reproject(
    paths: Sequence[Path],
    layer: str,
    grid: "Grid",
    options: Options,
    *,
    product: "Product | None" = None,
    threads: int = 1,
) -> Raster:
    """Reproject one layer of granules of one date onto one grid.

    `paths` are tile granules of one sinusoidal lattice, or swath granules; their order does not
    matter. `product` is the catalogue's entry; None looks it up by the granules' own name.

    Raises UnreadableGranuleError, BadFormatError, UnknownLayerError, NoGeolocationError for a
    granule, GridError for a grid, ChoiceRefusedError for options that would give wrong values.
    """
    raise NotImplementedError
