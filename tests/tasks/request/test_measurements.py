"""Tables of measurements: which are read, in which time zone, and what is refused."""

import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import RequestRefusedError
from tasks.request import measurements
from tasks.request.checks import check_request
from tasks.request.compared import compared_layers, comparison_of
from tasks.request.document import dump_request, parse_request
from tasks.request.measurements import (
    MeasurementsError,
    local_standard_time,
    needed_text,
    offset_text,
    read_measurements,
    utc_offset,
)
from tasks.request.notes import request_notes
from tasks.request.request_file import load_request
from tasks.request.resolved import ResolvedRequest, resolve
from tasks.settings import Settings

FLUXNET = """TIMESTAMP_START,TIMESTAMP_END,TA_F,LE_F_MDS
201204130000,201204130030,4.1,10.5
201204130030,201204130100,4.0,-9999
201204130100,201204130130,3.9,12.5
"""
DAILY = "TIMESTAMP,LE_F_MDS\n20120413,61.5\n20120414,-9999\n"
AMERIFLUX = f"# Site: US-Ha1\n# Version: 17-5\n{FLUXNET.replace('LE_F_MDS', 'LE')}"
PLAIN = "site,time,LAI\nMoor,2012-04-13T10:30,2.5\nMoor,2012-04-13T11:00,nan\nBeech,2012-04-13,3\n"
REQUEST: dict[str, Any] = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "Fpar_1km"]}],
    "region": {"sites": "id,latitude,longitude\nMoor,56.6,-6.7\nBeech,51.5,-2.2\n"},
    "time": {"start": "2012-04-13", "end": "2012-04-15"},
    "measurements": {"table": PLAIN, "compare": {"Lai_1km": "LAI"}},
}


def resolved(**changes: Any) -> ResolvedRequest:
    document = {**REQUEST, "measurements": {**REQUEST["measurements"], **changes}}
    return resolve(parse_request(document))


def test_half_hours_of_fluxnet_have_a_begin_and_an_end() -> None:
    (found,) = read_measurements(FLUXNET, ("LE_F_MDS",))
    assert (found.site, found.values) == ("", [10.5, 12.5])
    assert found.start == [datetime(2012, 4, 13), datetime(2012, 4, 13, 1)]
    assert found.end[0] - found.start[0] == found.step == timedelta(minutes=30)


def test_days_of_fluxnet() -> None:
    (found,) = read_measurements(DAILY, ("LE_F_MDS",))
    assert (found.start, found.end) == ([datetime(2012, 4, 13)], [datetime(2012, 4, 14)])
    assert found.step == timedelta(days=1)


def test_ameriflux_names_its_site_in_a_comment_and_several_tables_follow_one_another() -> None:
    other = DAILY.replace("LE_F_MDS", "LE")
    one, two = read_measurements(f"{AMERIFLUX}# Site: DE-Tha\n{other}", ("LE",))
    assert (one.site, one.values) == ("US-Ha1", [10.5, 12.5])
    assert (two.site, two.values) == ("DE-Tha", [61.5])


def test_plain_tables_have_sites_and_moments_or_days() -> None:
    moor, beech = read_measurements(PLAIN, ("LAI",))
    assert (moor.site, moor.values) == ("Moor", [2.5])
    assert moor.start == moor.end == [datetime(2012, 4, 13, 10, 30)]
    assert beech.end[0] - beech.start[0] == timedelta(days=1)


def test_times_with_a_zone_say_the_zone_of_the_table() -> None:
    text = "site,time,x\nA,2012-04-13T10:30+02:00,1\nA,2012-04-13T09:00Z,2\n"
    (found,) = read_measurements(text, ("x",))
    assert found.offset == 120
    assert found.start == [datetime(2012, 4, 13, 10, 30), datetime(2012, 4, 13, 11)]
    (said,) = read_measurements("# UTC_OFFSET: -5\nsite,time,x\nA,2012-04-13T10:30,1\n", ("x",))
    assert said.offset == -300


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("UTC", 0), ("Z", 0), ("+01:00", 60), ("-5", -300), ("5.5", 330), ("-03:30", -210)],
)
def test_time_zones(text: str, minutes: int) -> None:
    assert utc_offset(text) == minutes
    assert utc_offset(offset_text(minutes)) == minutes


