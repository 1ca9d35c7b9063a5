"""Text of strangers: nothing of it acts, and all that people write stays."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.shown_text import in_one_line, shown, shown_in_json

ACTING = {
    "C0": "\x1b\x00\x07\x7f",
    "C1": "\x9b\x85\x80",
    "direction": "\u202a\u202e\u2066\u2069\u200e\u061c",
    "no width": "\u200b\u200d\u2060\ufeff\u00ad",
    "lines": "\u2028\u2029\x0b\x0c",
    "unassigned, private, half": "\u0378\ue000\ud800\ufffe\U000e0001",
}


@pytest.mark.parametrize("kind", ACTING)
def test_what_cannot_be_seen_is_escaped(kind: str) -> None:
    for character in ACTING[kind]:
        assert shown(f"a{character}b").isascii()
        assert shown(character).startswith("\\"), ascii(character)


@pytest.mark.parametrize(
    "text", ["Größe 5 µm", "雪 снег ثلج", "a\u00a0b\u202fc", "line\n\ttab", "🛰", ""]
)
def test_what_people_write_stays(text: str) -> None:
    assert shown(text) == text


@given(st.text())
def test_all_that_is_shown_can_be_seen(text: str) -> None:
    found = shown(text)
    for character in found:
        assert character in "\n\t" or unicodedata.category(character)[0] not in "C"
        assert unicodedata.category(character) not in ("Zl", "Zp")
    assert shown(found) == found
    assert "\n" not in in_one_line(text)


@given(
    st.recursive(st.text() | st.none(), lambda one: st.lists(one) | st.dictionaries(st.text(), one))
)
def test_json_has_the_same_values(value: object) -> None:
    text = shown_in_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(text) == value
    assert all(c == "\n" or not unicodedata.category(c).startswith("C") for c in text)
