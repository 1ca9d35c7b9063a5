"""In what two rasters differ whose bytes are not equal."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from reprojection.read.raster import Raster
from reprojection.write.write import read_raster

_MOST = 20
_LONGEST = 120


def differences(old: Path, new: Path) -> tuple[str, ...]:
    """Say in what a raster that was made again differs: in words, the most important first."""
    before, after = read_raster(old), read_raster(new)
    lines = [*_pixels(before, after), *_said(before, after)]
    if not lines:
        lines = [
            f"the pixels and all that is said of them are equal; {old.stat().st_size:,} and "
            f"{new.stat().st_size:,} bytes: another build or machine compressed them, or the file "
            "was rewritten"
        ]
    more = len(lines) - _MOST
    return (*lines[:_MOST], *((f"and {more} more",) if more > 0 else ()))


def _pixels(before: Raster, after: Raster) -> Iterator[str]:
    if before.data.shape != after.data.shape or before.data.dtype != after.data.dtype:
        yield (
            f"bands, rows and columns: {before.data.shape} of {before.data.dtype}, made again "
            f"{after.data.shape} of {after.data.dtype}"
        )
        return
    for number, (one, other) in enumerate(zip(before.data, after.data, strict=True), 1):
        same = one == other
        if one.dtype.kind == "f":
            same |= np.isnan(one) & np.isnan(other)
        count = int((~same).sum())
        if count:
            row, column = (int(place) for place in np.argwhere(~same)[0])
            yield (
                f"band {number}: {count:,} of {same.size:,} pixels, the first in row {row}, "
                f"column {column}: {one[row, column]}, made again {other[row, column]}"
            )
    if repr(before.nodata) != repr(after.nodata):
        yield f"nodata: {before.nodata}, made again {after.nodata}"


def _said(before: Raster, after: Raster) -> Iterator[str]:
    one, other = (raster.description().model_dump(mode="json") for raster in (before, after))
    yield from _fields("", one, other)


def _fields(path: str, one: JsonValue, other: JsonValue) -> Iterator[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*one, *other)):
            yield from _fields(f"{path}.{name}".lstrip("."), one.get(name), other.get(name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from _fields(f"{path}[{number}]", mine, theirs)
    else:
        yield f"{path}: {_short(one)}, made again {_short(other)}"


def _short(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
