"""Gaps joined over their dates, and the results that they affect."""

import datetime as dt

import pytest

from reprojection.read.completeness import WHOLE, Completeness, Missing
from tasks.requests.gaps import (
    affected,
    cause_of,
    in_percent,
    incomplete_lines,
    join_gaps,
    join_results,
)
from tasks.requests.plan import Gap

WHY = "not in the archive"
LAI = "MCD15A2.005/Lai_1km"


def raster(day: str) -> str:
    return f"{LAI}/MCD15A2.005.Lai_1km.{day}.tif"


def lacking(*names: str, share: float = 0.5) -> Completeness:
    return Completeness(share=share, missing=tuple(Missing(what=name, why=WHY) for name in names))


def test_gaps_that_differ_by_date_alone_are_one_line() -> None:
    days = [dt.date(2018, 1, 1) + dt.timedelta(days=n) for n in range(40)]
    gaps = [Gap(what=f"MOD10A1.006 {day} h17v03", reason="none") for day in days]
    other = Gap(what="MOD10A1.006 h18v03", reason="none at all")
    joined = join_gaps([*gaps, other])
    assert [str(one) for one in joined] == [
        "MOD10A1.006 each day from 2018-01-01 to 2018-02-09 h17v03: none",
        "MOD10A1.006 h18v03: none at all",
    ]
    assert [one.count for one in joined] == [40, 1]
    some = join_gaps(gaps[::8])
    assert str(some[0]).startswith("MOD10A1.006 5 dates from 2018-01-01 to 2018-02-02")


def test_a_gap_names_the_results_that_lack_it() -> None:
    tile, granule = "MCD15A2.005 2012-01-09 h17v03", "MCD15A2.A2012009.h17v03.005.1.hdf"
    results = [
        (raster("2012-01-01"), WHOLE),
        (raster("2012-01-09"), lacking(tile)),
        (raster("2012-01-17"), lacking(granule)),
        (f"{LAI}/MCD15A2.005.Lai_1km.nc", lacking(tile, granule)),
    ]
    gaps = [
        Gap(what=tile, reason="x"),
        Gap(what="MCD15A2.005 h17v03", reason="in the whole span"),
        Gap(what="MCD15A2.005 2012-01-09", reason="no granule of this date"),
        Gap(what=granule, reason="unreadable"),
        Gap(what="MCD15A2.005 2012-01-25", reason="y"),
    ]
    found = affected(gaps, results)
    cube = f"{LAI}/MCD15A2.005.Lai_1km.nc"
    assert found == {
        tile: (raster("2012-01-09"), cube),
        "MCD15A2.005 h17v03": (raster("2012-01-09"), cube),
        "MCD15A2.005 2012-01-09": (raster("2012-01-09"), cube),
        granule: (raster("2012-01-17"), cube),
    }
    first, *_ = join_gaps(gaps, found)
    assert first.affects == (f"{LAI} 2012-01-09, the cube",)


def test_results_are_joined_by_folder_and_date() -> None:
    days = [f"2012-{month:02d}" for month in range(1, 7)]
    months = [f"monthly-mean/Lai_mean/Lai_mean.{day}.tif" for day in days]
    assert join_results([*months, raster("2012-01-09"), f"{LAI}/MCD15A2.005.Lai_1km.zarr.zip"]) == [
        f"{LAI} 2012-01-09, the cube",
        "monthly-mean/Lai_mean 6 results from 2012-01 to 2012-06",
    ]


def test_incomplete_results_are_a_line_for_each_folder() -> None:
    days = ("2012-01-01", "2012-01-09")
    lines = incomplete_lines(
        [(raster(day), lacking("x", share=n / 4)) for n, day in enumerate(days)]
    )
    assert lines == [f"{LAI} 2012-01-01, 2012-01-09 (0% to 25% of the inputs)"]


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0%"), (0.001, "under 1%"), (0.5, "50%"), (0.9999, "99%"), (1, "100%")]
)
def test_only_all_is_a_hundred_in_percent(share: float, text: str) -> None:
    assert in_percent(share) == text


LONG = "choice refused: the QA rule names layer 'x', which {} does not hold; its layers are: " + (
    "a, " * 200
)


def test_one_cause_is_told_once_with_what_it_cost() -> None:
    days = [dt.date(2018, 1, 1) + dt.timedelta(days=16 * n) for n in range(5)]
    names = [f"MOD13A2.A{day:%Y%j}.h18v04.061.2021001000000.hdf" for day in days]
    cells = [
        Gap(what=f"MOD13A2.61 NDVI {day} cell at 0, 0", reason=LONG.format(name))
        for day, name in zip(days, names, strict=True)
    ]
    rasters = [
        Gap(what=f"MOD13A2.061.NDVI.{day}", reason=f"a cell of {day}: {LONG.format(name)}")
        for day, name in zip(days, names, strict=True)
    ]
    other = Gap(what="a.hdf", reason="unreadable input file. See `swathmill archive check`")
    plain = [Gap(what=f"MOD13A2.061 h{h:02}v04", reason=WHY) for h in range(3)]
    joined = join_gaps([*cells, *rasters, other, *plain])
    assert [one.count for one in joined] == [10, 1, 1, 1, 1]
    text = "\n".join(map(str, joined))
    assert text.count("its layers are") == 1
    assert joined[0].what.startswith("MOD13A2.61 NDVI 5 dates from 2018-01-01 to 2018-03-06")
    assert joined[0].what.endswith(" more")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("unknown: boom", "unknown: boom"),
        ("a cell of 2018-01-01: unknown: boom", "unknown: boom"),
        (
            "choice refused: MOD13A2.A2018001.h18v04.061.1.hdf of 2018-01-01 has no layer",
            "choice refused: * of * has no layer",
        ),
        (  # another granule that is cut off is another cause
            "a.hdf: bad image format: MOD13A2.A2018001.h18v04.061.1.hdf is cut off",
            "bad image format: MOD13A2.A2018001.h18v04.061.1.hdf is cut off",
        ),
        ("no tile h18v04 in the archive", ""),
    ],
)
def test_a_cause_is_the_same_for_all_that_it_cost(text: str, cause: str) -> None:
    assert cause_of(text) == cause
