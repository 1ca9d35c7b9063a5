"""Labels, groups, links and standing of a request: who may set them, and what they open."""

import re
from collections.abc import Iterator

import httpx
import pytest

from portal.serving.identity import READER_COOKIE
from tasks.accounts import reader_links
from tasks.accounts.group_table import GroupRow
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.requests import request_operations
from tasks.requests.request_table import PhaseCount, RequestTable
from tests.portal.scripted import SECRET, LivePortal, put_result, set_row
from tests.portal.submissions import DOCUMENT, FORM, submitted

ADA, BEN, EVE = "ada@example.org", "ben@example.org", "eve@example.org"
TEAM = GroupRow(name="forest-team", owner=ADA).key
RESULT = "MCD15A2.005/Lai_1km/a.tif"


@pytest.fixture
def request_id(runtime: Runtime, raster: bytes) -> str:
    """A request of ada's with a result."""
    name = submitted(runtime, ADA)
    put_result(runtime, name, "MCD15A2.005/Lai_1km", "a.tif", raster)
    return name


@pytest.fixture
def ada(portal: LivePortal) -> Iterator[httpx.Client]:
    with portal.client(ADA) as client:
        yield client


def grouped(ada: httpx.Client, request_id: str, *members: str) -> None:
    """Have ada share the request with the group forest-team."""
    ada.put("/api/groups/forest-team", json={"members": members}).raise_for_status()
    ada.patch(f"/api/requests/{request_id}", json={"group": "forest-team"}).raise_for_status()


def test_members_read_a_shared_request_and_change_nothing(
    portal: LivePortal, ada: httpx.Client, request_id: str
) -> None:
    with portal.client(BEN) as ben:
        assert ben.get(f"/api/requests/{request_id}").status_code == 404
        grouped(ada, request_id, BEN)
        told = ben.get(f"/api/requests/{request_id}").json()
        assert (told["owner"], told["group"]) == (ADA, "forest-team")
        assert ben.get(f"/api/requests/{request_id}/results/{RESULT}").status_code == 200
        shared = ben.get("/api/requests", params={"group": "forest-team"}).json()
        assert [one["id"] for one in shared] == [request_id]
        assert ben.get("/api/requests").json() == []
        for method, path in (
            ("POST", f"/api/requests/{request_id}/cancel"),
            ("POST", f"/api/requests/{request_id}/retry"),
            ("PATCH", f"/api/requests/{request_id}"),
            ("POST", f"/api/requests/{request_id}/links"),
            ("DELETE", f"/api/requests/{request_id}/links"),
        ):
            body = {"labels": ["mine"]} if method == "PATCH" else None
            refused = ben.request(method, path, json=body)
            assert refused.status_code == 403, (method, path)
            assert f"is {ADA}'s: you may read it" in refused.text
    with portal.client(EVE) as eve:
        assert eve.get(f"/api/requests/{request_id}").status_code == 404
        assert eve.get("/api/requests", params={"group": "forest-team"}).status_code == 404
        assert eve.get("/api/requests", params={"group": "no\x06name"}).status_code == 404


def test_who_leaves_or_is_left_out_reads_no_more(
    portal: LivePortal, ada: httpx.Client, request_id: str
) -> None:
    grouped(ada, request_id, BEN, EVE)
    with portal.client(BEN) as ben, portal.client(EVE) as eve:
        assert ben.delete("/api/groups/forest-team").status_code == 204
        assert ben.get(f"/api/requests/{request_id}").status_code == 404
        assert eve.get(f"/api/requests/{request_id}").status_code == 200
        eve.put("/api/groups/forest-team", json={"members": [EVE]}).raise_for_status()
        ada.delete("/api/groups/forest-team").raise_for_status()
        assert eve.get(f"/api/requests/{request_id}").status_code == 404


def test_one_shares_with_groups_of_one_s_own_only(
    portal: LivePortal, ada: httpx.Client, request_id: str
) -> None:
    with portal.client(EVE) as eve:
        eve.put("/api/groups/eves", json={"members": [BEN]}).raise_for_status()
    refused = ada.patch(f"/api/requests/{request_id}", json={"group": "eves"})
    assert (refused.status_code, refused.json()["field"]) == (422, "group")
    refused = ada.post("/api/requests", json={**DOCUMENT, "group": "eves"})
    assert (refused.status_code, refused.json()["field"]) == (422, "group")


