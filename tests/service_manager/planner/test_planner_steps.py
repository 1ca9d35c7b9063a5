"""Reductions of several steps, and requests counted by hand before they were planned."""

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from archives.model import GranuleRecord
from service_manager.plans import rehearsal
from tasks.bag.spec import CollectSpec, GroupSpec, MosaicSpec, ReduceSpec, ReprojectSpec
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages
from tasks.request.document import dump_request, parse_request
from tasks.requests.plan import Plan, named_packages
from tasks.storage import schema
from tasks.storage.schema import SCHEMA
from tests.service_manager.shelf import LIMITS, Shelf, outputs, plan, specs, tile_granule

Make = Callable[..., Plan]
SNOW = {"name": "MOD10A1", "collection": "6", "layers": ["NDSI_Snow_Cover"]}
LEAF = {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}
COVER = {"name": "MCD12Q1", "collection": "6", "layers": ["LC_Type1"]}
DAILY = {"name": "daily", "package": "et", "group_by": ["cell", "date"], "requires": "all"}
MONTHLY = {"name": "monthly", "package": "total", "group_by": ["cell", "month"]}
EIGHT = {"name": "eight", "package": "total", "group_by": ["cell", "8-day"], "takes": ["daily"]}


def days(first: str, last: str, step: int = 1) -> list[dt.date]:
    start, end = dt.date.fromisoformat(first), dt.date.fromisoformat(last)
    return [start + dt.timedelta(days=n) for n in range(0, (end - start).days + 1, step)]


def of(product: Mapping[str, Any], there: Sequence[dt.date], h: int = 18) -> list[GranuleRecord]:
    return [tile_granule(day, h, 3, product["name"], product["collection"]) for day in there]


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    """Packages of one output each: `et` makes et.tif, `total` {layer}_sum.tif."""
    for name, output, more in (
        ("et", "et.tif", ""),
        ("total", '"{layer}_sum.tif"', ""),
        ("classes", "share.tif", "takes: [class]\n"),
        ("table", "table.csv", ""),
    ):
        folder = tmp_path / name
        folder.mkdir()
        folder.joinpath("package.yaml").write_text(
            f"name: {name}\ncommand: [sh, run.sh]\noutputs: [{output}]\n{more}"
        )
        folder.joinpath("run.sh").write_text(f"exit 0 # {name}\n")
    return Packages([tmp_path])


@pytest.fixture
def make(packages: Packages) -> Make:
    def make(there: Sequence[GranuleRecord], *products: dict[str, Any], **more: Any) -> Plan:
        request = parse_request(document(*products, **more))
        return plan(request, Shelf(records=there), packages, LIMITS)

    return make


def document(*products: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "products": [*products],
        "region": {"tiles": ["h18v03"]},
        "time": {"start": "2012-01-01", "end": "2012-02-29"},
        "grid": {"modis": 1000},
        "deliver": "results",
        **more,
    }


def bands(found: Plan, output: str = "") -> dict[str, list[str]]:
    """By window: what each group whose run makes an output gets."""
    makers = {
        run.inputs[0].key for run in specs(found, ReduceSpec) if not output or output in run.outputs
    }
    return {
        group.window: [f"{band.product} {band.window or band.day}" for band in group.bands]
        for group in specs(found, GroupSpec)
        if group.key in makers
    }


def counts(found: Plan) -> tuple[int, int, int]:
    """Runs, files among the results, and gaps."""
    return len(specs(found, ReduceSpec)), len(outputs(found)), len(found.gaps)


def told(found: Plan) -> list[str]:
    return [f"{gap.what}: {gap.reason}" for gap in found.gaps]


# Requests whose runs, files and gaps a person counted.


