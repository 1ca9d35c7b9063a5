"""The time of a window of a reduction: its own days, whatever lay in them.

All that tells when a window is takes its bounds from here. They have two forms. Bounds by CF end
where the next window begins. Times of provenance and STAC items end with the window's last second,
as those of granules do.
"""

from datetime import UTC, date, datetime, time, timedelta

from pydantic import BaseModel, ConfigDict, Field

_EPOCH = date(1970, 1, 1)
_DAY, _SECOND = timedelta(days=1), timedelta(seconds=1)


class WindowTime(BaseModel):
    """The days of a window.

    Attributes:
        days: The first and the last day of each part, both included, the earliest part first.
        recurs: Whether it is of all years, with a part in each: a climatology.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    days: tuple[tuple[date, date], ...] = Field(min_length=1)
    recurs: bool = False

    @property
    def start(self) -> str:
        """Its first second, ISO 8601 in UTC."""
        return f"{self.days[0][0].isoformat()}T00:00:00Z"

    @property
    def end(self) -> str:
        """Its last second, which belongs to it."""
        return f"{self.days[-1][1].isoformat()}T23:59:59Z"

    def shared_days(self, first: date, last: date) -> int:
        """Return how many of some days lie in it."""
        return sum(
            max(0, (min(last, end) - max(first, begin)).days + 1) for begin, end in self.days
        )

    @property
    def bounds(self) -> tuple[float, float]:
        """Its first midnight and the one after its last day, in days since 1970."""
        first, last = self.days[0][0], self.days[-1][1]
        return float((first - _EPOCH).days), float((last - _EPOCH).days + 1)


def granule_bounds(start: str, end: str) -> tuple[float, float]:
    """Return the bounds by CF of what granules cover, in days since 1970.

    The last second of a day stands for the midnight after it, so that days touch. A text that is
    empty stands for the other one.

    Raises:
        ValueError: both are empty, or one is no time in ISO 8601.
    """
    first, last = datetime.fromisoformat(start or end), datetime.fromisoformat(end or start)
    midnight = datetime.combine(last.date(), time(), last.tzinfo)
    if midnight + _DAY - last <= _SECOND:
        last = midnight + _DAY
    return _since_epoch(min(first, last)), _since_epoch(max(first, last))


def _since_epoch(moment: datetime) -> float:
    epoch = datetime.combine(_EPOCH, time(), UTC)
    return (moment - epoch) / _DAY
