"""OGC API - Processes and STAC API: what the programs of others get, unchanged, from a live portal.

docs/standards.md lists the abstract tests of OGC API - Processes 1.0 and what is held to here.
"""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import shapely
from owslib.ogcapi.processes import Processes
from pystac.validation import validate_dict
from pystac_client import Client

from portal.standards.landing_page import CONFORMANCE
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.requests import request_operations
from tests.portal.deliveries import ADA, BEN, DATES, deliver, header
from tests.portal.scripted import (
    LivePortal,
    live_portal,
    live_runtime,
    put_interest,
    set_row,
    settings,
)
from tests.portal.submissions import DOCUMENT, submitted

EXCEPTION = "http://www.opengis.net/def/exceptions/ogcapi-processes-1/1.0/"
INPUTS = {name: DOCUMENT[name] for name in ("title", "products", "region", "time", "grid")}
ABSTRACT_TESTS = 79  # of Annex A, without the classes that are not declared


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LivePortal, str, str]]:
    """A portal where Ada and Ben have a complete request each; both ids."""
    runtime = live_runtime()
    folder = tmp_path_factory.mktemp("results")
    names = []
    for owner in (ADA, BEN):
        name = submitted(runtime, owner)
        deliver(runtime, name, folder)
        names.append(name)
    with live_portal(runtime, settings()) as portal:
        yield portal, names[0], names[1]


def test_pystac_client_finds_collections_items_and_assets(
    shared: tuple[LivePortal, str, str],
) -> None:
    portal, ada, _ = shared
    client = Client.open(portal.url, headers=header())
    (collection,) = client.get_collections()
    assert collection.id == ada
    assert collection.keywords == ["MCD15A2.005"]
    assert collection.extent.spatial.bboxes == [[-8.0, 50.5, 6.0, 58.5]]
    items = list(collection.get_items())
    assert {item.id for item in items} == {*DATES, "all"}
    dated = [item for item in items if item.id != "all"]
    assert all(set(item.assets) == {"Lai_1km", "Fpar_1km"} for item in dated)
    with portal.client() as http:
        for asset in (items[0].assets | dated[0].assets).values():
            sent = http.get(asset.href)
            assert len(sent.content) == asset.extra_fields["file:size"]
            assert sent.headers["etag"].strip('"') == asset.extra_fields["file:checksum"][4:]


def test_a_search_narrows_by_place_time_id_and_collection(
    shared: tuple[LivePortal, str, str],
) -> None:
    portal, ada, ben = shared
    client = Client.open(portal.url, headers=header())

    def found(**asked: Any) -> set[str]:
        got = [
            {item.id for item in client.search(method=method, **asked).items()}
            for method in ("GET", "POST")
        ]
        assert got[0] == got[1]
        return got[0]

    every = {*DATES, "all"}
    assert found() == found(limit=1) == found(collections=[ada]) == every
    assert found(collections=[ben]) == set()
    assert found(ids=[DATES[1], "other"]) == {DATES[1]}
    assert found(datetime="2012-01-09") == {DATES[1], "all"}  # the client writes out the day
    assert found(datetime="../2012-01-08T00:00:00Z") == {DATES[0], "all"}
    assert found(datetime="2013-01-01/..") == set()
    assert found(bbox=[0, 52, 1, 53]) == every
    assert found(bbox=[170, -60, -170, -50]) == set()
    point = {"type": "Point", "coordinates": [0.0, 52.0]}
    assert found(intersects=point) == every
    assert found(intersects={**point, "coordinates": [40.0, 52.0]}) == set()


def test_items_are_valid_and_their_rings_counter_clockwise(
    shared: tuple[LivePortal, str, str],
) -> None:
    portal, ada, _ = shared
    with portal.client() as http:
        answer = http.get("/search?limit=100")
        collection = http.get(f"/collections/{ada}").json()
        one = http.get(f"/collections/{ada}/items/{DATES[0]}")
    assert answer.headers["content-type"] == one.headers["content-type"] == "application/geo+json"
    features = answer.json()["features"]
    assert one.json() in features
    for feature in [*features, collection]:
        plain = copy.deepcopy(feature)
        plain["stac_extensions"] = []  # their schemas are on the network
        assert validate_dict(plain)
    for feature in features:
        outline = shapely.from_geojson(json.dumps(feature["geometry"]))
        assert isinstance(outline, shapely.Polygon)
        assert outline.exterior.is_ccw, feature["id"]
    (first,) = (feature for feature in features if feature["id"] == DATES[0])
    assert first["properties"]["proj:epsg"] == 4326
    assert first["properties"]["end_datetime"] == f"{DATES[0]}T23:59:59Z"


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=many",
        "bbox=1,2,3",
        "bbox=0,60,1,50",
        "datetime=yesterday",
        "datetime=2012-02-01",
        "datetime=2012-02-01T00:00:00.Z",
        "datetime=2012-02-01T00:00:00%2B0100",
        "datetime=2012-02-01T00:00:00Z/2012-01-01T00:00:00Z",
        "datetime=../..",
        "intersects=here",
        'intersects={"type":"Point","coordinates":[1,2]}&bbox=0,0,1,1',
        "token=next",
        "sort=date",
    ],
)
def test_a_wrong_parameter_is_a_400_that_names_it(
    shared: tuple[LivePortal, str, str], query: str
) -> None:
    portal, _, _ = shared
    with portal.client() as http:
        answer = http.get(f"/search?{query}")
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("body", [{"limit": 0}, {"limit": "x"}, {"bbox": "0,0,1,1"}, {"sort": 1}])
def test_a_wrong_search_by_document_is_a_400(
    shared: tuple[LivePortal, str, str], body: dict[str, Any]
) -> None:
    with shared[0].client() as http:
        answer = http.post("/search", json=body)
    assert answer.status_code == 400, answer.text


