"""Format bytes, durations and units of measure for people; times for programs."""

import datetime as dt
import re

_BELOW = re.compile(r"(\d*)([A-Za-z]+)\^?(\d?)")
_POWER = re.compile(r"(?<![\w.])([A-Za-z]*[a-z]|[KWJ])\^?(-?\d+)(?![\w.(])")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def unit_text(units: str | None) -> str:
    """Format units as powers, however files write them: m^2/m^2 and m2 m-2 as m² m⁻², 1 as nothing.

    kg/m^2/8day is kg m⁻² (8 day)⁻¹. What cannot be read as a quotient, or is none (n/a), stays.
    """
    units = (units or "").strip()
    if units == "1":
        return ""
    first, *below = units.split("/")
    factors = [_BELOW.fullmatch(one) for part in below for one in part.strip("()").split()]
    if all(factors) and units.lower() != "n/a":
        units = " ".join((first, *(_divisor(*one.groups()) for one in factors if one)))
    return _POWER.sub(lambda found: found[1] + found[2].translate(_RAISED), units)


def _divisor(count: str, unit: str, power: str) -> str:
    """Return a unit below a stroke as one with a negative power."""
    raised = f"-{power or 1}".translate(_RAISED)
    return f"({count} {unit}){raised}" if count else unit + raised


def place_text(latitude: float, longitude: float) -> str:
    """Format a place in degrees: 56.6° N, 4.6° W."""
    lat, lon = (f"{abs(value):.8g}°" for value in (latitude, longitude))
    return f"{lat} {'S' if latitude < 0 else 'N'}, {lon} {'W' if longitude < 0 else 'E'}"


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
