"""Two owners: no way leads to what is the other's, and nobody gets in without signing in.

Each way is called as the other owner, as nobody, and with a forged token. A new address of
requests, jobs, collections or tasks has to be among them. Packages and rasters have tests of their
own.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from fastapi.routing import APIRoute

from portal.app import routes_of
from portal.features import FEATURES
from tasks.bag.categories import Category
from tasks.requests import request_operations
from tests.portal.deliveries import ADA, BEN, deliver, header
from tests.portal.scripted import (
    LivePortal,
    client_of,
    live_portal,
    live_runtime,
    put_failed_task,
    settings,
)
from tests.portal.submissions import submitted

RASTER = "MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km.2012-01-01.tif"
COLLECTION = "{id}:MCD15A2.005:Lai_1km:MCD15A2.005.Lai_1km"
QUAD = "WebMercatorQuad"
TILES = "MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km/2012-01-01"
LAYER = "layer=MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km"
WAYS = [
    ("GET", "/collections/{id}"),
    ("GET", "/collections/{id}/items"),
    ("GET", "/collections/{id}/items?limit=1"),
    ("GET", "/collections/{id}/items/2012-01-01"),
    ("GET", "/collections/{id}/items/all"),
    ("GET", "/collections?token={id}"),
    ("GET", "/search?token={id}:0"),
    ("POST", '/search {"token": "{id}:0"}'),
    ("GET", "/search?collections={id}"),
    ("POST", '/search {"collections": ["{id}"]}'),
    ("POST", '/search {"collections": ["{id}"], "token": "{id}:0"}'),
    ("GET", "/jobs/{id}"),
    ("DELETE", "/jobs/{id}"),
    ("GET", "/jobs/{id}/results"),
    ("GET", "/jobs?before={id}"),
    ("GET", "/api/requests/{id}"),
    ("GET", "/api/requests/{id}?wait=1"),
    ("GET", "/api/requests/{id}/document"),
    ("GET", "/api/requests/{id}/preview"),
    ("GET", "/api/requests/{id}/failures"),
    ("GET", "/api/requests/{id}/gaps"),
    ("GET", "/api/requests/{id}/results"),
    ("GET", "/api/requests/{id}/results/table/sites.csv"),
    ("HEAD", "/api/requests/{id}/results/table/sites.csv"),
    ("GET", "/api/requests/{id}/manifest"),
    ("GET", "/api/requests/{id}/manifest?format=sha256"),
    ("GET", "/api/requests/{id}/archive.zip"),
    ("GET", "/api/requests/{id}/archive.zip?below=table"),
    ("GET", "/api/requests/{id}/runs"),
    ("GET", "/api/requests?before={id}"),
    *(
        ("POST", f"/api/requests/{{id}}/{what}")
        for what in ("cancel", "pause", "resume", "confirm", "mended", "retry")
    ),
    ("POST", "/api/requests/{id}/retry?category=unknown"),
    ("POST", "/api/requests/{id}/retry?task={key}"),
    ("PATCH", '/api/requests/{id} {"labels": ["mine"]}'),
    ("PATCH", '/api/requests/{id} {"group": "ours"}'),
    ("POST", "/api/requests/{id}/links"),
    ("DELETE", "/api/requests/{id}/links"),
    ("POST", '/api/requests/{id}/polygons {"type": "Point", "coordinates": [0, 52]}'),
    ("GET", "/api/requests/{id}/spending"),
    ("GET", "/api/requests/{id}/scripts/open_results.py"),
    ("GET", "/api/requests/{id}/scripts/CITATION.txt"),
    ("GET", "/api/requests/{id}/zarr/cube/a.zarr/.zattrs"),
    ("HEAD", "/api/requests/{id}/zarr/cube/a.zarr/.zattrs"),
    ("POST", '/api/requests/{id}/copies {"to": "https://a.blob.core.windows.net/b?sig=c"}'),
    ("GET", f"/api/requests/{{id}}/results/{RASTER}"),
    ("GET", f"/api/requests/{{id}}/archive.zip?{LAYER}"),
    *(
        ("GET", f"/maps/collections/{COLLECTION}{what}")
        for what in ("", "/map", "/map/tiles", f"/map/tiles/{QUAD}", f"/map/tiles/{QUAD}/4/5/7")
    ),
    *(
        ("GET", f"/api/requests/{{id}}/tiles/{what}")
        for what in (
            "WMTSCapabilities.xml",
            f"{TILES}/4/7/5.png",
            f"{TILES}/legend.json",
            f"{TILES}/tilejson.json",
        )
    ),
    ("GET", "/api/requests/{id}/runs/{key}"),
    ("GET", "/api/requests/{id}/runs/{key}/inputs.zip"),
    ("GET", "/api/tasks/{key}"),
    ("GET", "/api/tasks/{key}/attempts/1"),
    ("GET", "/api/tasks/{key}/inputs.zip"),
    ("GET", "/tasks/{key}"),
    ("GET", "/previews/{id}"),
    *(
        ("GET", f"/requests/{{id}}{part}")
        for part in (
            "",
            "/matrix",
            "/sites",
            "/events",
            "/lacks",
            "/results",
            "/results?find=Lai",
            "/runs",
            "/runs/{key}",
            f"/pictures/{RASTER}",
            f"/view/{RASTER}",
            "/map",
            f"/map/layer?{LAYER}",
            f"/map/legend?{LAYER}",
            f"/map/names?{LAYER}&west=-8&south=50&east=0&north=55",
            f"/map/statistics?{LAYER}&date=2012-01-01",
            f"/map/point?{LAYER}&date=2012-01-01&lon=0&lat=52",
            f"/map/explained?{LAYER}&date=2012-01-01&lon=0&lat=52",
            f"/map/series.csv?{LAYER}&lon=0&lat=52",
            f"/map/histogram.csv?{LAYER}&date=2012-01-01",
        )
    ),
    *(
        ("POST", f"/requests/{{id}}/{what}")
        for what in ("cancel", "pause", "resume", "confirm", "mended", "retry", "links/end")
    ),
    ("POST", "/requests/{id}/map/polygons drawn=POINT(0 52)"),
    ("POST", "/requests/{id}/map/polygons.csv drawn=POINT(0 52)"),
    ("POST", "/requests/{id}/about labels=mine&group=&standing="),
]
"""Method, address and body, if any; `{id}` is a request and `{key}` a task of Ada's."""

