"""What holds for every page: signing in, headers, foreign forms, what is not there, and units."""

import re

import pytest

from portal.app import CONTENT_SECURITY_POLICY
from portal.serving.pages import parts_text
from portal.serving.quantities import duration_text, place_text, size_text, unit_text
from tasks.bag.runtime import Runtime
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tests.portal.scripted import LivePortal
from tests.portal.submissions import DOCUMENT, FORM, submitted


def test_a_link_signs_in_and_the_cookie_is_kept_from_scripts(portal: LivePortal) -> None:
    with portal.guest() as client:
        refused = client.get("/", headers={"Accept": "text/html"})
        answer = client.get(portal.link())
    cookie = answer.headers["set-cookie"]
    assert refused.status_code == 401
    assert "<h1>You are not signed in</h1>" in refused.text
    assert "Open the sign-in link you were given" in refused.text
    assert 'href="/sign-in"' in refused.text
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


def test_a_spoilt_link_signs_nobody_in(portal: LivePortal) -> None:
    with portal.guest() as client:
        answer = client.get(portal.link()[:-3] + "xyz", headers={"Accept": "text/html"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "<h1>You are not signed in</h1>" in answer.text
    assert "This sign-in link is incomplete or has expired." in answer.text
    assert "<code>swathmill sign-in ADDRESS</code>" in answer.text


def test_signing_out_ends_the_session(portal: LivePortal) -> None:
    with portal.browser() as client:
        client.cookies.clear()
        assert client.get(portal.link()).status_code == 200
        assert "signed out" in client.post("/sign-out").text
        assert client.get("/").status_code == 401


def test_what_cannot_be_seen_is_escaped_on_pages(portal: LivePortal, runtime: Runtime) -> None:
    """Of a title in the lists, and of the whole document on the request's page."""
    hostile = "a\x9b2Jb\u202ec\u200b"
    asked = parse_request({**DOCUMENT, "title": hostile, "labels": ["x\u202ey"]})
    name = request_operations.submit(runtime, "ada@example.org", asked)
    with portal.browser() as client:
        pages = [client.get(path).text for path in ("/", f"/requests/{name}")]
    for page in pages:
        assert r"a\x9b2Jb\u202ec\u200b" in page
        assert not set("\x9b\u202e\u200b") & set(page)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", ""])
def test_a_form_of_another_site_changes_nothing(
    portal: LivePortal, runtime: Runtime, origin: str
) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        client.headers["Origin"] = origin
        for path in ("/new", f"/requests/{name}/cancel", f"/api/requests/{name}/cancel"):
            assert client.post(path, data=FORM).status_code == 403
    assert request_operations.load(runtime, name).order is None
    assert len(list(request_operations.list_requests(runtime))) == 1


def test_every_answer_forbids_what_pages_do_not_need(portal: LivePortal) -> None:
    with portal.browser() as client:
        for path in ("/", "/new", "/static/swathmill.css", "/nowhere", "/api/requests"):
            headers = client.get(path).headers
            assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_no_page_has_scripts_or_styles_of_its_own(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with portal.browser(role="operator") as client:
        for path in ("/", "/new", f"/requests/{name}", "/operations", "/docs"):
            page = client.get(path).text
            assert not re.search(r"<script(?![^>]* src=)", page)
            assert not re.search(r"<style|\sstyle=|\son\w+=", page)
            assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


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
    ("units", "text"),
    [
        ("m^2/m^2", "m² m⁻²"),
        ("W m-2 sr-1 um-1", "W m⁻² sr⁻¹ um⁻¹"),
        ("kg/m^2/8day", "kg m⁻² (8 day)⁻¹"),
        ("1.0e-6g/cm^2", "1.0e-6g cm⁻²"),
        ("umol CO2 m-2 s-1", "umol CO2 m⁻² s⁻¹"),
        ("log10(mg m-3)", "log10(mg m⁻³)"),
        ("K", "K"),
        ("1", ""),
        ("", ""),
    ],
)
def test_units_have_raised_powers(units: str, text: str) -> None:
    assert unit_text(units) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (123_456_789, "123 MB")]
)
def test_sizes_read_as_people_say_them(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("latitude", "longitude", "text"),
    [(56.6, -4.6, "56.6° N, 4.6° W"), (-33.25, 151, "33.25° S, 151° E"), (0, 0, "0° N, 0° E")],
)
def test_places_have_their_hemispheres(latitude: float, longitude: float, text: str) -> None:
    assert place_text(latitude, longitude) == text


def test_names_break_between_their_parts_alone() -> None:
    assert parts_text("MCD15A2.005/Lai_1km") == "MCD15A2.<wbr>005/<wbr>Lai_<wbr>1km"
    assert parts_text("a_<b>") == "a_&lt;b&gt;"
