"""The resampling methods and what they do, for requests, the catalogue, the warp and its kernels.

A new method is named here, and made in `reprojection/warp` and `reprojection/kernels/csrc`, where
its number is its place in `METHODS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Method = Literal[
    "nearest", "bilinear", "cubic", "average", "gdal-average", "mode", "min", "max", "median"
]

Statistic = Literal["count", "std"]


@dataclass(frozen=True, kw_only=True)
class MethodTraits:
    """What a method does to values, and which source pixels it takes.

    `blends` means that it makes values which no source pixel has, so that it does not go for
    classes and bit fields; `overshoots` that some of them lie beyond all source pixels; `swaths`
    that it goes for footprints, which are no lattice. `reach` is how far it reaches beyond a target
    pixel's centre, in source pixels (half its kernel's width); a method of the `whole_pixel` takes
    all that lies under the target pixel instead.
    """

    blends: bool = False
    overshoots: bool = False
    swaths: bool = False
    reach: float = 0.0
    whole_pixel: bool = False


METHODS: Mapping[str, MethodTraits] = {
    "nearest": MethodTraits(swaths=True),
    "bilinear": MethodTraits(blends=True, reach=1.0),
    "cubic": MethodTraits(blends=True, overshoots=True, reach=2.0),
    "average": MethodTraits(blends=True, swaths=True, whole_pixel=True),
    "gdal-average": MethodTraits(blends=True, whole_pixel=True),
    "mode": MethodTraits(swaths=True, whole_pixel=True),
    "min": MethodTraits(swaths=True, whole_pixel=True),
    "max": MethodTraits(swaths=True, whole_pixel=True),
    "median": MethodTraits(blends=True, whole_pixel=True),
}

STATISTICS: Mapping[str, MethodTraits] = {
    "count": MethodTraits(swaths=True, whole_pixel=True),
    "std": MethodTraits(blends=True, swaths=True, whole_pixel=True),
}
"""Statistics of the footprints in a pixel that are no value of the layer: for swaths alone."""

TRAITS: Mapping[str, MethodTraits] = {**METHODS, **STATISTICS}

SWATH_METHODS = tuple(name for name, traits in TRAITS.items() if traits.swaths)
CLASS_METHODS = tuple(name for name, traits in METHODS.items() if not traits.blends)
