"""Pauses that an archive asks for, at their bound."""

import pytest

from archives.errors import ServerBusyError
from archives.fetch import answers
from archives.fetch.answers import answer_error, retry_after


@pytest.mark.parametrize(
    ("asked", "meant", "words"),
    [
        ("86399", 86_399.0, "24 h of pause"),
        ("86400", 86_400.0, "a day or more of pause"),
        ("86401", 86_400.0, "a day or more of pause"),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0, "a day or more of pause"),
        ("1e300", 86_400.0, "a day or more of pause"),
        ("-5", 0.0, "asks for"),
    ],
)
def test_no_pause_is_longer_than_a_day(asked: str, meant: float, words: str) -> None:
    assert answers._LONGEST == 86_400.0
    assert retry_after(asked, 0.0) == meant
    said = answer_error(429, "https://archive.example.org/x", {"retry-after": asked}, "", now=0.0)
    assert isinstance(said, ServerBusyError)
    assert said.retry_after == meant
    assert words in str(said)