def test_a_link_shows_the_request_until_all_links_are_ended(
    portal: LivePortal, ada: httpx.Client, request_id: str
) -> None:
    mailed = reader_links.address(portal.url, SECRET, request_id, 4e9)
    link = ada.post(f"/api/requests/{request_id}/links").json()["url"]
    with visitor(portal) as guest:
        assert guest.get(_path(link)).status_code == 200
        assert guest.get(f"/api/requests/{request_id}").json()["id"] == request_id
        assert ada.delete(f"/api/requests/{request_id}/links").status_code == 204
        assert guest.get(f"/api/requests/{request_id}").status_code == 404
    for ended in (link, mailed):
        with visitor(portal) as guest:
            answer = guest.get(_path(ended))
            assert (answer.status_code, READER_COOKIE in guest.cookies) == (401, False)
            assert "ended by the owner" in answer.text
    with visitor(portal) as guest:
        again = ada.post(f"/api/requests/{request_id}/links").json()["url"]
        assert guest.get(_path(again)).status_code == 200


def test_labels_are_kept_with_the_request_and_choose_on_the_home_page(
    portal: LivePortal, ada: httpx.Client, request_id: str
) -> None:
    ada.patch(f"/api/requests/{request_id}", json={"labels": ["my thesis", "x"]}).raise_for_status()
    other = ada.post("/api/requests", json={**DOCUMENT, "title": "Other", "labels": ["x"]}).json()
    assert other["labels"] == ["x"]
    with portal.browser(ADA) as browser:
        page = browser.get("/", params={"label": "my thesis"}).text
        assert re.findall(r"/requests/([\w-]+)\">", page) == [request_id]
        assert browser.get("/", params={"label": "x"}).text.count("<tr>") == 3
        assert "There are none with the label" in browser.get("/", params={"label": "y"}).text
        form = browser.get("/new", params={"again": request_id}).text
        assert 'name="labels" value="my thesis, x"' in form


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"labels": "a" * 41}, "labels.0"),
        ({"standing": "soon"}, "standing"),
        ({"group": "no"}, "group"),
    ],
)
def test_what_cannot_be_is_told_on_the_page(
    portal: LivePortal, request_id: str, given: dict[str, str], field: str
) -> None:
    with portal.browser(ADA) as browser:
        answer = browser.post(
            f"/requests/{request_id}/about",
            data=given,
            headers={"Accept": "application/json", "Origin": portal.url},
        )
        assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_the_page_sets_everything_at_once(
    portal: LivePortal, runtime: Runtime, ada: httpx.Client, request_id: str
) -> None:
    ada.put("/api/groups/forest-team", json={"members": [BEN]}).raise_for_status()
    said = {"labels": "thesis, drought", "group": "forest-team", "standing": "7"}
    with portal.browser(ADA) as browser:
        page = browser.post(f"/requests/{request_id}/about", data=said).text
        assert "goes on with new data, each week at most" in page
        assert "shared with forest-team" in page
        row = request_operations.load(runtime, request_id)
        assert (row.labels, row.group, row.standing) == (("thesis", "drought"), TEAM, 7)
        assert RequestTable(runtime.store).standing() == [request_id]
        browser.post(f"/requests/{request_id}/about", data={"labels": "", "standing": "0"})
        row = request_operations.load(runtime, request_id)
        assert (row.labels, row.group, row.standing) == ((), "", 0)
        assert RequestTable(runtime.store).standing() == []


def test_the_form_submits_labels_group_and_standing(
    portal: LivePortal, runtime: Runtime, ada: httpx.Client
) -> None:
    ada.put("/api/groups/forest-team", json={}).raise_for_status()
    form = {**FORM, "labels": "a, b,", "group": "forest-team", "standing": "30"}
    with portal.browser(ADA) as browser:
        assert browser.post("/new", data=form).status_code == 200
    (row,) = request_operations.list_requests(runtime, ADA)
    assert (row.labels, row.group, row.standing) == (("a", "b"), TEAM, 30)


def test_a_member_may_submit_a_like_request_that_shares_nothing(
    portal: LivePortal, ada: httpx.Client, request_id: str
) -> None:
    grouped(ada, request_id, BEN)
    with portal.browser(BEN) as ben:
        page = ben.get(f"/requests/{request_id}").text
        assert "shares this with the group forest-team" in page
        assert "End all links" not in page
        form = ben.get("/new", params={"again": request_id}).text
        assert "Leaf &lt;area&gt;" in form
        assert '<option value="forest-team" selected' not in form


def test_only_the_owner_is_told_to_retry(
    portal: LivePortal, runtime: Runtime, ada: httpx.Client, request_id: str
) -> None:
    grouped(ada, request_id, BEN)
    failed = {Phase.AGGREGATION: PhaseCount(total=2, done=1, failed=1)}
    set_row(runtime, request_id, state=RequestState.GAPS, phases=failed, outputs=2, ended=1e9)
    said = {}
    for name in (ADA, BEN):
        with portal.browser(name) as client:
            page = client.get(f"/requests/{request_id}").text
        (said[name],) = re.findall("<dt>Next</dt><dd>([^<]*)", page)
    assert "retry what failed" in said[ADA]
    assert said[BEN] == "Use what there is: each result says what it lacks."


