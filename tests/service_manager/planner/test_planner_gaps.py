"""Composites over time: their expected days and gaps."""

import datetime as dt

from archives.model import Misnamed
from modis.tile import Tile
from service_manager.planner.gaps import expected_days, tile_gaps
from tasks.request.document import ProductChoice, Time
from tasks.requests.plan import Gap
from tests.service_manager.shelf import composites, made, outputs, tile_granule

YEAR = Time(start=dt.date(2012, 1, 1), end=dt.date(2012, 12, 31))


def test_eight_day_composites_start_anew_each_year() -> None:
    span = Time(start=dt.date(2011, 12, 1), end=dt.date(2012, 1, 31))
    days = [*expected_days(8, span, [dt.date(2012, 1, 1)])]
    assert days[-6:] == [
        dt.date(2011, 12, 19),
        dt.date(2011, 12, 27),
        dt.date(2012, 1, 1),
        dt.date(2012, 1, 9),
        dt.date(2012, 1, 17),
        dt.date(2012, 1, 25),
    ]


def test_the_aqua_half_of_sixteen_day_pairs_starts_eight_days_later() -> None:
    found = [dt.date(2012, 1, 9), dt.date(2012, 1, 25)]
    days = [*expected_days(16, Time(start=YEAR.start, end=dt.date(2012, 2, 29)), found)]
    assert days == [
        dt.date(2012, 1, 9),
        dt.date(2012, 1, 25),
        dt.date(2012, 2, 10),
        dt.date(2012, 2, 26),
    ]


def test_monthly_and_yearly_products() -> None:
    assert [d.month for d in expected_days(30, YEAR, [])] == [*range(1, 13)]
    assert [*expected_days(365, YEAR, [])] == [dt.date(2012, 1, 1)]
    assert len([*expected_days(1, YEAR, [])]) == 366


def test_gaps_of_tiles_and_dates() -> None:
    lost = [
        record
        for record in composites()
        if record.start_day != dt.date(2012, 2, 18)
        and (record.start_day, record.tile) != (dt.date(2012, 3, 5), (18, 3))
    ]
    found = made(lost)
    assert [gap.what for gap in found.gaps] == [
        "MCD15A2.005 2012-02-18",
        "MCD15A2.005 2012-03-05 h18v03",
    ]
    assert len(outputs(found)) == 30


def test_a_tile_that_is_nowhere_is_one_gap() -> None:
    found = made(composites([(17, 3)]))
    assert found.gaps == (
        Gap(
            what="MCD15A2.005 h18v03",
            reason="the archive has no granule of this tile in the whole time span",
        ),
    )


def test_a_file_under_the_name_of_a_missing_granule_is_told_as_what_it_holds() -> None:
    first, second = dt.date(2012, 1, 1), dt.date(2012, 1, 9)
    span = Time(start=first, end=dt.date(2012, 1, 16))
    choice = ProductChoice(name="MCD15A2", collection="5", layers=("Lai_1km",))
    other = tile_granule(second, 18, 4, product="MOD09A1", collection="6")
    wrong = Misnamed(
        file="MCD15A2.A2012009.h17v03.005.1.hdf", day=second, tile=Tile(17, 3), holds=other
    )
    both = frozenset({Tile(17, 3), Tile(18, 3)})
    told = (
        "the file MCD15A2.A2012009.h17v03.005.1.hdf holds h18v04 of MOD09A1.006 of 2012-01-09, as "
        "its metadata says: rename the file, and download the granule that this name belongs to"
    )
    gap = Gap(what="MCD15A2.005 2012-01-09 h17v03", reason=told)
    found = {first: both, second: frozenset({Tile(18, 3)})}
    assert [*tile_gaps(choice, 8, span, both, found, [wrong])] == [gap]
    # The only granule of its tile, and of its date.
    alone = frozenset({Tile(17, 3)})
    assert [*tile_gaps(choice, 8, span, alone, {first: alone}, [wrong])] == [gap]
    day = Time(start=second, end=second)
    assert [*tile_gaps(choice, 8, day, alone, {}, [wrong])] == [gap]
    # The right file is there, too.
    assert [*tile_gaps(choice, 8, span, both, {first: both, second: both}, [wrong])] == []