def test_daily_eight_day_and_yearly_products_summed_to_months(make: Make) -> None:
    """60 days; a map of the year for all; sums of 31 and 29 days."""
    there = [
        *of(SNOW, days("2012-01-01", "2012-02-29")),
        *of(LEAF, days("2012-01-01", "2012-02-26", 8)),
        *of(COVER, [dt.date(2012, 1, 1)]),
    ]
    products = (SNOW, LEAF | {"use": "covering"}, COVER | {"use": "static"})
    found = make(there, *products, reduction=[DAILY, MONTHLY])
    assert counts(found) == (60 + 2, 2, 0)
    assert len(specs(found, CollectSpec)) == len(specs(found, ReprojectSpec)) == 60 + 8 + 1
    assert outputs(found) == [
        "monthly/et_sum/et_sum.2012-01.tif",
        "monthly/et_sum/et_sum.2012-02.tif",
    ]
    assert {window: len(got) for window, got in bands(found, "et_sum.tif").items()} == {
        "2012-01": 31,
        "2012-02": 29,
    }
    assert found.notes[-2:] == (
        "daily runs in 60 of 60 windows of time: 2012-01-01 to 2012-02-29.",
        "monthly runs in 2 of 2 windows of time: 2012-01 to 2012-02.",
    )


def test_a_step_has_two_steps_after_it(make: Make) -> None:
    """The last 8 days of 60 begin on 26 February and have 4 days."""
    there = of(SNOW, days("2012-01-01", "2012-02-29"))
    steps = [DAILY, EIGHT, MONTHLY | {"takes": ["daily"]}]
    found = make(there, SNOW, reduction=steps)
    assert counts(found) == (60 + 8 + 2, 8 + 2, 0)
    groups = bands(found, "et_sum.tif")
    assert [len(groups[f"2012-{n:03d}"]) for n in range(1, 60, 8)] == [8] * 7 + [4]
    shown = make(there, SNOW, reduction=[DAILY | {"deliver": True}, *steps[1:]])
    assert counts(shown) == (70, 60 + 8 + 2, 0)
    assert "daily/et/et.2012-01-01.tif" in outputs(shown)


def test_a_climatology_of_months_over_three_years_and_the_anomaly_from_it(make: Make) -> None:
    span = {"start": "2010-01-01", "end": "2012-12-31"}
    leaf = [day for year in (2010, 2011, 2012) for day in days(f"{year}-01-01", f"{year}-12-27", 8)]
    steps = [
        {"name": "monthly", "package": "et", "group_by": ["cell", "month"]},
        {"name": "usual", "package": "total", "group_by": ["cell", "month-of-year"]},
        {
            "name": "anomaly",
            "package": "total",
            "group_by": ["cell", "month"],
            "takes": ["monthly", "usual/et_sum"],
            "requires": "all",
        },
    ]
    found = make(of(LEAF, leaf), LEAF, reduction=steps, time=span)
    assert counts(found) == (36 + 12 + 36, 2 * 36, 0)
    groups = bands(found, "et_sum_sum.tif")
    assert groups["2011-07"] == ["monthly 2011-07", "usual month-07"]
    assert bands(found, "et_sum.tif")["month-07"] == [
        f"monthly {year}-07" for year in (2010, 2011, 2012)
    ]


def test_a_season_across_new_year_of_months(make: Make) -> None:
    span = {"start": "2010-12-01", "end": "2012-02-29", "every": {"from": "12-01", "to": "02-29"}}
    leaf = [day for year in (2010, 2011, 2012) for day in days(f"{year}-01-01", f"{year}-12-27", 8)]
    steps = [MONTHLY, {"name": "winter", "package": "et", "group_by": ["cell", "season"]}]
    found = make(of(LEAF, leaf), LEAF, reduction=steps, time=span)
    assert counts(found) == (6 + 2, 2, 0)
    assert bands(found, "et.tif") == {
        "2011-DJF": ["monthly 2010-12", "monthly 2011-01", "monthly 2011-02"],
        "2012-DJF": ["monthly 2011-12", "monthly 2012-01", "monthly 2012-02"],
    }