@pytest.mark.parametrize(
    ("longitude", "hours"), [(0, 0), (-7.4, 0), (-7.6, -1), (13.57, 1), (179, 12), (-179, -12)]
)
def test_local_standard_time_is_the_nearest_hour_of_the_sun(longitude: float, hours: int) -> None:
    assert local_standard_time(longitude) == 60 * hours


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no table"),
        ("a,b\n1,2\n", "no column of times"),
        ("site,time,y\nA,2012-04-13,1\n", "none of the columns x"),
        ("site,time,x\nA,13.4.2012,1\n", "is not a time"),
        ("site,time,x\nA,2012-04-13,much\n", "which is not a number"),
        ("site,time,x\nA,2012-04-13\n", "has 2 cells"),
        ("TIMESTAMP,x\n201204,1\n", "is not a time"),
        ("TIMESTAMP_START,TIMESTAMP_END,x\n20120401,20120408,1\n", "half hours to days"),
        ("TIMESTAMP_START,x\n201204010000,1\n", "give both"),
        ("# UTC_OFFSET: noon\nsite,time,x\nA,2012-04-13,1\n", "is not a time zone"),
        ("site,time,x\nA,99991231,1\n", "cannot be read"),
        ("# UTC_OFFSET: -5\nsite,time,x\nA,0001-01-01T00:00+14:00,1\n", "cannot be read"),
        pytest.param('site,time,x\nA,2012-04-13,"' + "1" * 200_000, "cannot be read", id="quote"),
        ("site,time,x\nA,2012-04-13,inf\n", "nothing measures"),
        ("# UTC_OFFSET: +14:30\nsite,time,x\nA,2012-04-13,1\n", "is not a time zone"),
        ("# UTC_OFFSET: -12:30\nsite,time,x\nA,2012-04-13,1\n", "is not a time zone"),
    ],
)
def test_what_is_no_table_of_measurements(text: str, problem: str) -> None:
    with pytest.raises(MeasurementsError, match=problem):
        read_measurements(text, ("x",))


def test_tables_have_no_more_rows_than_a_request_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "MOST_ROWS", 3)
    table = "site,time,x\nA,2012-04-13,1\nA,2012-04-14,2\n"
    assert read_measurements(table, ("x",))
    with pytest.raises(MeasurementsError, match="more than 3 rows"):
        read_measurements(f"{table}# Site: B\n{table}", ("x",))


@pytest.mark.parametrize(
    "own", ["# Site: Own\ntime,x\n2012-04-13,1\n", "site,time,x\nOwn,2012-04-13,1\n"]
)
def test_a_table_that_names_its_site_is_not_renamed_by_its_file(own: str) -> None:
    day = date(2012, 4, 13)
    text = needed_text([("FLX_BE-Bra_FLUXNET2015.csv", own)], ["x"], day, day)
    (found,) = read_measurements(text, ("x",))
    assert found.site == "Own"


def test_of_files_only_what_is_compared_is_kept_and_their_names_say_the_site() -> None:
    late = FLUXNET + "201304130100,201304130130,3.9,12.5\n"
    text = needed_text(
        [("FLX_BE-Bra_FLUXNET2015_FULLSET_HH_1996-2014_1-4.csv", late), ("AMF.csv", AMERIFLUX)],
        ["LE_F_MDS", "LE"],
        date(2012, 4, 13),
        date(2012, 4, 15),
    )
    assert "TA_F" not in text
    assert "2013" not in text
    found = read_measurements(text, ("LE_F_MDS", "LE"))
    assert [(one.site, one.column, len(one.values)) for one in found] == [
        ("BE-Bra", "LE_F_MDS", 2),
        ("US-Ha1", "LE", 2),
    ]


