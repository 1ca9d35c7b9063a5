"""What the portal knows of the archive, and that it never refuses by an old list or by none."""

from collections.abc import Iterator
from html import unescape

import pytest

from archives.kinds.coverage import Coverage
from modis.collection import Collection
from portal.submit import known_holdings as portal_holdings
from portal.submit.known_holdings import KnownHoldings
from service_manager.storage.holdings import Teller
from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError
from tasks.holdings import holdings
from tasks.request.document import parse_request
from tasks.request.resolved import resolve
from tasks.service.memory_runtime import memory_runtime
from tests.portal.archive import FIRST, NOTE, StillArchive, inline, layers_of, telling
from tests.portal.scripted import live_portal, live_runtime, settings
from tests.portal.submissions import DOCUMENT, FORM
from tests.waiting import until

STRANGE = resolve(
    parse_request(
        {**DOCUMENT, "products": [{"name": "NOTHERE", "collection": "1", "layers": ["a"]}]}
    )
)


@pytest.fixture
def archive() -> StillArchive:
    return StillArchive()


@pytest.fixture
def runtime(archive: StillArchive, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """Services with a manager that answers, if late, which has told once."""
    monkeypatch.setattr(portal_holdings, "PATIENCE", 60.0)
    live = live_runtime()
    with telling(live, archive):
        until(lambda: holdings.read(live.store)[0] is not None, 20, "the manager has told")
        yield live


def test_a_granule_that_has_just_come_is_known(runtime: Runtime, archive: StillArchive) -> None:
    known = KnownHoldings(runtime)
    with pytest.raises(RequestRefusedError):
        known.check(STRANGE)
    assert archive.held is not None
    archive.held.append(
        Coverage(
            product="NOTHERE", collection=Collection("1"), granules=1, days=(FIRST,), anywhere=True
        )
    )
    known.check(STRANGE)  # although what was read a moment ago does not have it


def test_a_folder_that_is_gone_is_why_a_request_is_refused(
    runtime: Runtime, archive: StillArchive
) -> None:
    """It was accepted, and refused a second later: "The archive has: nothing at all."."""
    archive.held, archive.gone = [], ("/data/archive",)
    with live_portal(runtime, settings()) as portal, portal.client() as client:
        until(lambda: bool(absent(runtime)), 20, "the manager has seen it")
        answer = client.post("/api/requests", json=DOCUMENT)
        with portal.browser("op@example.org", "operator") as operator:
            page = operator.get("/operations").text
    assert answer.status_code == 422
    assert "the archive's folder /data/archive is not there" in answer.text
    assert "SWATHMILL_ARCHIVE" in answer.text
    assert "/data/archive" in page


def absent(runtime: Runtime) -> tuple[str, ...]:
    found, _ = holdings.read(runtime.store)
    return found.absent if found is not None else ()


def test_nothing_is_refused_while_no_manager_has_told_anything() -> None:
    KnownHoldings(memory_runtime()).check(STRANGE)


def test_nothing_is_refused_of_an_archive_that_cannot_list_itself(
    runtime: Runtime, archive: StillArchive
) -> None:
    known = KnownHoldings(runtime)
    known.known()
    archive.held = None
    known.check(STRANGE)
    assert known.known() is None


def test_nothing_is_refused_when_the_manager_has_gone(
    archive: StillArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portal_holdings, "PATIENCE", 0.5)
    runtime = memory_runtime()
    Teller(runtime, archive, layers_of, inline).tick()
    assert holdings.read(runtime.store)[0] is not None
    KnownHoldings(runtime).check(STRANGE)


def test_the_counts_of_a_request_say_what_was_not_understood(runtime: Runtime) -> None:
    with live_portal(runtime, settings()) as portal, portal.client() as client:
        name = client.post("/api/requests", json=DOCUMENT).json()["id"]
        notes = client.get(f"/api/requests/{name}/preview").json()["notes"]
    assert f"MCD15A2 Lai_1km: {NOTE}." in notes


def test_the_form_says_what_granules_state_and_was_not_understood(runtime: Runtime) -> None:
    with live_portal(runtime, settings()) as portal, portal.client() as client:
        said = client.post("/new/check", data=FORM).text
    assert f"MCD15A2 Lai_1km: {NOTE}" in unescape(said)
