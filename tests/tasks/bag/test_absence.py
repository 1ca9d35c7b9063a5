"""What tasks do without: bounded, counted, and the same however it came together."""

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from tasks.bag.absence import NAMED, Absence, Absent, bounded
from tasks.bag.spec import GridSpec, Input, MosaicSpec

GRID = GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8)


def lacking(part: int, names: int) -> list[Absent]:
    first = dt.date(2012, 1, 1)
    return [
        Absent(part=f"p{part:04d}", what=f"P.006 {first + dt.timedelta(days=n)} {part}", why="why")
        for n in range(names)
    ]


def test_few_are_all_named() -> None:
    few = lacking(0, NAMED)
    assert bounded(reversed(few)) == Absence(tuple(few))
    assert bounded(few).parts == 1


@given(st.lists(st.integers(1, 120), max_size=12), st.data())
def test_counts_are_exact_however_it_came_together(sizes: list[int], data: st.DataObject) -> None:
    groups = [lacking(part, size) for part, size in enumerate(sizes)]
    whole = bounded(one for group in groups for one in group)
    assert whole.parts == len(groups)
    unnamed = whole.unnamed.inputs if whole.unnamed else 0
    assert len(whole.named) == min(NAMED, sum(sizes))
    assert len(whole.named) + unnamed == sum(sizes)
    joined = Absence(())
    for group in data.draw(st.permutations(groups)):
        joined = joined.joined(bounded(group))
    assert joined == whole


def test_a_name_that_several_parts_lack_is_counted_once() -> None:
    day = [Absent(part=f"p{n}", what="P.006 2012-01-01", why="why") for n in range(2 * NAMED)]
    found = bounded(day)
    assert found.parts == 2 * NAMED
    assert found.unnamed is not None
    assert found.unnamed.inputs == 0


def test_a_task_over_fewer_inputs_stays_bounded() -> None:
    inputs = tuple(Input(key=f"{n:064x}", name=f"i{n}") for n in range(2))
    spec = MosaicSpec(name="m", grid=GRID, inputs=inputs)
    over = spec.over({0: inputs[0]}, bounded(lacking(1, 30_000)))
    assert (len(over.missing), over.absent_parts) == (NAMED, 1)
    again = over.over({}, bounded(lacking(2, 10)))
    assert (len(again.missing), again.absent_parts) == (NAMED, 2)
    assert again.missing_unnamed is not None
    assert again.missing_unnamed.inputs == 30_010 - NAMED
    assert again.key != over.key
