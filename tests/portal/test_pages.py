"""The pages, as a browser without scripts gets them."""

import datetime as dt
import re

import httpx
import pytest

from portal.app import CONTENT_SECURITY_POLICY
from portal.pages import duration_text, size_text
from tasks import requests, workers
from tasks.categories import Category
from tasks.model import Phase, RequestState
from tasks.request import parse_request
from tasks.requests import PhaseCount, Preview
from tasks.services import Services
from tests.portal.scripted import (
    LivePortal,
    put_executions,
    put_failed_task,
    put_result,
    put_running_task,
    put_worker,
    set_row,
)

DOCUMENT = {
    "title": "Leaf <area>",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}
FORM = {
    "product": "u|MCD15A2|5",
    "layer-u": "Lai_1km",
    "region_kind": "bbox",
    "west": "-8",
    "south": "50.5",
    "east": "6",
    "north": "58.5",
    "start": "2012-01-01",
    "end": "2012-04-30",
    "grid_kind": "crs",
    "crs": "EPSG:4326",
    "resolution": "0.01",
    "mask": "yes",
    "title": "By form",
    "submission": "abc123",
}


def submitted(services: Services, owner: str = "ada@example.org") -> str:
    return requests.submit(services, owner, parse_request(DOCUMENT))


def error_at(page: str, slot: str) -> str:
    """The text that stands beside a field."""
    found = re.search(rf'<p class="error" id="error-{slot}"[^>]*>(.*?)</p>', page, re.DOTALL)
    return found[1].strip() if found else ""


def test_a_link_signs_in_and_the_cookie_is_kept_from_scripts(portal: LivePortal) -> None:
    with httpx.Client(base_url=portal.url, trust_env=False) as client:
        refused = client.get("/", headers={"Accept": "text/html"})
        answer = client.get(portal.link())
    cookie = answer.headers["set-cookie"]
    assert refused.status_code == 401
    assert "sign-in link" in refused.text
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


def test_a_spoilt_link_signs_nobody_in(portal: LivePortal) -> None:
    with httpx.Client(base_url=portal.url, trust_env=False) as client:
        answer = client.get(portal.link()[:-3] + "xyz", headers={"Accept": "text/html"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_signing_out_ends_the_session(portal: LivePortal) -> None:
    with portal.browser() as client:
        client.cookies.clear()
        assert client.get(portal.link()).status_code == 200
        assert "signed out" in client.post("/sign-out").text
        assert client.get("/").status_code == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "null", ""])
def test_a_form_of_another_site_changes_nothing(
    portal: LivePortal, services: Services, origin: str
) -> None:
    name = submitted(services)
    with portal.browser() as client:
        client.headers["Origin"] = origin
        for path in ("/new", f"/requests/{name}/cancel", f"/api/requests/{name}/cancel"):
            assert client.post(path, data=FORM).status_code == 403
    assert requests.load(services, name).order == ""
    assert len(list(requests.list_requests(services))) == 1


def test_every_answer_forbids_what_pages_do_not_need(portal: LivePortal) -> None:
    with portal.browser() as client:
        for path in ("/", "/new", "/static/swathmill.css", "/nowhere", "/api/requests"):
            headers = client.get(path).headers
            assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_no_page_has_scripts_or_styles_of_its_own(portal: LivePortal, services: Services) -> None:
    name = submitted(services)
    with portal.browser(role="operator") as client:
        for path in ("/", "/new", f"/requests/{name}", "/operations", "/docs"):
            page = client.get(path).text
            assert not re.search(r"<script(?![^>]* src=)", page)
            assert not re.search(r"<style|\sstyle=|\son\w+=", page)
            assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_the_form_submits_once(portal: LivePortal, services: Services) -> None:
    with portal.browser() as client:
        first = client.post("/new", data=FORM)
        again = client.post("/new", data=FORM)
    assert first.status_code == again.status_code == 200
    assert first.url == again.url
    (row,) = requests.list_requests(services)
    assert row.title == "By form"
    assert requests.document_of(row).region.bbox == (-8.0, 50.5, 6.0, 58.5)


