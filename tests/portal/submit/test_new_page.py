"""The page of a new request: its form, mistakes, summary, preview and products."""

import re
from typing import get_args

import pytest

from portal.submit import catalogue
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError
from tasks.request.document import Request
from tasks.requests import request_operations, request_table
from tasks.requests.request_table import RequestTable
from tests.portal.scripted import LivePortal, part, set_row
from tests.portal.submissions import FORM, submitted


def error_at(page: str, slot: str) -> str:
    """The text that stands beside a field."""
    found = re.search(rf'<p class="error" id="error-{slot}"[^>]*>(.*?)</p>', page, re.DOTALL)
    return found[1].strip() if found else ""


def test_the_form_submits_once(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RequestRefusedError("products.0.name", "it is there no more.", "")

    with portal.browser() as client:
        first = client.post("/new", data=FORM)
        again = client.post("/new", data=FORM)
        monkeypatch.setattr("portal.submit.submit_page.check", refuse)
        later = client.post("/new", data=FORM)
    assert first.status_code == again.status_code == later.status_code == 200
    assert first.url == again.url == later.url
    assert re.search(r"/requests/\d{6}-[0-9a-f]{10}$", str(first.url))  # as ids of commands
    (row,) = request_operations.list_requests(runtime)
    assert row.title == "By form"
    assert request_operations.document_of(request_operations.load(runtime, row.id)).region.bbox == (
        -8.0,
        50.5,
        6.0,
        58.5,
    )


def test_a_form_changed_after_it_was_sent_is_another_request(
    portal: LivePortal, runtime: Runtime
) -> None:
    with portal.browser() as client:
        first = client.post("/new", data=FORM)
        changed = [client.post("/new", data={**FORM, "title": "Changed"}) for _ in range(2)]
    assert [answer.status_code for answer in (first, *changed)] == [200, 200, 200]
    assert first.url != changed[0].url == changed[1].url
    assert [row.title for row in request_operations.list_requests(runtime)] == [
        "Changed",
        "By form",
    ]


def test_browsers_keep_no_copy_of_the_form(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        answers = [client.get(path) for path in ("/new", f"/new?again={name}")]
        answers.append(client.post("/new", data={**FORM, "north": "95"}))
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


@pytest.mark.parametrize(
    ("change", "slot", "said"),
    [
        ({"end": "2011-01-01"}, "time", "before the first day"),
        ({"start": ""}, "time", "empty"),
        ({"north": "95"}, "region", "95 is not a latitude"),
        ({"crs": "EPSG:999999"}, "grid-crs", "EPSG:999999"),
        ({"resolution": "0.00002"}, "grid-resolution", "pixels"),
        ({"layer-u": "Lai"}, "card-u", "no layer"),
        ({"layer-u": ""}, "card-u", "no layer of MCD15A2 is chosen"),
        ({"notify": "nobody"}, "notify", "nobody"),
        ({"package": "nothing"}, "reduction", "nothing"),
        ({"resampling": "map", "resampling_map": "x"}, "resampling", "with a colon between"),
    ],
)
def test_a_mistake_stands_beside_its_field_and_nothing_typed_is_lost(
    portal: LivePortal, runtime: Runtime, change: dict[str, str], slot: str, said: str
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
    assert not RequestTable(runtime.store).live()


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


def test_the_summary_says_what_is_made_of_sites(portal: LivePortal) -> None:
    sites = {
        **FORM,
        "region_kind": "sites",
        "sites": "id,latitude,longitude\nMoor,56.6,-6.7\nB,54,9",
    }
    grid = '<fieldset class="card" data-when="region_kind bbox tiles geojson place"'
    with portal.browser() as client:
        made = client.post("/new/check", data=sites).text
        page = client.post("/new", data={**sites, "start": ""}).text
        plain = client.get("/new").text
    assert "time series at 2 sites: a table and a chart of each layer, no rasters" in made
    assert "pixels of" not in made
    assert f"{grid} hidden>" in page
    assert f"{grid}>" in plain


def test_the_mail_goes_to_who_is_signed_in(portal: LivePortal, runtime: Runtime) -> None:
    def address(page: str) -> str:
        found = re.search(r'id="notify"[^>]* value="([^"]*)"', page)
        assert found is not None
        return found[1]

    name = submitted(runtime)  # by Ada, who wants no mail
    with portal.browser() as ada, portal.browser("x y@z") as nameless:
        assert address(ada.get("/new").text) == "ada@example.org"
        assert address(ada.get(f"/new?again={name}").text) == ""
        assert address(nameless.get("/new").text) == ""
    with portal.browser("eve@example.org", "operator") as other:
        assert address(other.get(f"/new?again={name}").text) == "eve@example.org"


def test_an_empty_list_of_compared_layers_names_its_section(portal: LivePortal) -> None:
    measured = {**FORM, "measured": "site,time,LAI\nMoor,2012-04-13,2.5"}
    with portal.browser() as client:
        page = client.post("/new", data=measured).text
    assert error_at(page, "measurements") == (
        "The list of compared layers, under Measurements, is empty. "
        "Write each layer with its column: Lai_1km: LAI."
    )


def test_a_preview_is_polled_until_it_is_counted(portal: LivePortal, runtime: Runtime) -> None:
    with portal.browser() as client:
        started = client.post("/new/preview", data=FORM).text
        address = re.search(r'hx-get="(/previews/[^"]+)"', started)
        assert address is not None
        name = address[1].rsplit("/", 1)[1]
        assert "hx-trigger" in part(client, address[1])
        counts = request_table.Preview(granules=32, tasks=107, gaps=0, size=10**9)
        set_row(runtime, name, state=RequestState.PREVIEWED, preview=counts)
        counted = part(client, address[1])
        assert "By form" not in client.get("/").text
    assert "hx-get" not in counted
    assert "32, 1 GB to fetch" in counted


def test_places_are_offered_by_the_words_typed(portal: LivePortal) -> None:
    with portal.browser() as client:
        found = part(client, "/new/places?place=bayern")
        none = part(client, "/new/places?place=")
    assert '<option value="Bayern, Germany">' in found
    assert "<option" not in none


def test_a_product_is_searched_and_put_on_the_form(portal: LivePortal) -> None:
    with portal.browser() as client:
        page = client.get("/new").text
        every = part(client, "/new/products?every=true")
        cleared = part(client, "/new/products?q=")
        found = part(client, "/new/products?q=leaf")
        none = part(client, "/new/products?q=zzzz")
        card = part(client, "/new/product?name=MCD15A2&collection=5")
        other = part(client, "/new/product?other_name=MOD35_L2&other_collection=6.1")
    assert len(page) < 40_000
    assert 'aria-label="Add ' not in page + cleared
    assert every.count('aria-label="Add ') == len(catalogue.items())
    assert f"{catalogue.product_count()} products" in page
    assert "MCD15A2" in found
    assert "No product matches" in none
    assert re.search(r'name="layer-\w+" value="Lai_1km"', card)
    assert "collection 061" in other


def test_a_document_fills_the_form_and_a_request_fills_it_again(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
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


def test_the_form_offers_every_unit_that_a_document_may_name(portal: LivePortal) -> None:
    choices = get_args(Request.model_fields["units"].annotation)
    with portal.browser() as client:
        page = client.get("/new").text
    select = re.search(r'<select id="units".*?</select>', page, re.DOTALL)
    assert select is not None
    assert set(re.findall(r'value="(\w+)"', select[0])) == set(choices)


def test_each_parameter_of_a_package_has_a_field_by_its_type(portal: LivePortal) -> None:
    with portal.browser() as client:
        fields = part(client, "/new/parameters", {"package": "anomaly"})
        several = part(client, "/new/parameters", {"package": "seasonal-composite"})
        bounded = part(client, "/new/parameters", {"package": "percentile"})
        none = part(client, "/new/parameters", {"package": "mean"})
        unknown = part(client, "/new/parameters", {"package": "no"})
    assert re.search(
        r'name="parameter-month" type="month".*aria-required="true"', fields, re.DOTALL
    )
    choices = '<option value="mean" selected>mean</option><option value="median">median</option>'
    assert choices in several
    assert re.search(r'type="number" value="90".*min="0" max="100"', bounded, re.DOTALL)
    assert "<textarea" not in fields + several + bounded + none
    assert "<textarea" in unknown


def test_a_choice_that_is_not_offered_any_more_stays_chosen_and_is_refused(
    portal: LivePortal,
) -> None:
    """Else the browser would choose the first one, and another request would be sent."""
    with portal.browser() as client:
        fields = part(client, "/new/parameters", {"package": "seasonal-composite"})
        (name,) = re.findall(r'<select id="[^"]+" name="(parameter-[^"]+)"', fields)
        page = client.post("/new", data={"package": "seasonal-composite", name: "mode"}).text
    assert '<option value="mode" selected>mode (not offered any more)</option>' in page
    assert page.count(" selected>mode") == 1


def test_what_was_set_for_a_parameter_comes_back_with_its_error(portal: LivePortal) -> None:
    fields = {"package": "phenology", "parameter-share": "2", "parameter-least": "7"}
    with portal.browser() as client:
        page = client.post("/new", data=fields).text
    assert 'name="parameter-share" type="number" value="2"' in page
    assert 'name="parameter-least" type="number" value="7"' in page