def test_groups_are_made_changed_and_left_on_their_page(portal: LivePortal) -> None:
    with portal.browser(ADA) as ada, portal.browser(BEN) as ben:
        made = ada.post("/groups", data={"name": "forest-team", "members": f"{BEN}\n{EVE}"})
        assert 'id="group-forest-team"' in made.text
        two = ben.post("/groups", data={"name": "forest-team", "members": ""})
        assert two.text.count("<h2") == 3
        wrong = ben.post("/groups", data={"name": "No Name", "members": ""})
        assert "is not a name of a group" in wrong.text
        ben.post("/groups/forest-team/leave", data={"owner": ADA})
        assert 'id="group-forest-team"' in ben.get("/groups").text
        ben.post("/groups/forest-team/leave")
        assert ">forest-team<" not in ben.get("/groups").text
        assert f'spellcheck="false">{EVE}</textarea>' in ada.get("/groups").text


def test_no_answer_tells_whether_a_stranger_has_a_group_of_a_name(
    portal: LivePortal, request_id: str
) -> None:
    """Two names, of which a stranger has one: each call is answered alike."""
    with portal.client(ADA) as ada:
        ada.put("/api/groups/glacier", json={"members": [BEN]}).raise_for_status()
        ada.patch(f"/api/requests/{request_id}", json={"group": "glacier"}).raise_for_status()
    told: dict[str, list[tuple[int, str]]] = {"glacier": [], "heather": []}
    with portal.client(EVE) as eve, portal.browser(EVE) as browser:
        own = submitted(portal.runtime, EVE)
        for name, answers in told.items():
            for text in (name, f"{ADA}/{name}"):
                answers.extend(
                    _told(answer, name)
                    for answer in (
                        eve.delete(f"/api/groups/{name}", params={"owner": ADA}),
                        eve.get("/api/requests", params={"group": text}),
                        eve.patch(f"/api/requests/{own}", json={"group": text}),
                        eve.post("/api/requests", json={**DOCUMENT, "group": text}),
                        eve.post("/api/requests?dry_run=true", json={**DOCUMENT, "group": text}),
                        browser.get("/", params={"group": text}),
                        browser.post(f"/requests/{own}/about", data={"group": text}),
                        browser.post(f"/groups/{name}/leave", data={"owner": ADA}),
                        browser.post("/new", data={**FORM, "group": text}),
                    )
                )
            answers.extend(
                _told(answer, name)
                for answer in (
                    eve.put(f"/api/groups/{name}", json={"members": [BEN]}),
                    eve.get("/api/groups"),
                    browser.get("/groups"),
                    eve.patch(f"/api/requests/{own}", json={"group": name}),
                    eve.get(f"/api/requests/{own}"),
                    browser.post("/groups", data={"name": name, "members": ADA}),
                    eve.get("/api/requests", params={"group": name}),
                    eve.patch(f"/api/requests/{own}", json={"group": ""}),
                    eve.delete(f"/api/groups/{name}"),
                    browser.get("/groups"),
                )
            )
    assert told["glacier"] == told["heather"]


def _told(answer: httpx.Response, name: str) -> tuple[int, str]:
    """Return what a caller learns, without the name that was asked for and the call's id."""
    return answer.status_code, re.sub(rf"\b{name}\b", "NAME", answer.text)


def visitor(portal: LivePortal) -> httpx.Client:
    """A browser that has never been here."""
    return httpx.Client(
        base_url=portal.url, headers={"Accept": "text/html"}, follow_redirects=True, trust_env=False
    )


def _path(link: str) -> str:
    """A link without its host: the portal under test has a port of its own."""
    return link[link.index("/open") :]


def test_a_retry_is_shared_as_the_request_is_now_and_does_not_stand_beside_it(
    runtime: Runtime, ada: httpx.Client
) -> None:
    ada.put("/api/groups/forest-team", json={}).raise_for_status()
    document = {**DOCUMENT, "labels": ["a"], "group": "forest-team", "standing": 7}
    name = ada.post("/api/requests", json=document).json()["id"]
    ada.patch(f"/api/requests/{name}", json={"labels": ["b"], "group": ""}).raise_for_status()
    failed = {Phase.COLLECTION: PhaseCount(total=1, failed=1)}
    set_row(runtime, name, state=RequestState.FAILED, ended=1e9, phases=failed)
    again = ada.post(f"/api/requests/{name}/retry", json={}).json()
    assert (again["labels"], again["group"], again["standing"]) == (["b"], "", 0)
    assert RequestTable(runtime.store).standing() == [name]
