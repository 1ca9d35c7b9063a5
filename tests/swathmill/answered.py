"""Answers of a portal as a client has read them, with what matters to a test."""

from typing import Any

from swathmill.answers import RequestStatus
from tasks.answers.requests import FailureAnswer
from tasks.answers.results import ResultAnswer


def status_json(**said: Any) -> dict[str, Any]:
    """The answer about a running request of which nothing else is said."""
    plain = {
        "id": "r",
        "title": "",
        "owner": "ada@example.org",
        "state": "running",
        "paused": False,
        "submitted": "2012-01-01T00:00:00Z",
        "ended": None,
        "message": "",
        "phases": {},
        "outputs": 0,
        "delivered": 0,
        "gap_count": 0,
        "url": "/requests/r",
    }
    return {**plain, **said}


def read_status(**said: Any) -> RequestStatus:
    """Read such an answer."""
    return RequestStatus.model_validate(status_json(**said))


def read_failure(**said: Any) -> FailureAnswer:
    """A failed collection of which nothing else is said."""
    texts = ("key", "name", "output", "category", "message", "cause", "remedy", "attempts_url")
    return FailureAnswer.model_validate({"phase": "collection", **dict.fromkeys(texts, ""), **said})


def read_result(**said: Any) -> ResultAnswer:
    """A result of one byte."""
    plain = {"name": "a.tif", "size": 1, "sha256": "0", "url": "", "blob": ""}
    return ResultAnswer.model_validate({**plain, **said})
