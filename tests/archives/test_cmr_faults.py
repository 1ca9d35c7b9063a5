"""Searches of the CMR that go wrong, and what is asked again."""

from collections.abc import Callable, Iterator

import pytest

from archives import errors
from tasks.bag.categories import Category
from tasks.service.classify import classify
from tests.archives.catalogues import HASTY, QUICK, Cmr
from tests.archives.cmr_searches import MODERN, archive, found, swaths
from tests.archives.servers import (
    Act,
    FileServer,
    body,
    file_server,
    nonsense,
    redirect,
    silence,
    status,
)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


FAULTS: list[tuple[Act, type[errors.ArchiveError], Category]] = [
    (status(401, b"{}"), errors.TokenRefusedError, Category.CREDENTIALS_REFUSED),
    (status(403, b"no"), errors.NotPermittedError, Category.CREDENTIALS_REFUSED),
    (
        status(403, b'{"error_description": "EULA Acceptance Failure"}'),
        errors.LicenceNotAcceptedError,
        Category.CREDENTIALS_REFUSED,
    ),
    (status(404), errors.NotPublishedError, Category.SOURCE_NOT_PUBLISHED),
    (status(429, Retry_After="3600"), errors.ServerBusyError, Category.SERVER_BUSY),
    (status(503, Retry_After="3600"), errors.ServerBusyError, Category.SERVER_BUSY),
    (
        status(400, b'{"errors": ["Parameter [foo] was not recognized."]}'),
        errors.DownloadFailedError,
        Category.DOWNLOAD_FAILED,
    ),
    (nonsense, errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
    (silence, errors.ArchiveTimeoutError, Category.OPERATION_TIMEOUT),
    (body(b'{"items": [', length=500), errors.ConnectionFailedError, Category.CONNECTION_FAILURE),
    (body(b"<html>maintenance</html>"), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
    (body(b'{"hits": 1}'), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
    (body(b'{"items": [{"meta": {}}]}'), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
    (
        body(b'{"items": []}', CMR_Timed_Out="true"),
        errors.ArchiveTimeoutError,
        Category.OPERATION_TIMEOUT,
    ),
    (
        body(b'{"items": []}', CMR_Hits="many"),
        errors.AnswerBrokenError,
        Category.TRANSPORT_ERROR,
    ),
    (body(b"[" * 100_000), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
    (redirect("http://[bad"), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
    (redirect("/oauth/authorize?x=1"), errors.TokenRefusedError, Category.CREDENTIALS_REFUSED),
]


@pytest.mark.parametrize(("act", "kind", "category"), FAULTS)
def test_each_fault_of_a_search_has_its_own_error(
    server: FileServer, act: Act, kind: type[errors.ArchiveError], category: Category
) -> None:
    cmr = Cmr(collections=[MODERN], granules=swaths(8), faults=dict.fromkeys((2, 3, 4), act))
    with pytest.raises(errors.ArchiveError) as caught:
        found(archive(cmr, server, timing=HASTY if act is silence else QUICK))
    assert type(caught.value) is kind
    assert classify(caught.value).category is category
    if kind is errors.ServerBusyError:
        assert classify(caught.value).asked == 3600.0


@pytest.mark.parametrize("act", [status(503, Retry_After="7"), status(429), silence, nonsense])
def test_what_passes_is_asked_again(server: FileServer, act: Act) -> None:
    waits: list[float] = []
    cmr = Cmr(collections=[MODERN], granules=swaths(8), faults={2: act})
    timing = HASTY if act is silence else QUICK
    assert len(found(archive(cmr, server, waits, timing=timing))) == 8
    assert len(waits) == 1


def test_a_pause_that_is_asked_for_is_kept(server: FileServer) -> None:
    waits: list[float] = []
    cmr = Cmr(collections=[MODERN], granules=swaths(1), faults={1: status(503, Retry_After="7")})
    found(archive(cmr, server, waits))
    assert waits == [7.0]


def repeating(cmr: Cmr) -> Act:
    return lambda request: cmr.answer(request, 0, 8)


def shrinking(cmr: Cmr) -> Act:
    """The second page is empty though there is more."""
    return lambda request: cmr.answer(request, 8, 8)


def going_back(cmr: Cmr) -> Act:
    """The third page is the first again."""
    return lambda request: cmr.answer(request, 0, 8)


@pytest.mark.parametrize(
    ("number", "fault", "said"),
    [(2, repeating, "repeat"), (2, shrinking, "shrank"), (3, going_back, "repeat")],
)
def test_pages_that_repeat_or_shrink_are_noticed(
    server: FileServer, number: int, fault: Callable[[Cmr], Act], said: str
) -> None:
    cmr = Cmr(collections=[MODERN], granules=swaths(8))
    cmr.faults[number] = fault(cmr)
    with pytest.raises(errors.AnswerBrokenError, match=said) as caught:
        found(archive(cmr, server))
    assert classify(caught.value).category is Category.TRANSPORT_ERROR
