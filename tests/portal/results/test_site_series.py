"""The part of a request's page about its sites: series, and the comparison with measurements."""

from tasks.bag.runtime import Runtime
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tests.portal.scripted import LivePortal, put_result, set_row
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
MCD15A2,5,Lai_1km,m2/m2,LAI,all,3,-0.123456,0.5,,,,"ordinary least squares, value on measured"
"""


def test_statistics_and_plots_are_shown_once_they_are_there(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = request_operations.submit(runtime, "ada@example.org", parse_request(DOCUMENT))
    with portal.browser() as client:
        page = client.get(f"/requests/{name}").text
        before = client.get(f"/requests/{name}/sites").text
        put_result(runtime, name, "sites", "comparison-statistics.csv", STATISTICS)
        put_result(runtime, name, "sites", "comparison.MCD15A2.5.Lai_1km.png", b"png")
        put_result(runtime, name, "sites", "MCD15A2.5.Lai_1km.png", b"png")
        set_row(runtime, name, delivered=3)
        after = client.get(f"/requests/{name}/sites").text
    assert f'hx-get="/requests/{name}/sites"' in page
    assert "Compared" not in before
    assert "MCD15A2 Lai_1km" in after
    assert ">-0.1235<" in after
    assert "ordinary least squares, value on measured" in after
    assert after.count('alt="Scatter plot') == 1
    assert 'alt="Values of' not in after  # the table of the series is not there yet
    # Of the portal itself, also where results come from storage: pages show no other pictures.
    address = f"/requests/{name}/plots/sites/comparison.MCD15A2.5.Lai_1km.png"
    assert f'src="{address}"' in after
    with portal.browser() as client:
        assert client.get(address).content == b"png"
        assert client.get(f"/requests/{name}/plots/none.png").status_code == 404
    with portal.browser("eve@example.org") as stranger:
        assert stranger.get(address).status_code == 404


def test_series_at_sites_are_drawn_with_a_link_to_their_table(
    portal: LivePortal, runtime: Runtime
) -> None:
    only_sites = {name: part for name, part in DOCUMENT.items() if name != "measurements"}
    name = request_operations.submit(runtime, "ada@example.org", parse_request(only_sites))
    with portal.browser() as client:
        page = client.get(f"/requests/{name}").text
        before = client.get(f"/requests/{name}/sites").text
        put_result(runtime, name, "sites", "sites.csv", b"site,value\nMoor,2.5\n")
        set_row(runtime, name, delivered=1)
        without_value = client.get(f"/requests/{name}/sites").text
        for picture in ("MCD15A2.5.Lai_1km", "MCD15A2.5.Lai_1km~10", "MCD15A2.5.Lai_1km~2"):
            put_result(runtime, name, "sites", f"{picture}.png", b"png")
        put_result(runtime, name, "sites", "MOD11A1.61.LST_Day_1km.png", b"png")
        put_result(runtime, name, "sites", "raster_mine.B.2.png", b"png")
        put_result(runtime, name, "sites", "comparison.MCD15A2.5.Lai_1km.png", b"png")
        set_row(runtime, name, delivered=7)
        after = client.get(f"/requests/{name}/sites").text
    assert f'hx-get="/requests/{name}/sites"' in page
    assert 'id="by-date"' not in page  # no rasters are made
    assert "Series" not in before
    assert "No site has a value" in without_value
    assert f'href="/api/requests/{name}/results/sites/sites.csv"' in after
    # The first picture of each layer is drawn; the others are linked in their order.
    plots = f"/requests/{name}/plots/sites"
    assert [part.split('"')[0] for part in after.split('<img src="')[1:]] == [
        f"{plots}/MCD15A2.5.Lai_1km.png",
        f"{plots}/MOD11A1.61.LST_Day_1km.png",
        f"{plots}/raster_mine.B.2.png",
    ]
    second = after.index(f'href="{plots}/MCD15A2.5.Lai_1km~2.png">2<')
    assert second < after.index(f'href="{plots}/MCD15A2.5.Lai_1km~10.png">3<')


def test_a_request_without_sites_and_measurements_asks_for_neither(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        assert "/sites" not in client.get(f"/requests/{name}").text
