"""Format bytes, durations and units of measure for people; times for programs."""

import datetime as dt
import re

from modis.collection import Collection

_POWER = re.compile(r"(?<![\w.])([A-Za-z]*[a-z]|[KWJ])\^?(-?\d+)(?![\w.(])")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


_PRODUCT = re.compile(r"\b([A-Z][A-Z0-9_]*\d[A-Z0-9_]*)\.(\d{1,2})(?![\d.]*\d)")


def named_text(text: str) -> str:
    """Write collections in names as granules and folders have them: MCD15A2.5 as MCD15A2.005."""
    return _PRODUCT.sub(lambda found: f"{found[1]}.{Collection(found[2]).padded}", text)


def unit_text(units: str | None) -> str:
    """Format units as files write them: m^2/m^2 and m2 m-2 with raised powers, 1 as nothing."""
    if not units or units == "1":
        return ""
    return _POWER.sub(lambda found: found[1] + found[2].translate(_RAISED), units)


def size_text(size: float) -> str:
    """Format a number of bytes, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.3g} {unit}"


def duration_text(seconds: float) -> str:
    """Format a duration in seconds: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for large, unit, small, rest in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= large:
            left = whole % large // small
            return f"{whole // large} {unit}" + (f" {left} {rest}" if left else "")
    return f"{whole} s"


def moment(seconds: float) -> dt.datetime:
    """Convert POSIX seconds to a time in UTC."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC)
