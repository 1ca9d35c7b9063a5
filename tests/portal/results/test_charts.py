"""Charts: dates at their places, breaks where a value lacks, round ticks, bars, pairs."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portal.results.charts import Bar, Chart, Line, Mark, bars, chart

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def one(marks: list[Mark]) -> Chart:
    return chart([Line(marks=marks)], "")


def marks(*values: float | None) -> list[Mark]:
    return [Mark(name=f"day {n}", moment=n, value=value) for n, value in enumerate(values)]


def test_the_axis_begins_with_the_first_date_though_it_has_no_value() -> None:
    drawn = one(marks(None, None, 3.0, 4.0, None))
    first, *_, last = drawn.dates
    assert (first.text, last.text) == ("day 0", "day 4")
    assert 0 < first.at < last.at < 100
    (three, four) = drawn.places
    assert three.x == pytest.approx((first.at + last.at) / 2)
    assert four.x == pytest.approx(first.at + 0.75 * (last.at - first.at))


def test_a_line_breaks_at_a_date_without_a_value() -> None:
    (line,) = one(marks(1, 2, None, 3, None, 4, 5, 6)).lines
    assert [len(run) for run in line.runs] == [2, 1, 3]


def test_overpasses_lie_at_their_times() -> None:
    drawn = one([Mark(name=str(at), moment=at, value=1.0) for at in (0, 720, 1440)])
    left, middle, right = (place.x for place in drawn.places)
    assert middle == pytest.approx((left + right) / 2)


@settings(max_examples=40)
@given(st.lists(st.one_of(st.none(), FINITE), min_size=1, max_size=40), st.floats(0, 1e6))
def test_every_mark_with_its_spread_lies_between_the_ticks(
    values: list[float | None], spread: float
) -> None:
    drawn = one([Mark(name=str(n), moment=n, value=v, spread=spread) for n, v in enumerate(values)])
    assert len(drawn.places) == sum(value is not None for value in values)
    assert 2 <= len(drawn.values) <= 8
    for place in drawn.places:
        assert 0 <= place.high <= place.y + 1e-6
        assert place.y <= place.low + 1e-6
        assert place.low <= 100
    texts = [tick.text for tick in drawn.values]
    assert len(set(texts)) == len(texts), "each tick has a label of its own"
    at = [tick.at for tick in drawn.dates]
    assert at == sorted(at)
    assert all(later - sooner >= 17.9 for sooner, later in pairwise(at[:-1]))


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.1234567, 0.1234612), ["0.123456", "0.123458", "0.123460", "0.123462"]),
        ((0.0, 4.7), ["0", "2", "4", "6"]),
        ((271.3, 271.8), ["271.2", "271.4", "271.6", "271.8"]),
        ((0.0, 2.5e-7), ["0", "1e-07", "2e-07", "3e-07"]),
        ((-1e308, 1e308), ["-1.0e+308", "-5.0e+307", "0", "5.0e+307", "1.0e+308"]),
    ],
)
def test_ticks_have_the_digits_that_tell_them_apart(
    values: tuple[float, float], texts: list[str]
) -> None:
    assert [tick.text for tick in one(marks(*values)).values] == texts


def test_several_lines_share_the_axes() -> None:
    late = [Mark(name="day 3", moment=3, value=9.0)]
    drawn = chart([Line(name="a", marks=marks(1, 2)), Line(name="b", marks=late)], "")
    assert [line.name for line in drawn.lines] == ["a", "b"]
    assert drawn.lines[0].places[0].x < drawn.lines[1].places[0].x
    assert [tick.text for tick in drawn.dates] == ["day 0", "day 1", "day 3"]


def test_marks_over_numbers_have_round_numbers_below() -> None:
    pairs = [Mark(name="", moment=moment, value=1.0) for moment in (0.25, 3.5)]
    drawn = chart([Line(marks=pairs, is_points=True)], "", has_dates=False)
    assert [tick.text for tick in drawn.dates] == ["0", "1", "2", "3", "4"]
    first, *_, last = (tick.at for tick in drawn.dates)
    left, right = (place.x for place in drawn.places)
    assert left == pytest.approx(first + 0.25 / 4 * (last - first))
    assert right == pytest.approx(first + 3.5 / 4 * (last - first))


def test_bars_stand_on_nothing_one_part_on_the_other() -> None:
    drawn = bars(
        [
            Bar(name="a", parts=[("", 3), ("failure", 1)], text=""),
            Bar(name="b", parts=[("", 0)], text=""),
        ],
        "",
        least=1,
        edges=(10.0, 20.0),
    )
    ticks = {tick.text: tick.at for tick in drawn.values}
    (_, top, height), (kind, upper, part) = drawn.columns[0].parts
    assert kind == "failure"
    assert top + height == pytest.approx(ticks["0"])
    assert upper + part == pytest.approx(top)
    assert upper == pytest.approx(ticks["4"])
    assert drawn.columns[1].parts[0][2] == 0.0
    one, two = drawn.columns
    assert one.x + one.width == pytest.approx(two.x)
    assert drawn.dates[0].at == pytest.approx(one.x)
    assert drawn.dates[-1].at == pytest.approx(two.x + two.width)
    assert (drawn.dates[0].text, drawn.dates[-1].text) == ("10", "20")


def test_of_very_many_bars_those_of_nothing_are_not_drawn() -> None:
    few = [Bar(name=str(n), parts=[("", float(n == 7))], text="") for n in range(100)]
    assert len(bars(few, "", least=1).columns) == 100
    (only,) = bars([*few, few[0]], "", least=1).columns
    assert only.bar.name == "7"