def test_a_window_that_lacks_a_product_is_named_once_and_said_in_later_steps(make: Make) -> None:
    """One day without snow: a gap of the archive and one of the step; the month says it."""
    there = [
        *of(SNOW, [day for day in days("2012-01-01", "2012-02-29") if day != dt.date(2012, 1, 3)]),
        *of(COVER, [dt.date(2012, 1, 1)]),
    ]
    products = (SNOW, COVER | {"use": "static"})
    found = make(there, *products, reduction=[DAILY, MONTHLY])
    assert counts(found) == (59 + 2, 2, 2)
    assert told(found) == [
        "MOD10A1.006 2012-01-03: the archive has no granule of this date",
        "daily 2012-01-03: not run: daily needs every product, and MOD10A1.006 has no date",
    ]
    january, february = (group for group in specs(found, GroupSpec) if "-" not in group.window[5:])
    assert [(one.part, one.what, one.why) for one in january.missing] == [
        ("daily et 2012-01-03", "MOD10A1.006 2012-01-03", "not in the archive")
    ]
    assert len(january.bands) == 30
    assert january.absent_parts == 1
    assert not february.missing
    # A step that needs all of a step that was not run is not run, and not named again.
    strict = MONTHLY | {"requires": 0.98}
    found = make(there, *products, reduction=[DAILY, strict])
    assert counts(found) == (59 + 1, 1, 3)
    assert told(found)[-1] == (
        "monthly 2012-01 h18v03: not run: monthly needs 98% of the dates, and fewer are there"
    )
    again = {"name": "again", "package": "total", "group_by": ["cell", "date"], "requires": "all"}
    found = make(there, *products, reduction=[DAILY, again])
    assert counts(found) == (59 + 59, 59, 2)


def test_a_tile_that_is_missing_on_a_day_is_said_through_two_steps(make: Make) -> None:
    """Two tiles; on 3 January one is missing: a run less, and one gap."""
    whole = days("2012-01-01", "2012-01-05")
    there = [*of(SNOW, whole), *of(SNOW, [day for day in whole if day.day != 3], 17)]
    span = {"start": "2012-01-01", "end": "2012-01-05"}
    year = {"name": "year", "package": "total", "group_by": ["cell", "year"]}
    region = {"tiles": ["h17v03", "h18v03"]}
    found = make(there, SNOW, reduction=[DAILY, EIGHT, year], time=span, region=region)
    assert counts(found) == (9 + 2 + 2, 1, 1)
    missing = {group.cell: group for group in specs(found, GroupSpec) if group.window == "2012-001"}
    assert [one.what for one in missing["h17v03"].missing] == ["MOD10A1.006 2012-01-03 h17v03"]
    assert not missing["h18v03"].missing


def test_only_what_was_asked_for_is_put_together(make: Make) -> None:
    there = of(SNOW, days("2012-01-01", "2012-01-10"))
    span = {"start": "2012-01-01", "end": "2012-01-10"}
    files = {
        "results": (11, 1),  # a month
        "both": (11, 11),  # and the layer of each day
        "inputs": (0, 10),
        "cells": (11, 1),
    }
    for deliver, (runs, results) in files.items():
        found = make(there, SNOW, reduction=[DAILY, MONTHLY], time=span, deliver=deliver)
        assert len(specs(found, ReduceSpec)) == runs, deliver
        assert sum(bool(task.output) for task in found) == results, deliver
        mosaics = len(specs(found, MosaicSpec))
        assert mosaics == (0 if deliver == "cells" else results), deliver
        if deliver == "cells":
            assert [*filter(None, (task.output for task in found))] == [
                "monthly/cells/2012-01/h18v03"
            ]
    plain = make(there, SNOW, time=span, deliver="cells")
    assert {task.output for task in plain if task.output} == {
        f"MOD10A1.006/NDSI_Snow_Cover/cells/{day}/h18v03"
        for day in days("2012-01-01", "2012-01-10")
    }
    assert not specs(plain, MosaicSpec)


