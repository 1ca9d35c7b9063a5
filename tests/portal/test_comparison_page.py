"""The part of a request's page that compares it with measurements."""

from tasks.request.document import parse_request
from tasks.tables import request_operations
from tasks.tables.runtime import Runtime
from tests.portal.scripted import LivePortal, put_result
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
        before = client.get(f"/requests/{name}/comparison").text
        put_result(runtime, name, "sites", "comparison-statistics.csv", STATISTICS)
        put_result(runtime, name, "sites", "comparison.MCD15A2.5.Lai_1km.png", b"png")
        put_result(runtime, name, "sites", "MCD15A2.5.Lai_1km.png", b"png")
        after = client.get(f"/requests/{name}/comparison").text
    assert f'hx-get="/requests/{name}/comparison"' in page
    assert "Compared" not in before
    assert "MCD15A2 Lai_1km" in after
    assert ">-0.1235<" in after
    assert "ordinary least squares, value on measured" in after
    assert after.count("<img") == 1
    # Of the portal itself, also where results come from storage: pages show no other pictures.
    address = f"/requests/{name}/plots/sites/comparison.MCD15A2.5.Lai_1km.png"
    assert f'src="{address}"' in after
    with portal.browser() as client:
        assert client.get(address).content == b"png"
        assert client.get(f"/requests/{name}/plots/none.png").status_code == 404
    with portal.browser("eve@example.org") as stranger:
        assert stranger.get(address).status_code == 404


def test_a_request_without_measurements_asks_for_no_comparison(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        assert "/comparison" not in client.get(f"/requests/{name}").text
