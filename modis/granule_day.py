"""The day of a granule: the rule that assigns orbit swaths and tiles to days."""

from datetime import UTC, date, datetime


def granule_day(start: datetime) -> date:
    """Return the UTC day of a granule's nominal start, by which requests select granules.

    A swath that begins before midnight belongs to the day on which it begins. `start` is aware.
    """
    return start.date() if start.tzinfo is UTC else start.astimezone(UTC).date()