def test_the_inputs_of_a_reduction_are_delivered_from_before_the_time(make: Make) -> None:
    there = [
        *of(SNOW, days("2012-01-01", "2012-01-10")),
        *of(LEAF, days("2011-12-27", "2012-01-09")),
    ]
    span = {"start": "2012-01-02", "end": "2012-01-03"}
    products = (SNOW, LEAF | {"use": "previous"})
    found = make(there, *products, reduction=DAILY, time=span, deliver="inputs")
    assert counts(found) == (0, 2 + 2, 0)


# What a step takes.


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("none", {"2012-01": 4, "2012-02": 4}),
        ("days", {"2012-01": 4, "2012-02": 5}),
    ],
)
def test_a_window_counts_where_it_begins_or_by_its_days(
    make: Make, weight: str, expected: dict[str, int]
) -> None:
    """8 days from 25 January: 7 in January, 1 in February."""
    there = of(LEAF, days("2012-01-01", "2012-02-26", 8))
    eight = {"name": "eight", "package": "et", "group_by": ["cell", "8-day"]}
    found = make(there, LEAF, reduction=[eight, MONTHLY], weight=weight)
    groups = [g for g in specs(found, GroupSpec) if len(g.window) == 7 and g.window[5:] < "03"]
    assert {group.window: len(group.bands) for group in groups} == expected
    weights = {band.window: band.counted.weight for group in groups for band in group.bands}
    assert weights["2012-009"] == (8.0 if weight == "days" else 1.0)
    if weight == "days":
        january, february = (
            {band.window: band.counted.weight for band in group.bands} for group in groups
        )
        assert (january["2012-025"], february["2012-025"]) == (7.0, 1.0)


def test_a_longer_window_goes_to_all_that_it_covers(make: Make) -> None:
    there = of(SNOW, days("2012-01-01", "2012-01-20"))
    span = {"start": "2012-01-01", "end": "2012-01-20"}
    each = {"name": "each", "package": "et", "group_by": ["cell", "8-day"], "takes": ["monthly"]}
    found = make(there, SNOW, reduction=[MONTHLY, each], time=span)
    assert bands(found, "et.tif") == {f"2012-{n:03d}": ["monthly 2012-01"] for n in (1, 9, 17)}


def test_a_step_takes_layers_of_products_and_outputs_by_name(make: Make) -> None:
    both = LEAF | {"layers": ["Lai_1km", "Fpar_1km"]}
    there = [*of(SNOW, days("2012-01-01", "2012-01-08")), *of(both, [dt.date(2012, 1, 1)])]
    span = {"start": "2012-01-01", "end": "2012-01-08"}
    first = {"name": "first", "package": "total", "takes": ["MOD10A1", "MCD15A2/Fpar_1km"]}
    then = {"name": "then", "package": "et", "takes": ["first/Fpar_1km_sum", "MCD15A2/Lai_1km"]}
    found = make(there, SNOW, both, reduction=[first, then], time=span)
    one, two = specs(found, GroupSpec)
    assert {band.layer for band in one.bands} == {"NDSI_Snow_Cover", "Fpar_1km"}
    assert [band.layer for band in two.bands] == ["Lai_1km", "Fpar_1km_sum"]
    assert two.inputs[1].file == "Fpar_1km_sum.tif"
    assert two.inputs[1].key == specs(found, ReduceSpec)[0].key


