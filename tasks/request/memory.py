"""How much memory one attempt of a request takes at most: told and checked before anything runs.

What an attempt holds is measured ten times a second and bounded by `SWATHMILL_ATTEMPT_MEMORY_GB`
(`worker/sandbox/guard.py`). Cells, groups, tables and copies of granules are of bounded size, and
what is kept for the next attempt is a share of the bound. A raster is as large as the request has
it; packages say what they need (`admission.py`).
"""

from collections.abc import Iterator

from reprojection.grid.grids import Grid
from reprojection.write.sizes import MEAN_BYTES, STRIPES, TILE, WHOLE_BYTES
from tasks.errors import RequestRefusedError
from tasks.request.resolved import ResolvedRequest
from tasks.settings import Settings

OWN_BYTES = 250_000_000
"""What the processes of an attempt take besides: libraries, GDAL's cache (128 MB), a granule."""
_TOLD = 0.5
"""The share of the bound from which on a request's memory is told."""


def attempt_bytes(resolved: ResolvedRequest) -> int:
    """Return the memory that an attempt takes at most, by the largest raster of the request."""
    if resolved.request.region.in_place:
        return OWN_BYTES
    return OWN_BYTES + _raster_bytes(resolved, _largest(resolved))


def _largest(resolved: ResolvedRequest) -> Grid:
    return max((part.grid for part in resolved.target.parts), key=lambda grid: grid.pixels)


def _pixel(resolved: ResolvedRequest) -> tuple[int, int, bool]:
    """Return the bytes of a pixel, the bands, and whether stored values are asked for."""
    stored = all(layer.units == "stored" for one in resolved.products for layer in one.layers)
    stored = stored and not _has_mean(resolved)
    return (2 if stored else 4), 1 + len(resolved.request.extra_bands), stored  # int16, float32


def _has_mean(resolved: ResolvedRequest) -> bool:
    """Tell whether a raster is the mean of several sensors, in float32 whatever they store."""
    return any(one.choice.part is not None and one.choice.part.is_mean for one in resolved.products)


def _raster_bytes(resolved: ResolvedRequest, grid: Grid) -> int:
    """Return what a raster takes while it is written.

    All bands of a raster have one type. Beside them are their overviews, a third of them, or
    before that the copy of one band of floats that is ordered for its quartiles. A large raster
    of cells is never in memory as a whole.
    """
    size, bands, stored = _pixel(resolved)
    beside = bands / 3 if stored else max(1.0, bands / 3)
    needed = grid.pixels * size * (bands + beside)
    most = WHOLE_BYTES * (1 + beside / bands)
    needed = min(needed, max(most, STRIPES * grid.width * TILE * size * bands))
    if _has_mean(resolved):
        needed += MEAN_BYTES * grid.width * min(TILE, grid.height)
    return int(needed)


def check_memory(resolved: ResolvedRequest, limits: Settings) -> None:
    """Refuse a request of which an attempt would take more memory than it may use.

    Raises RequestRefusedError.
    """
    needed = attempt_bytes(resolved) / 1e9
    if needed <= limits.attempt_memory_gb or resolved.request.region.in_place:
        return
    grid = _largest(resolved)
    size, bands, _ = _pixel(resolved)
    raise RequestRefusedError(
        "grid.resolution" if resolved.request.grid.modis is None else "grid.modis",
        f"one raster would have {grid.pixels:,} pixels in {bands} band{'s' * (bands > 1)} of "
        f"{size} bytes; an attempt would take some {needed:.1f} GB of memory to write it, and may "
        f"use {limits.attempt_memory_gb:g} GB (SWATHMILL_ATTEMPT_MEMORY_GB).",
        "Ask for a coarser grid, a smaller region, stored values or fewer extra bands, or "
        "have the limit raised.",
    )


def memory_notes(resolved: ResolvedRequest, limits: Settings) -> Iterator[str]:
    """Say what an attempt takes at most, where that is a good part of what it may use."""
    needed = attempt_bytes(resolved) / 1e9
    if needed > _TOLD * limits.attempt_memory_gb:
        yield (
            f"To write the largest raster takes up to {needed:.1f} GB of memory; an attempt may "
            f"use {limits.attempt_memory_gb:g} GB (SWATHMILL_ATTEMPT_MEMORY_GB)."
        )