def test_a_limit_beyond_the_most_sends_the_most(shared: tuple[LivePortal, str, str]) -> None:
    with shared[0].client() as http:
        answers = [
            http.get("/search?limit=1000000").json(),
            http.post("/search", json={"limit": 1_000_000}).json(),
            http.get(f"/collections/{shared[1]}/items?limit=1000000").json(),
        ]
    assert [answer["numberReturned"] for answer in answers] == [4, 4, 4]


def test_owslib_runs_a_job_and_reads_its_results(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    service = Processes(portal.url, headers=header())
    assert set(service.conformance()["conformsTo"]) == set(CONFORMANCE)
    assert service.api()["openapi"].startswith("3.0")
    assert [one["id"] for one in service.processes()] == ["reproject"]
    described = service.process("reproject")
    assert described["inputs"]["grid"]["minOccurs"] == 1
    assert described["jobControlOptions"] == ["async-execute", "dismiss"]
    job = service.execute("reproject", inputs=INPUTS, async_=True)
    assert (job["status"], job["type"], job["processID"]) == ("accepted", "process", "reproject")
    deliver(runtime, job["jobID"], tmp_path)
    with portal.client() as http:
        done = http.get(f"/jobs/{job['jobID']}").json()
        (results,) = [link["href"] for link in done["links"] if link["rel"].endswith("/results")]
        answer = http.get(results).json()
    assert (done["status"], done["progress"]) == ("successful", 100)
    assert {one["id"] for one in answer["items"]["value"]["features"]} == {*DATES, "all"}


def described(portal: LivePortal) -> dict[str, Any]:
    """The description that the landing page names, as OpenAPI 3.0."""
    with portal.guest() as nobody:
        links = nobody.get("/").json()["links"]
        (link,) = (one for one in links if one["type"].endswith("version=3.0"))
        answer = nobody.get(link["href"])
        again = nobody.get(link["href"], headers={"If-None-Match": answer.headers["etag"]})
    assert link["rel"] == "service-desc"
    assert answer.headers["content-type"] == link["type"]
    assert again.status_code == 304
    found: dict[str, Any] = answer.json()
    return found


def test_openapi_30_is_served_as_what_it_is(portal: LivePortal) -> None:
    found = described(portal)
    assert found["openapi"].startswith("3.0")
    assert found["paths"]["/jobs"]["get"]["security"] == [{"token": []}, {"session": []}]
    assert found["paths"]["/processes"]["get"]["security"] == []


def test_parameters_are_described_as_the_standard_has_them(portal: LivePortal) -> None:
    """The definitions of Annex A; the largest limit is the server's own choice."""
    paths = described(portal)["paths"]

    def parameters(path: str) -> dict[str, Any]:
        return {one["name"]: one for one in paths[path]["get"]["parameters"]}

    jobs = parameters("/jobs")
    for limit in (jobs["limit"], parameters("/processes")["limit"]):
        schema = limit["schema"]
        assert (schema["type"], schema["minimum"], schema["default"]) == ("integer", 1, 10)
        assert (limit["in"], limit["required"], schema["maximum"]) == ("query", False, 1000)
    for name in ("type", "processID", "status"):
        schema = jobs[name]["schema"]
        assert (schema["type"], schema["items"]["type"]) == ("array", "string"), name
        assert jobs[name].get("explode", True), "given more than once, not with commas"
    states = ["accepted", "running", "successful", "failed", "dismissed"]
    assert sorted(jobs["status"]["schema"]["items"]["enum"]) == sorted(states)
    assert jobs["datetime"]["schema"]["type"] == "string"
    for name in ("minDuration", "maxDuration"):
        assert jobs[name]["schema"]["type"] == "integer", name


def test_the_process_is_described_as_the_standard_has_it(portal: LivePortal) -> None:
    with portal.guest() as nobody:
        listed, again = (nobody.get(f"/processes{query}") for query in ("", "?limit=1"))
        (summary,) = listed.json()["processes"]
        (self_link,) = (one["href"] for one in summary["links"] if one["rel"] == "self")
        answer = nobody.get(self_link)
    assert listed.headers["content-type"] == answer.headers["content-type"] == "application/json"
    assert again.json()["processes"] == [summary]
    assert {one["rel"] for one in listed.json()["links"]} == {"self"}
    found = answer.json()
    assert {"id", "version", "jobControlOptions", "outputTransmission"} <= summary.keys()
    assert {key: found[key] for key in summary} == summary
    for kind in ("inputs", "outputs"):
        for name, one in found[kind].items():
            assert one["title"], name
            assert one["schema"], name
            assert {"type", "oneOf", "anyOf", "allOf", "$ref"} & one["schema"].keys(), name
    mixed = found["inputs"]["region"]["schema"]
    assert {"oneOf", "anyOf"} & mixed.keys() or mixed["type"] == "object"


def test_the_table_of_abstract_tests_names_tests_that_are_there() -> None:
    table = (Path(__file__).parents[3] / "docs" / "standards.md").read_text()
    rows = re.findall(r"^\| `([\w-]+/[\w-]+)` \| ([^|]+) \|(?: `(\w+)`)? \|$", table, re.M)
    names = [name for name, _, _ in rows]
    assert len(names) == len(set(names)) == ABSTRACT_TESTS
    for name, here, test in rows:
        assert not test or callable(globals().get(test)), (name, test)
        by_test = here.startswith(("held", "not kept")) and "ONLY=api" not in here
        assert bool(test) == by_test, name


def test_inputs_are_taken_as_they_are_or_qualified(portal: LivePortal, runtime: Runtime) -> None:
    crs84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
    qualified = {
        **{name: {"value": value} for name, value in INPUTS.items()},
        "region": {"bbox": [-8.0, 50.5, 6.0, 58.5], "crs": crs84},
    }
    with portal.client() as http:
        made = [
            http.post("/processes/reproject/execution", json={"inputs": inputs})
            for inputs in (INPUTS, qualified)
        ]
    documents = [request_operations.load(runtime, one.json()["jobID"]).document for one in made]
    assert [one.status_code for one in made] == [201, 201]
    assert made[0].headers["location"] == f"{portal.url}/jobs/{made[0].json()['jobID']}"
    assert documents[0] == documents[1]
    assert json.loads(documents[0]) == json.loads(
        request_operations.load(runtime, submitted(runtime)).document
    )


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"inputs": {**INPUTS, "grid": {"modis": 3}}}, "grid"),
        ({"inputs": {}}, "products"),
        ({"inputs": {**INPUTS, "region": {"href": "http://127.0.0.1/"}}}, "inputs.region"),
        ({"inputs": INPUTS, "outputs": {"picture": {}}}, "outputs.picture"),
        (
            {"inputs": INPUTS, "outputs": {"items": {"transmissionMode": "reference"}}},
            "outputs.items.transmissionMode",
        ),
        ({"inputs": INPUTS, "response": "letter"}, "body.response"),
    ],
)
def test_wrong_inputs_and_outputs_are_refused(
    portal: LivePortal, asked: dict[str, Any], field: str
) -> None:
    with portal.client() as http:
        answer = http.post("/processes/reproject/execution", json=asked)
    assert answer.status_code == 422
    assert answer.json()["field"].startswith(field)