@pytest.mark.parametrize(
    ("steps", "field", "words"),
    [
        ([DAILY, DAILY], "reduction.1.name", "two steps are called 'daily'"),
        (
            [DAILY, MONTHLY | {"takes": ["dayly"]}],
            "reduction.1.takes.0",
            "There are: MOD10A1, daily",
        ),
        ([DAILY | {"takes": ["MOD10A1/No"]}], "reduction.takes.0", "no layer 'No' of MOD10A1"),
        ([DAILY, MONTHLY | {"takes": ["daily/no"]}], "reduction.1.takes", "Its rasters are: et"),
        ([DAILY | {"package": "table"}, MONTHLY], "reduction.1.takes", "no raster to take"),
        ([DAILY, MONTHLY | {"package": "classes"}], "reduction.1.package", "the step daily"),
        ([DAILY, MONTHLY | {"package": "none"}], "reduction.1.package", "no package"),
        ([DAILY, MONTHLY | {"grup_by": 1}], "reduction.1.grup_by", "Did you mean group_by"),
        ([DAILY, {"name": "x"}], "reduction.1.package", "is missing"),
        (
            [MONTHLY | {"takes": ["later"]}, DAILY | {"name": "later"}],
            "reduction.0.takes.0",
            "later",
        ),
    ],
)
def test_steps_that_cannot_be_are_refused(
    make: Make, steps: list[dict[str, Any]], field: str, words: str
) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        make(of(SNOW, days("2012-01-01", "2012-01-03")), SNOW, reduction=steps)
    assert refused.value.field == field
    assert words in str(refused.value)


def test_one_step_reads_as_it_did_and_a_list_stays_a_list() -> None:
    single = parse_request(document(SNOW, reduction={"package": "et"}))
    assert '"reduction": {"package": "et"}' in dump_request(single)
    assert parse_request(document(SNOW, reduction=[{"package": "et"}])) == single
    several = parse_request(document(SNOW, reduction=[DAILY, MONTHLY | {"takes": ["daily/et"]}]))
    assert parse_request(document(SNOW, reduction=[DAILY, MONTHLY | {"takes": ["daily/et"]}])) == (
        several
    )
    assert dump_request(several).count('"package"') == 2


# What follows from it.


def test_requests_share_a_step_whatever_they_call_it(make: Make) -> None:
    there = of(SNOW, days("2012-01-01", "2012-02-29"))
    one = make(there, SNOW, reduction=[DAILY, MONTHLY])
    other = make(there, SNOW, reduction=[DAILY | {"name": "other"}, EIGHT | {"takes": ["other"]}])
    mine = {task.key for task in one} & {task.key for task in other}
    assert Counter(task.spec.kind for task in one if task.key in mine) == {
        "collect": 60,
        "reproject": 60,
        "group": 60,
        "reduce": 60,
    }