@pytest.mark.parametrize(
    ("change", "slot", "said"),
    [
        ({"end": "2011-01-01"}, "time", "before start"),
        ({"start": ""}, "time", "empty"),
        ({"north": "95"}, "region", "-90..90"),
        ({"crs": "EPSG:999999"}, "grid-crs", "EPSG:999999"),
        ({"resolution": "0.00002"}, "grid-resolution", "pixels"),
        ({"layer-u": "Lai"}, "products", "no layer"),
        ({"layer-u": ""}, "products", "no layer of MCD15A2 is chosen"),
        ({"notify": "nobody"}, "notify", "nobody"),
        ({"package": "nothing"}, "reduction", "nothing"),
        ({"resampling": "map", "resampling_map": "x"}, "resampling", "pair"),
    ],
)
def test_a_mistake_stands_beside_its_field_and_nothing_typed_is_lost(
    portal: LivePortal, services: Services, change: dict[str, str], slot: str, said: str
) -> None:
    with portal.browser() as client:
        answer = client.post("/new", data={**FORM, **change})
        preview = client.post("/new/preview", data={**FORM, **change})
    assert answer.status_code == 422
    assert said in error_at(answer.text, slot)
    assert said in error_at(preview.text, slot)
    assert 'value="By form"' in answer.text
    assert 'value="50.5"' in answer.text
    for name, value in change.items():
        if name in ("end", "north", "crs", "resolution", "notify"):
            assert f'value="{value}"' in answer.text
    assert not list(requests.list_requests(services))


def test_the_summary_follows_the_form(portal: LivePortal) -> None:
    with portal.browser() as client:
        made = client.post("/new/check", data=FORM).text
        modis = client.post("/new/check", data={**FORM, "grid_kind": "modis", "modis": "500"}).text
        open_ = client.post("/new/check", data={**FORM, "east": ""}).text
    assert "1,400 × 800 pixels of 0.01 degree" in made
    assert "h17v03, h18v03" in made
    assert "name: MCD15A2" in made
    assert "463.313 m" in modis
    assert "Still to do" in open_


def test_a_preview_is_polled_until_it_is_counted(portal: LivePortal, services: Services) -> None:
    with portal.browser() as client:
        started = client.post("/new/preview", data=FORM).text
        address = re.search(r'hx-get="(/previews/[^"]+)"', started)
        assert address is not None
        name = address[1].rsplit("/", 1)[1]
        assert "hx-trigger" in client.get(address[1]).text
        counts = requests.Preview(granules=32, tasks=107, gaps=0, size=10**9)
        set_row(services, name, state=RequestState.PREVIEWED, preview=counts)
        counted = client.get(address[1]).text
        assert "By form" not in client.get("/").text
    assert "hx-get" not in counted
    assert "32, 1 GB to fetch" in counted


def test_a_product_is_searched_and_put_on_the_form(portal: LivePortal) -> None:
    with portal.browser() as client:
        found = client.get("/new/products?q=leaf").text
        none = client.get("/new/products?q=zzzz").text
        card = client.get("/new/product?name=MCD15A2&collection=5").text
        other = client.get("/new/product?other_name=MOD35_L2&other_collection=6.1").text
    assert "MCD15A2" in found
    assert "No product matches" in none
    assert re.search(r'name="layer-\w+" value="Lai_1km"', card)
    assert "collection 6.1" in other


def test_a_document_fills_the_form_and_a_request_fills_it_again(
    portal: LivePortal, services: Services
) -> None:
    name = submitted(services)
    with portal.browser() as client:
        again = client.get(f"/new?again={name}").text
        text = "products: [{name: MCD15A2, collection: 5, layers: [Fpar_1km]}]\nregion: "
        text += "{tiles: [h18v04]}\ntime: {start: 2012-01-01, end: 2012-01-02}\ngrid: {modis: 250}"
        loaded = client.post("/new/document", data={"document": text}).text
        spoilt = client.post("/new/document", data={"document": "region: {box: 1}"})
    assert 'value="Leaf &lt;area&gt;"' in again
    assert re.search(r'value="Lai_1km" checked', again)
    assert 'value="h18v04"' in loaded
    assert re.search(r'value="Fpar_1km" checked', loaded)
    assert spoilt.status_code == 422
    assert "region: {box: 1}" in spoilt.text


