"""Hold the composites of a group to the days that their own granules state.

A plan may know a granule by its name alone, and expect the days of the catalogue's period. The
raster has the range dates of its granules: they decide.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime

from modis.composites import Counted, own_last_day
from reprojection.read.completeness import Missing
from tasks.bag.spec import GroupSpec
from tasks.spec_parts import Band


def own_last(band: Band, end: str) -> date | None:
    """Return the last day of a composite by the end of its granules; None for other inputs."""
    if band.last is None or band.window:
        return None
    ends = [datetime.fromisoformat(end).astimezone(UTC)] if end else []
    return own_last_day(band.day, band.last, ends)


def differs(band: Band, end: str) -> str:
    """Return the last day that the plan expected, if the granules state another; else ""."""
    return "" if own_last(band, end) in (None, band.last) else str(band.last)


def by_own_days(spec: GroupSpec, ends: Mapping[int, str]) -> GroupSpec:
    """Count each composite by its own days in the window; `ends` are by band index."""
    bands = tuple(_counted(spec, band, ends.get(n, "")) for n, band in enumerate(spec.bands))
    return spec.model_copy(update={"bands": bands})


def outside(spec: GroupSpec, ends: Mapping[int, str]) -> dict[int, Missing]:
    """Name the composites that cover no day of the window by their own dates, by band index."""
    found = {}
    for number, band in enumerate(spec.bands):
        last = own_last(band, ends.get(number, ""))
        if spec.time is None or last is None or last == band.last or band.use != "covering":
            continue
        if not spec.time.shared_days(band.day, last):
            why = f"ends on {last} by its granules, before the window; {band.last} was expected"
            found[number] = Missing(what=f"{band.text} {band.cell}", why=why)
    return found


def _counted(spec: GroupSpec, band: Band, end: str) -> Band:
    last = own_last(band, end)
    if last is None or last == band.last:
        return band
    covered = (last - band.day).days + 1
    if spec.time is not None and band.weighed:
        counted = Counted.by_days(spec.time.shared_days(band.day, last), covered)
    else:
        counted = Counted(days=covered)
    return band.model_copy(update={"counted": counted})