def test_a_plan_in_many_stretches_is_the_same(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    there = [*of(SNOW, days("2012-01-01", "2012-02-20")), *of(COVER, [dt.date(2012, 1, 1)])]
    products = (SNOW, COVER | {"use": "static"})
    steps = [DAILY, EIGHT, MONTHLY | {"takes": ["eight", "daily"]}]
    whole = make(there, *products, reduction=steps, weight="days")
    monkeypatch.setattr("service_manager.planner.listing.STRETCH", 1)
    parts = make(there, *products, reduction=steps, weight="days")
    assert [task.key for task in parts] != []
    assert {task.key for task in parts} == {task.key for task in whole}
    assert parts.gaps == whole.gaps
    assert parts.windows == whole.windows
    for task in (known := list(parts)):
        keys = {one.key for one in known[: known.index(task)]}
        assert {given.key for given in task.spec.inputs} <= keys


def test_the_preview_tells_each_window(make: Make) -> None:
    there = [
        *of(SNOW, [dt.date(2012, 1, 1), dt.date(2012, 1, 3)]),
        *of(COVER, [dt.date(2012, 1, 1)]),
    ]
    span = {"start": "2012-01-01", "end": "2012-01-03"}
    found = make(there, SNOW, COVER | {"use": "static"}, reduction=[DAILY, MONTHLY], time=span)
    assert [(w.step, w.window, w.runs, w.has, w.lacks) for w in found.windows] == [
        ("daily", "2012-01-01", 1, "MOD10A1.006: 1, MCD12Q1.006: 1", ""),
        ("daily", "2012-01-02", 0, "MOD10A1.006: 0, MCD12Q1.006: 1", "MOD10A1.006 2012-01-02"),
        ("daily", "2012-01-03", 1, "MOD10A1.006: 1, MCD12Q1.006: 1", ""),
        ("monthly", "2012-01", 1, "daily: 2", "daily 2012-01-02"),
    ]


def test_the_rehearsal_has_a_run_of_each_step(make: Make) -> None:
    """February has fewer days, so its month needs fewer runs beneath."""
    there = of(SNOW, days("2012-01-01", "2012-02-29"))
    found = make(there, SNOW, reduction=[DAILY, EIGHT, MONTHLY | {"takes": ["daily"]}])
    own = {digest for _, digest in named_packages(found.packages)}
    assert len(own) == 2
    chosen = rehearsal.choose(found.tasks, own)
    kinds = Counter(task.spec.kind for task in chosen)
    # The last 8-day window has 4 days; of the package `total` no other run is needed.
    assert kinds == {"collect": 4, "reproject": 4, "group": 5, "reduce": 5}
    order = [task.key for task in chosen]
    assert all(given.key in order for task in chosen for given in task.spec.inputs)


def test_a_rehearsal_leaves_out_a_later_step_that_needs_too_much(make: Make) -> None:
    there = of(SNOW, days("2011-01-01", "2012-12-31"))
    span = {"start": "2011-01-01", "end": "2012-12-31"}
    year = {"name": "year", "package": "total", "group_by": ["cell", "year"]}
    found = make(there, SNOW, reduction=[DAILY, year], time=span)
    own = {digest for _, digest in named_packages(found.packages)}
    kinds = Counter(task.spec.kind for task in rehearsal.choose(found.tasks, own))
    assert kinds == {"collect": 1, "reproject": 1, "group": 1, "reduce": 1}


def test_a_share_of_pixels_is_part_of_a_run(make: Make) -> None:
    there = of(SNOW, days("2012-01-01", "2012-01-03"))
    found = make(there, SNOW, reduction=DAILY | {"requires": {"dates": "all", "pixels": 0.25}})
    assert {run.least_valid for run in specs(found, ReduceSpec)} == {0.25}


@pytest.mark.parametrize(("number", "spelled"), [(SCHEMA - 1, "5"), (SCHEMA, "005")])
def test_layers_of_one_name_are_told_apart_by_products_as_granules_name_them(
    make: Make, monkeypatch: pytest.MonkeyPatch, number: int, spelled: str
) -> None:
    """While the build before this one runs beside it, names are as that one makes them."""
    monkeypatch.setattr(schema._Written, "number", number)
    other = {**LEAF, "name": "MOD15A2"}
    there = [
        *of(LEAF, days("2012-01-01", "2012-02-29", 8)),
        *of(other, days("2012-01-01", "2012-02-29", 8)),
    ]
    first = {"name": "first", "package": "total", "group_by": ["cell", "month"]}
    for asked in {spelled, "5"}:  # documents of earlier versions have the short spelling
        then = {
            "name": "then",
            "package": "total",
            "group_by": ["cell", "all"],
            "takes": [f"first/MCD15A2.{asked}.Lai_1km_sum"],
        }
        found = make(there, LEAF, other, reduction=[first, then])
        runs = [spec for spec in specs(found, ReduceSpec) if len(spec.outputs) == 2]
        assert runs
        for run in runs:
            assert run.outputs == tuple(
                f"{name}.{spelled}.Lai_1km_sum.tif" for name in ("MCD15A2", "MOD15A2")
            )
        groups = [
            spec for spec in specs(found, GroupSpec) if len({b.product for b in spec.bands}) == 2
        ]
        labels = [spec.labels and tuple(one.label for one in spec.labels) for spec in groups]
        told = tuple(f"{name}.005.Lai_1km" for name in ("MCD15A2", "MOD15A2"))
        assert labels == [None if number < SCHEMA else told] * len(groups)