HOW: dict[str, dict[str, str]] = {
    "signed in": header(BEN),
    "not signed in": {},
    "with a forged token": {"Authorization": header()["Authorization"][:-4] + "AAAA"},
}
_NAMED = re.compile(r"\{(request_id|job_id|collection_id|key)\}")
_PARTS = re.compile(r"\{(\w+)(?::path)?\}")


@dataclass(frozen=True, kw_only=True)
class Adas:
    """What is Ada's: a complete request with results, and a task of it that failed."""

    portal: LivePortal
    request: str
    key: str


@pytest.fixture(scope="module")
def adas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adas]:
    runtime = live_runtime()
    name = submitted(runtime, ADA)
    submitted(runtime, BEN)
    deliver(runtime, name, tmp_path_factory.mktemp("results"))
    key = put_failed_task(runtime, name, "A.hdf", (Category.UNKNOWN,))
    with live_portal(runtime, settings()) as portal:
        yield Adas(portal=portal, request=name, key=key)


@pytest.mark.parametrize("who", HOW)
@pytest.mark.parametrize(("method", "way"), WAYS)
def test_no_way_leads_to_what_is_another_owner_s(
    adas: Adas, method: str, way: str, who: str
) -> None:
    runtime = adas.portal.runtime
    filled = way.replace("{id}", adas.request).replace("{key}", adas.key)
    path, _, body = filled.partition(" ")
    kind = "application/json" if body.startswith("{") else "application/x-www-form-urlencoded"
    before = request_operations.load(runtime, adas.request)
    with client_of(adas.portal.url, HOW[who]) as http:
        answer = http.request(method, path, content=body or None, headers={"Content-Type": kind})
    if who != "signed in":
        assert answer.status_code == 401, answer.text
    elif answer.status_code == 200:
        assert answer.json()["features"] == [], "a search finds nothing"
    else:
        assert answer.status_code == 404, answer.text
    assert "Lai_1km." not in answer.text.replace(RASTER, "")
    assert replace(request_operations.load(runtime, adas.request), etag=before.etag) == before


def test_the_owner_is_let_in_by_these_ways(adas: Adas) -> None:
    """So that what is refused above is refused because of who asks."""
    with client_of(adas.portal.url, header(ADA)) as http:
        for method, way in WAYS:
            streams = way.endswith("/events")  # of a request that runs
            if method == "GET" and " " not in way and not streams:
                path = way.replace("{id}", adas.request).replace("{key}", adas.key)
                status = http.get(path).status_code
                there = not re.search("zarr|runs/|inputs.zip", path)
                assert (status == 200) == there, (path, status)


def test_each_address_of_requests_and_tasks_is_among_the_ways() -> None:
    assert len(WAYS) >= 60
    assert len(set(WAYS)) == len(WAYS)
    tried = {(method, way.partition(" ")[0].partition("?")[0]) for method, way in WAYS}
    for route in routes_of(FEATURES):
        if not isinstance(route, APIRoute) or not _NAMED.search(route.path_format):
            continue
        pattern = re.compile(_PARTS.sub(".+", re.sub(r"\.", r"\\.", route.path_format)))
        for method in route.methods or ():
            found = any(one == method and pattern.fullmatch(path) for one, path in tried)
            assert found, (method, route.path_format)
