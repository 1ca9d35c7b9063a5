"""Answers of catalogues, at their bounds."""

from unittest.mock import Mock

import httpx
import pytest

from archives.errors import AnswerBrokenError, ServerBusyError
from archives.kinds import web
from archives.kinds.web import Web

URL = "https://archive.example.org/x"


def test_an_answer_has_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_MOST", 10)
    asking = Web(Mock(), Mock())
    whole = asking._whole(httpx.Response(200, content=b"x" * 10), URL)
    assert whole.body == b"x" * 10
    with pytest.raises(AnswerBrokenError, match="sends more than 10 bytes"):
        asking._whole(httpx.Response(200, content=b"x" * 11), URL)


@pytest.mark.parametrize(("pause", "asked"), [(30.0, 3), (30.5, 1)])
def test_a_pause_that_is_too_long_is_left_to_a_later_attempt(pause: float, asked: int) -> None:
    assert web._LONGEST_PAUSE == 30.0
    waits: list[float] = []
    ask = Mock(side_effect=ServerBusyError("busy", pause))
    with pytest.raises(ServerBusyError):
        Web(Mock(), Mock(), sleep=waits.append)._again(ask)
    assert ask.call_count == asked
    assert waits == [pause] * (asked - 1)
