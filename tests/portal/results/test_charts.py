"""Charts over time: dates at their places, breaks where a value lacks, round ticks."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portal.results.charts import Mark, chart

FINITE = st.floats(-1e12, 1e12, allow_nan=False)


def marks(*values: float | None) -> list[Mark]:
    return [Mark(name=f"day {n}", moment=n, value=value) for n, value in enumerate(values)]


def test_the_axis_begins_with_the_first_date_though_it_has_no_value() -> None:
    drawn = chart(marks(None, None, 3.0, 4.0, None), "")
    first, *_, last = drawn.dates
    assert (first.text, last.text) == ("day 0", "day 4")
    assert 0 < first.at < last.at < 100
    (one, two) = drawn.places
    assert one.x == pytest.approx((first.at + last.at) / 2)
    assert two.x == pytest.approx(first.at + 0.75 * (last.at - first.at))


def test_a_line_breaks_at_a_date_without_a_value() -> None:
    assert [len(run) for run in chart(marks(1, 2, None, 3, None, 4, 5, 6), "").runs] == [2, 1, 3]


def test_overpasses_lie_at_their_times() -> None:
    drawn = chart([Mark(name=str(at), moment=at, value=1.0) for at in (0, 720, 1440)], "")
    left, middle, right = (one.x for one in drawn.places)
    assert middle == pytest.approx((left + right) / 2)


@settings(max_examples=40)
@given(st.lists(st.one_of(st.none(), FINITE), min_size=1, max_size=40), st.floats(0, 1e6))
def test_every_mark_with_its_spread_lies_between_the_ticks(
    values: list[float | None], spread: float
) -> None:
    drawn = chart(
        [Mark(name=str(n), moment=n, value=v, spread=spread) for n, v in enumerate(values)], ""
    )
    assert len(drawn.places) == sum(value is not None for value in values)
    assert 2 <= len(drawn.values) <= 8
    for one in drawn.places:
        assert 0 <= one.high <= one.y + 1e-6
        assert one.y <= one.low + 1e-6
        assert one.low <= 100
    at = [tick.at for tick in drawn.dates]
    assert at == sorted(at)
    assert all(later - sooner >= 17.9 for sooner, later in pairwise(at[:-1]))
