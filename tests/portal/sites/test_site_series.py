"""The part of a request's page about its sites: series, and the comparison with measurements."""

import datetime as dt
import re

import pytest

from portal.sites import comparison, site_series
from tasks.bag.runtime import Runtime
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tests.portal.scripted import LivePortal, part, put_result, set_row
from tests.portal.site_tables import TEXTS, site_csv, site_rows
from tests.portal.submissions import submitted

DOCUMENT = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"sites": "id,latitude,longitude\nMoor,56.6,-6.7"},
    "time": {"start": "2012-04-13", "end": "2012-04-15"},
    "measurements": {
        "table": "site,time,LAI\nMoor,2012-04-13,2.5",
        "compare": {"Lai_1km": "LAI"},
    },
}
STATISTICS = b"""product,collection,layer,units,column,site,n,bias,rmse,r,slope,intercept,regression
MCD15A2,5,Lai_1km,m2/m2,LAI,all,3,-0.123456,0.5,,0.5,0.25,"least squares, value on measured"
"""


def test_statistics_and_pairs_are_shown_once_they_are_there(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = request_operations.submit(runtime, "ada@example.org", parse_request(DOCUMENT))
    pairs = [
        {
            **{**TEXTS, "layer": "Lai_1km", "column": "LAI", "site": site},
            **{"first_day": dt.date(2012, 4, 13), "value": 1.5, "measured": measured},
        }
        for site, measured in (("Moor", 0.5), ("Moor", 1.5), ("<Fen>", 2.5))
    ]
    with portal.browser() as client:
        page = client.get(f"/requests/{name}").text
        before = part(client, f"/requests/{name}/sites")
        put_result(runtime, name, "sites", "comparison-statistics.csv", STATISTICS)
        put_result(runtime, name, "sites", "comparison.csv", site_csv(pairs))
        set_row(runtime, name, delivered=2)
        after = part(client, f"/requests/{name}/sites")
        monkeypatch.setattr(comparison, "MOST_MARKS", 2)
        thinned = part(client, f"/requests/{name}/sites")
    assert f'hx-get="/requests/{name}/sites"' in page
    assert "Compared" not in before
    assert "MCD15A2 Lai_1km" in after
    assert ">-0.1235<" in after
    assert "least squares, value on measured" in after
    assert re.findall(r"</svg>([^<]+)</li>", after) == [
        "Moor",
        "&lt;Fen&gt;",
        "equal",
        "regression",
    ]
    assert after.count('class="mark ') == 3
    assert after.count("<polyline") == 2  # no line leads from pair to pair
    assert "1.5, measured 2.5" in after
    assert (thinned.count('class="mark '), "One of 2 pairs is drawn" in thinned) == (2, True)


def test_series_at_sites_are_drawn_from_their_table(portal: LivePortal, runtime: Runtime) -> None:
    only_sites = {name: part for name, part in DOCUMENT.items() if name != "measurements"}
    name = request_operations.submit(runtime, "ada@example.org", parse_request(only_sites))
    rows = [
        *site_rows("Moor", [1.0, None, 2.5]),
        *site_rows("Moor", [3.0, 3.0], "FparLai_QC", is_class=True),
        *(row for n in range(7) for row in site_rows(f"Fen {n}", [0.5 + n, 1.0])),
        *site_rows("Sea", [None, None]),
    ]
    with portal.browser() as client:
        page = client.get(f"/requests/{name}").text
        before = part(client, f"/requests/{name}/sites")
        put_result(runtime, name, "sites", "sites.csv", site_csv(rows))
        set_row(runtime, name, delivered=2)
        after, second, found = (
            part(client, f"/requests/{name}/sites{query}")
            for query in ("", "?page=2", "?find=fen+1")
        )
    assert f'hx-get="/requests/{name}/sites"' in page
    assert 'id="by-date"' not in page  # no rasters are made
    assert "Series" not in before
    assert f'href="/api/requests/{name}/results/sites/sites.csv"' in after
    titles = re.findall(r"<h3[^>]*>(.*?)</h3>", after)
    assert [title.replace("<wbr>", "") for title in titles] == [
        "MCD15A2.005 Lai_1km",
        "MCD15A2.005 FparLai_QC",
    ]
    assert "<title>Moor, 2012-04-29: 2.5 m² m⁻²</title>" in after
    assert "8 sites have a value; page 1 of 2" in after  # not the one at sea
    # Codes have no line from one to the next; six sites have one.
    assert after.count("<polyline") == 6
    assert (second.count('class="mark '), "Fen 6, 2012-04-13: 6.5" in second) == (4, True)
    assert (found.count("Fen 1, 2012"), "Moor" in found) == (2, False)


def test_a_chart_has_so_many_marks_of_each_site_alike(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_series, "MOST_MARKS", 6)
    name = request_operations.submit(runtime, "ada@example.org", parse_request(DOCUMENT))
    rows = [row for site in ("Moor", "Fen") for row in site_rows(site, [1.0, 2.0, 3.0, 4.0])]
    put_result(runtime, name, "sites", "sites.csv", site_csv(rows))
    set_row(runtime, name, delivered=2)
    with portal.browser() as client:
        drawn = part(client, f"/requests/{name}/sites")
    assert (drawn.count("Moor, 2012"), drawn.count("Fen, 2012")) == (3, 3)
    assert "2 later values of these sites are in the CSV" in drawn


def test_a_table_without_a_value_says_where_the_reasons_are(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = request_operations.submit(runtime, "ada@example.org", parse_request(DOCUMENT))
    put_result(runtime, name, "sites", "sites.csv", site_csv(site_rows("Moor", [None])))
    set_row(runtime, name, delivered=2)
    with portal.browser() as client:
        assert "No site has a value" in part(client, f"/requests/{name}/sites")


def test_a_request_without_sites_and_measurements_asks_for_neither(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        assert "/sites" not in client.get(f"/requests/{name}").text