def test_a_job_sent_again_with_its_key_is_the_same(portal: LivePortal) -> None:
    with portal.client() as http:
        ids = {
            http.post(
                "/processes/reproject/execution",
                json={"inputs": INPUTS},
                headers={"Idempotency-Key": "k1", "Prefer": "respond-async"},
            ).json()["jobID"]
            for _ in range(2)
        }
        listed = http.get("/jobs").json()["jobs"]
    assert {one["jobID"] for one in listed} == ids
    assert len(ids) == 1


def test_results_come_bare_or_as_a_document(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    with portal.client() as http:
        answers = {}
        for form in ("raw", "document"):
            asked = {"inputs": INPUTS, "response": form}
            job = http.post("/processes/reproject/execution", json=asked).json()["jobID"]
            early = http.get(f"/jobs/{job}/results")
            deliver(runtime, job, tmp_path)
            answers[form] = http.get(f"/jobs/{job}/results")
        assert (early.status_code, early.json()["type"]) == (404, f"{EXCEPTION}result-not-ready")
    assert answers["raw"].headers["content-type"] == "application/geo+json"
    assert answers["raw"].json()["type"] == "FeatureCollection"
    assert answers["document"].json()["items"]["mediaType"] == "application/geo+json"


def test_a_failed_job_says_so_in_place_of_results(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    set_row(runtime, name, state=RequestState.FAILED, ended=1.0, message="no granule.")
    with portal.client() as http:
        answer = http.get(f"/jobs/{name}/results")
    assert (answer.status_code, answer.json()["type"]) == (410, f"{EXCEPTION}job-results-failed")
    assert "no granule" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/processes/fly", "no-such-process"),
        ("/jobs/nothing", "no-such-job"),
        ("/jobs/nothing/results", "no-such-job"),
    ],
)
def test_what_is_not_there_has_its_exception(portal: LivePortal, path: str, kind: str) -> None:
    with portal.client() as http:
        answer = http.get(path)
    assert (answer.status_code, answer.json()["type"]) == (404, EXCEPTION + kind)


