"""What the form says of the archive's days, while they are typed."""

import datetime as dt
from dataclasses import replace

from portal.submit.archive_lines import lacks_of
from portal.submit.forms import Form, new_card
from tasks.holdings.holdings import Held, Holdings

DAYS = {"first": dt.date(2012, 1, 1), "last": dt.date(2012, 4, 30)}
HELD = Holdings(
    products=(Held(name="MCD15A2", collection="5", granules=1, bits="1", anywhere=True, **DAYS),)
)
FORM = Form(
    products=(new_card("MCD15A2", "5", ["Lai_1km"]),),
    west="-8", south="50", east="6", north="58",
)  # fmt: skip


def said(start: str, end: str) -> list[tuple[str, str, tuple[str, str] | None]]:
    found = lacks_of(replace(FORM, start=start, end=end), HELD).found
    return [(one.control, one.text, one.days) for one in found]


def test_days_beyond_what_the_archive_has_are_told_with_those_it_has() -> None:
    """A composite of eight days that begins on the last day covers the seven after it."""
    assert said("2012-01-01", "2012-05-07") == []
    beyond = said("2012-01-01", "2012-05-08")
    text = "The archive's MCD15A2 005 ends at 2012-05-07: there is nothing beyond."
    assert beyond == [("end", text, ("2012-01-01", "2012-05-07"))]
    before = said("2011-12-31", "2012-02-01")
    text = "The archive's MCD15A2 005 begins at 2012-01-01: there is nothing beyond."
    assert before == [("start", text, ("2012-01-01", "2012-02-01"))]