def test_a_request_s_page_follows_it_and_stops(portal: LivePortal, services: Services) -> None:
    name = submitted(services)
    with portal.browser() as client:
        waiting = client.get(f"/requests/{name}").text
        phases = {Phase.COLLECTION: PhaseCount(total=32, done=12, reused=2, running=3, failed=1)}
        set_row(services, name, state=RequestState.RUNNING, phases=phases, outputs=1)
        running = client.get(f"/requests/{name}/progress?seen=x")
        put_result(services, name, "MCD15A2.005", "a.json", b"{}")
        set_row(services, name, state=RequestState.COMPLETE, delivered=1, ended=1e9)
        ended = client.get(f"/requests/{name}/progress?seen=x")
        page = client.get(f"/requests/{name}").text
    assert "every 2s" in waiting
    assert "Leaf &lt;area&gt;" in waiting
    assert "12 of 32, 3 running, 2 reused, 1 failed" in running.text
    assert running.headers["hx-trigger"] == '{"request-changed": {}}'
    assert ended.headers["hx-trigger"] == '{"request-ended": {}}'
    assert "every" not in ended.text
    assert "Cancel" not in ended.text
    assert f"/api/requests/{name}/results/MCD15A2.005/a.json" in page


def test_a_request_is_paused_and_resumed_from_its_page(
    portal: LivePortal, services: Services
) -> None:
    name = submitted(services)
    with portal.browser() as client:
        assert 'id="order-pause"' in client.get(f"/requests/{name}").text
        paused = client.post(f"/requests/{name}/pause").text
        assert requests.load(services, name).order == "pause"
        set_row(services, name, order="", paused=True)
        page = client.get(f"/requests/{name}").text
        assert client.post(f"/requests/{name}/explode").status_code == 422
    assert 'id="order-resume"' in paused
    assert "Paused:" in page
    assert 'id="order-pause"' not in page


def test_results_are_searched_and_turned_over(portal: LivePortal, services: Services) -> None:
    name = submitted(services)
    for number in range(120):
        put_result(services, name, "L", f"{number:03d}.csv", f"{number}".encode())
    set_row(services, name, state=RequestState.COMPLETE, outputs=120, delivered=120, ended=1e9)
    with portal.browser() as client:
        first = client.get(f"/requests/{name}/results").text
        last = client.get(f"/requests/{name}/results?page=99").text
        found = client.get(f"/requests/{name}/results?find=l+07").text
    assert "Page 1 of 3" in first
    assert "119.csv" in last
    assert found.count('aria-label="Download') == 12
    assert "12 found" in found