def test_a_job_is_dismissed(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    set_row(runtime, name, state=RequestState.RUNNING)
    with portal.client() as http:
        assert http.delete("/jobs/nothing").status_code == 404
        answer = http.delete(f"/jobs/{name}")
    assert (answer.status_code, answer.json()["status"]) == (200, "dismissed")
    assert request_operations.load(runtime, name).state is RequestState.CANCELLING


def test_the_list_of_jobs_is_filtered_and_has_pages(portal: LivePortal, runtime: Runtime) -> None:
    names = [submitted(runtime) for _ in range(5)]
    now = runtime.clock.now()
    set_row(runtime, names[0], state=RequestState.COMPLETE, ended=now + 500)
    set_row(runtime, names[1], state=RequestState.FAILED, ended=now + 50)
    with portal.client() as http:

        def jobs(query: str) -> set[str]:
            return {one["jobID"] for one in http.get(f"/jobs?{query}").json()["jobs"]}

        assert jobs("status=successful") == {names[0]}
        assert jobs("status=successful&status=failed") == {names[0], names[1]}
        assert jobs("minDuration=40") == {names[0], names[1]}
        assert jobs("minDuration=40&maxDuration=100") == {names[1]}
        assert jobs("type=process&processID=reproject") == set(names)
        assert jobs("processID=fly") == jobs("type=map") == set()
        assert jobs("datetime=../2012-01-01T00:00:00Z") == set()
        assert jobs("datetime=2012-01-01T00:00:00Z/..") == set(names)
        assert http.get("/jobs?status=lost").status_code == 400
        found, address = [], "/jobs?limit=2"
        while address:
            page = http.get(address).json()
            assert len(page["jobs"]) <= 2
            found += [one["jobID"] for one in page["jobs"]]
            address = next((li["href"] for li in page["links"] if li["rel"] == "next"), "")
    assert sorted(found) == sorted(names)


def test_the_landing_page_is_for_programs_and_the_page_for_browsers(portal: LivePortal) -> None:
    with portal.browser() as browser, portal.guest() as nobody:
        assert "<!doctype html>" in browser.get("/").text
        landing = nobody.get("/").json()
        links = [link for link in landing["links"] if link.get("method", "GET") == "GET"]
        statuses = {link["href"]: nobody.get(link["href"]).status_code for link in links}
    assert set(landing["conformsTo"]) == set(CONFORMANCE)
    needs_sign_in = {f"{portal.url}/{name}" for name in ("jobs", "collections", "search")}
    assert {href for href, status in statuses.items() if status == 401} == needs_sign_in
    assert {s for href, s in statuses.items() if href not in needs_sign_in} == {200}


def test_addresses_are_those_of_the_proxy_that_was_called(runtime: Runtime) -> None:
    """The portal's own server sees plain HTTP where a proxy ends TLS."""
    for _ in range(2):
        submitted(runtime)
    public = "https://portal.example.org"
    with live_portal(runtime, settings(portal_url=public)) as behind, behind.client() as http:
        http.headers["Host"] = "portal.example.org"
        answers = [http.get(path).json() for path in ("/", "/jobs?limit=1", "/collections?limit=1")]
    links = [link["href"] for answer in answers for link in answer["links"]]
    assert all(href.startswith(f"{public}/") for href in links), links
    assert sum("limit=1&" in href for href in links) == 2


def test_a_damaged_sidecar_does_not_hide_its_raster(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    name = submitted(runtime)
    deliver(runtime, name, tmp_path)
    lost = next(
        interest
        for interest in request_operations.results(runtime, name)
        if interest.files[0].name.endswith(f"Lai_1km.{DATES[0]}.json")
    )
    put_interest(runtime, replace(lost, files=(replace(lost.files[0], blob="artifacts/gone/x"),)))
    with portal.client() as http:
        found = http.get(f"/collections/{name}/items/{DATES[0]}").json()
    assert set(found["assets"]) == {"Lai_1km", "Fpar_1km"}