def test_a_request_names_files_or_folders_beside_it(tmp_path: Path) -> None:
    (tmp_path / "towers").mkdir()
    (tmp_path / "towers" / "one.csv").write_text(PLAIN)
    document = tmp_path / "request.json"
    for table in ("towers", ["towers/one.csv"]):
        asked = {**REQUEST, "measurements": {"table": table, "compare": {"Lai_1km": "LAI"}}}
        document.write_text(json.dumps(asked))
        request = load_request(document)
        assert request.measurements is not None
        assert [one.site for one in read_measurements(request.measurements.table, ("LAI",))] == [
            "Moor",
            "Beech",
        ]
        assert parse_request(json.loads(dump_request(request))) == request
    other = tmp_path / "other.csv"
    other.write_text(PLAIN.replace("2.5", "4.5"))
    given = load_request(document, measurements=[other]).measurements
    assert given is not None
    assert "4.5" in given.table
    other.unlink()
    with pytest.raises(RequestRefusedError, match=r"other\.csv cannot be read") as refused:
        load_request(document, measurements=[other])
    assert refused.value.field == "measurements.table"
    asked = {**REQUEST, "measurements": {"table": "é" * 300, "compare": {"Lai_1km": "LAI"}}}
    document.write_text(json.dumps(asked))
    with pytest.raises(RequestRefusedError, match=r"cannot be read: .*too long"):
        load_request(document)


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"table": ""}, "measurements.table", "is not given"),
        (
            {"table": PLAIN.replace("Moor", "Fen").replace("Beech", "Oak")},
            "measurements.table",
            "no",
        ),
        ({"table": "time,LAI\n2012-04-13,1\n"}, "measurements.table", "of which site"),
        ({"sites": "id,latitude,longitude\nA,1,1\n"}, "measurements.sites", "is given"),
        ({"compare": {"Lai_2km": "LAI"}}, "measurements.compare.Lai_2km", "no layer"),
        ({"compare": {"monthly/et": "LAI"}}, "measurements.compare.monthly/et", "no layer"),
        (
            {"compare": {"Lai_1km": "LAI", "MCD15A2/Lai_1km": "LAI"}},
            "measurements.compare.MCD15A2/Lai_1km",
            "name the same layer",
        ),
        (
            {"table": f"# UTC_OFFSET: 1\n{PLAIN}# Site:\n# UTC_OFFSET: 2\n{PLAIN}"},
            "measurements.table",
            "the time zones",
        ),
    ],
)
def test_what_cannot_be_compared(changes: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(RequestRefusedError, match=problem) as refused:
        check_request(resolved(**changes), Settings())
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"time_zone": "noon"}, "measurements.time_zone"),
        ({"join": "week"}, "measurements.join"),
        ({"table": "a,b\n1,2\n"}, "measurements"),
        ({"least_share": 2}, "measurements.least_share"),
    ],
)
def test_fields_that_are_wrong(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        resolved(**changes)
    assert refused.value.field == field


def test_a_layer_of_several_products_is_named_with_its_product() -> None:
    (choice,) = REQUEST["products"]
    document = {**REQUEST, "products": [choice, {**choice, "name": "MOD15A2"}]}
    with pytest.raises(RequestRefusedError, match="several layers 'Lai_1km'"):
        check_request(resolve(parse_request(document)), Settings())


def test_a_raster_request_says_where_the_sites_are() -> None:
    document = {**REQUEST, "region": {"bbox": [-8, 50, 0, 57]}, "grid": {"modis": 1000}}
    with pytest.raises(RequestRefusedError, match="is not given") as refused:
        check_request(resolve(parse_request(document)), Settings())
    assert refused.value.field == "measurements.sites"


def test_notes_tell_the_time_zone_of_each_site_and_what_says_it() -> None:
    (note,) = request_notes(resolved())
    assert note == (
        "Compared with measurements at 2 sites: "
        "Moor LAI (1 value, UTC+00:00 local standard time by its longitude); "
        "Beech LAI (1 value, UTC+00:00 local standard time by its longitude)."
    )
    (said,) = request_notes(resolved(time_zone="-5"))
    assert "UTC-05:00 as the request says" in said
    (table,) = request_notes(resolved(time_zone="-5", table=f"# UTC_OFFSET: 2\n{PLAIN}"))
    assert "UTC+02:00 as the table says" in table
    first, without = request_notes(resolved(table=PLAIN.replace("Beech", "Oak")))
    assert "at 1 site:" in first
    assert without == "These sites have no measurements: Beech."


def test_layers_are_named_alone_or_with_their_product() -> None:
    for name in ("Lai_1km", "MCD15A2/Lai_1km"):
        asked = resolved(compare={name: {"column": "LAI", "scale": 2, "statistic": "sum"}})
        ((pair,),) = [one.pairs for one in [comparison_of(asked)] if one is not None]
        assert (pair.product, pair.layer, pair.period, pair.column) == (
            "MCD15A2",
            "Lai_1km",
            8,
            "LAI",
        )
        assert (pair.scale, pair.offset, pair.statistic) == (2, 0, "sum")
        assert [one.layer for one in compared_layers(asked)] == ["Lai_1km"]


def test_a_request_without_measurements_is_stored_as_before() -> None:
    plain = parse_request(
        {name: value for name, value in REQUEST.items() if name != "measurements"}
    )
    assert "measurements" not in dump_request(plain)
    assert comparison_of(resolve(plain)) is None


def test_a_layer_that_is_chosen_twice_is_not_compared() -> None:
    choice = {"name": "MYD11_L2", "collection": "6", "layers": ["LST"]}
    document = {
        **REQUEST,
        "products": [{**choice, "day_night": "day"}, {**choice, "day_night": "night"}],
        "measurements": {"table": PLAIN, "compare": {"LST": "LAI"}},
    }
    with pytest.raises(RequestRefusedError, match="more than once"):
        [*compared_layers(resolve(parse_request(document)))]