def test_a_picture_is_drawn_and_kept_by_the_browser(
    portal: LivePortal, services: Services, raster: bytes
) -> None:
    name = submitted(services)
    put_result(services, name, "L", "a.tif", raster)
    put_result(services, name, "L", "b.tif", b"no raster")
    put_result(services, name, "L", "c.csv", b"1,2")
    with portal.browser() as client:
        picture = client.get(f"/requests/{name}/pictures/L/a.tif")
        large = client.get(f"/requests/{name}/pictures/L/a.tif?size=large")
        page = client.get(f"/requests/{name}/view/L/a.tif").text
        assert client.get(f"/requests/{name}/pictures/L/b.tif").status_code == 404
        assert client.get(f"/requests/{name}/pictures/L/c.csv").status_code == 404
        assert client.get(f"/requests/{name}/view/L/c.csv").status_code == 200
    assert picture.headers["content-type"] == "image/png"
    assert "immutable" in picture.headers["cache-control"]
    assert picture.content[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(picture.content[16:20]) == 144
    assert int.from_bytes(large.content[16:20]) == 280
    assert "Download" in page


def test_failures_are_grouped_and_lead_to_every_attempt(
    portal: LivePortal, services: Services
) -> None:
    name = submitted(services)
    key = put_failed_task(services, name, "A.hdf", (Category.EXECUTION_TIMEOUT,) * 3)
    put_failed_task(services, name, "B.hdf", (Category.BAD_IMAGE_FORMAT,))
    phases = {Phase.COLLECTION: PhaseCount(total=2, failed=2)}
    set_row(services, name, state=RequestState.GAPS, phases=phases, ended=1e9)
    with portal.browser() as client, portal.browser("bob@example.org") as other:
        page = client.get(f"/requests/{name}").text
        task = client.get(f"/tasks/{key}").text
        assert other.get(f"/tasks/{key}").status_code == 404
        assert other.get(f"/requests/{name}").status_code == 404
    assert "bad image format" in page
    assert "What to do" in page
    assert f"/tasks/{key}" in page
    assert all(f"Attempt {number} " in task for number in (1, 2, 3))
    assert "fetching A.hdf" in task


def test_the_operators_page_shows_what_runs_failed_and_lives(
    portal: LivePortal, services: Services
) -> None:
    name = submitted(services)
    now = services.clock.now()
    key = put_running_task(services, name, "A.hdf", "worker-1")
    today = dt.datetime.fromtimestamp(now, dt.UTC)
    counts = {None: 20, Category.EXECUTION_TIMEOUT: 3}
    put_executions(services, today, counts, duration=30.0)
    for worker, ago, draining in (("worker-1", 0, False), ("lost-1", 500, False), ("d", 0, True)):
        put_worker(
            services,
            workers.WorkerRow(
                name=worker,
                host="node",
                slots=4,
                started=now - 900,
                beat_at=now - ago,
                draining=draining,
                sandbox="bubblewrap",
            ),
        )
    with portal.browser() as scientist, portal.browser("op@example.org", "operator") as client:
        assert scientist.get("/operations").status_code == 403
        page = client.get("/operations").text
        answer = client.get("/api/operations").json()
    assert f"/tasks/{key}" in page
    assert "execution timeout" in page
    assert "bubblewrap" in page
    for state in ("lost", "draining", "ready"):
        assert re.search(rf'class="state \w+">{state}<', page)
    (running,) = answer["running"]
    assert running["mean"] == pytest.approx(30)
    assert running["bound"] == pytest.approx(120)
    assert answer["executions"]["outcomes"]["execution timeout"][-1] == 3
    assert {w["name"]: w["state"] for w in answer["workers"]}["lost-1"] == "lost"


def test_what_is_not_there_is_told_on_a_page(portal: LivePortal) -> None:
    with portal.browser() as client:
        for path in ("/nowhere", "/requests/none", "/requests/a b\u00e4", "/tasks/" + "0" * 64):
            answer = client.get(path)
            assert answer.status_code == 404
            assert "<h1>" in answer.text


def test_static_files_are_kept_by_their_content(portal: LivePortal) -> None:
    with portal.browser() as client:
        page = client.get("/").text
        address = re.search(r'href="(/static/swathmill\.css\?v=\w+)"', page)
        assert address is not None
        assert "immutable" in client.get(address[1]).headers["cache-control"]
        assert "immutable" not in client.get("/static/swathmill.css").headers["cache-control"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (123_456_789, "123 MB")]
)
def test_sizes_read_as_people_say_them(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_request_that_waits_shows_what_it_takes_and_is_confirmed_by_page_and_api(
    portal: LivePortal, services: Services
) -> None:
    request_id = submitted(services)
    preview = Preview(
        granules=16, tasks=64, gaps=7, size=33_700_000, stored=101_000_000, unmeasured=3, cost=1.5
    )
    set_row(
        services,
        request_id,
        state=RequestState.HELD,
        message="confirm it to go on: 64 tasks, more than the 20 of SWATHMILL_CONFIRM_TASKS",
        preview=preview,
    )
    with portal.browser() as client:
        page = client.get(f"/requests/{request_id}").text
        assert "Confirm it to go on: 64 tasks" in page
        for text in ("16, 33.7 MB to fetch", "at most 101 MB", "1.50, without 3 tasks"):
            assert text in page
        assert "/pause" not in page
        page = client.post(f"/requests/{request_id}/confirm").text  # leads back to it
    assert requests.load(services, request_id).order == "confirm"
    assert "Confirmed: it goes on." in page
    assert f"/requests/{request_id}/confirm" not in page
    other = submitted(services)
    set_row(services, other, state=RequestState.HELD)
    with portal.client() as client, portal.client(owner="bob@example.org") as stranger:
        refused = stranger.post(f"/api/requests/{other}/confirm").status_code
        assert requests.load(services, other).order == ""
        assert client.post(f"/api/requests/{other}/confirm").status_code == 202
    assert refused in (403, 404)
    assert requests.load(services, other).order == "confirm"
