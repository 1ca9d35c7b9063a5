"""A request whose rehearsal failed: its page says why, and has three ways on."""

from dataclasses import replace

from tasks.bag.model import RequestOrder, RequestState
from tasks.bag.runtime import Runtime
from tasks.operators import audit
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import Rehearsal
from tests.portal.scripted import LivePortal
from tests.portal.submissions import DOCUMENT
from tests.tasks.package_files import upload_of

ADA, BEN = "ada@example.org", "ben@example.org"
OPERATOR = ("op@example.org", "operator")


def held(runtime: Runtime, rehearsal: Rehearsal = Rehearsal.RUNS) -> str:
    """A request that waits because its package failed."""
    document = parse_request({**DOCUMENT, "reduction": {"package": "own"}})
    request = request_operations.submit(runtime, ADA, document)
    request_operations.change_request(
        runtime,
        request,
        lambda row: replace(
            row,
            state=RequestState.HELD,
            rehearsal=rehearsal,
            message="the rehearsal failed: no module named scipyx",
        ),
    )
    return request


def push(portal: LivePortal, version: str) -> None:
    with portal.client() as client:
        assert client.post("/api/packages", content=upload_of(version=version)).status_code == 201


def test_the_page_has_three_ways_on(portal: LivePortal, runtime: Runtime) -> None:
    request = held(runtime)
    with portal.browser() as browser:
        page = browser.get(f"/requests/{request}").text
        assert "no module named scipyx" in page
        for words in ("Mended: go on", "Go on anyway", "Give up"):
            assert words in page
        assert f'href="/requests/{request}/runs">The log of the rehearsal' in page
    with portal.client() as client:
        assert client.post(f"/api/requests/{request}/retry").status_code == 409


def test_mended_a_new_request_takes_its_place_once(portal: LivePortal, runtime: Runtime) -> None:
    request = held(runtime)
    with portal.client() as client:
        refused = client.post(f"/api/requests/{request}/mended")
        assert refused.status_code == 422, "the package is not there any more"
        assert request_operations.load(runtime, request).order is None
    push(portal, "2")
    with portal.browser() as browser:
        page = browser.post(f"/requests/{request}/mended")
        made = page.url.path.rpartition("/")[2]
    assert made != request
    new = request_operations.load(runtime, made)
    assert (new.owner, new.retry_of, new.state) == (ADA, request, RequestState.SUBMITTED)
    old = request_operations.load(runtime, request)
    assert old.order is RequestOrder.CANCEL or old.state in (
        RequestState.CANCELLING,
        RequestState.CANCELLED,
    )
    with portal.client() as client:
        assert client.post(f"/api/requests/{request}/mended").status_code == 409
    assert [*audit.entries(runtime.store)] == []
    theirs = held(runtime)
    with portal.browser(*OPERATOR) as browser:
        browser.post(f"/requests/{theirs}/mended")
    (entry,) = audit.entries(runtime.store)
    assert (entry.who, entry.action) == (OPERATOR[0], "mend request")
    assert entry.subject.startswith(theirs)


def test_only_a_failed_rehearsal_can_be_mended_and_only_by_its_owner(
    portal: LivePortal, runtime: Runtime
) -> None:
    push(portal, "1")
    dear = held(runtime, Rehearsal.DUE)
    failed = held(runtime)
    with portal.client() as client:
        assert client.post(f"/api/requests/{dear}/mended").status_code == 409
    with portal.browser() as browser:
        assert "Mended" not in browser.get(f"/requests/{dear}").text
    with portal.client(BEN) as client:
        assert client.post(f"/api/requests/{failed}/mended").status_code == 404
