"""Tokens say who someone is, for one use only, and cannot be forged."""

import time
from urllib.parse import unquote

import pytest

from portal.serving import tokens
from portal.serving.tokens import Person, Role, Use

SECRET = "k" * 40


def test_a_token_names_its_bearer() -> None:
    token = tokens.issue(SECRET, "ada@example.org", "operator")
    assert tokens.read(SECRET, token) == Person(owner="ada@example.org", role=Role.OPERATOR)


def test_a_sign_in_link_names_its_bearer() -> None:
    link = tokens.sign_in_link("https://portal.example.org/", SECRET, "ada", "operator")
    address, _, token = link.partition("?token=")
    assert address == "https://portal.example.org/sign-in"
    person = tokens.read(SECRET, unquote(token), use=Use.LINK)
    assert person == Person(owner="ada", role=Role.OPERATOR)


def test_a_token_is_for_one_use() -> None:
    link = tokens.issue(SECRET, "ada", use=Use.LINK)
    assert tokens.read(SECRET, link, use=Use.LINK) is not None
    assert tokens.read(SECRET, link, use=Use.API) is None
    assert tokens.read(SECRET, link, use=Use.SESSION) is None


def test_another_secret_or_a_changed_token_is_refused() -> None:
    token = tokens.issue(SECRET, "ada")
    assert tokens.read("j" * 40, token) is None
    middle = len(token) // 2
    changed = token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]
    assert tokens.read(SECRET, changed) is None
    assert tokens.read(SECRET, "") is None


def test_an_old_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    token = tokens.issue(SECRET, "ada", use=Use.LINK)
    monkeypatch.setitem(tokens.LIFETIMES, Use.LINK, -1)
    assert tokens.read(SECRET, token, use=Use.LINK) is None


def test_a_token_that_was_good_is_refused_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token, signed = tokens.issue(SECRET, "ada"), int(time.time())
    assert tokens.read(SECRET, token) is not None
    lifetime = tokens.LIFETIMES[Use.API]
    for now, good in ((signed + lifetime - 1, True), (signed + lifetime + 2, False)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert (tokens.read(SECRET, token) is not None) is good
    monkeypatch.setattr(time, "time", lambda: signed - 5)
    assert tokens.read(SECRET, token) is None, "signed in the future"


def test_the_longest_name_makes_a_token_and_longer_texts_are_not_kept() -> None:
    owner = "\N{GRINNING FACE}" * tokens.LONGEST_OWNER
    found = tokens.read(SECRET, tokens.issue(SECRET, owner))
    assert found == Person(owner=owner, role=Role.SCIENTIST)
    kept = tokens._signed.cache_info().currsize
    assert tokens.read(SECRET, "x" * 100_000) is None
    assert tokens._signed.cache_info().currsize == kept


@pytest.mark.parametrize(
    ("secret", "owner", "role"), [("short", "ada", "scientist"), (SECRET, "", "scientist")]
)
def test_what_cannot_be_signed_is_refused(secret: str, owner: str, role: str) -> None:
    with pytest.raises(ValueError, match="characters"):
        tokens.issue(secret, owner, role)


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(ValueError, match="wizard"):
        tokens.issue(SECRET, "ada", "wizard")


def test_only_operators_see_what_others_own() -> None:
    scientist = Person(owner="ada", role=Role.SCIENTIST)
    assert scientist.may_see("ada")
    assert not scientist.may_see("bob")
    assert Person(owner="ada", role=Role.OPERATOR).may_see("bob")


def test_a_token_has_so_many_characters_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    text = tokens.issue("s" * 40, "ada")
    monkeypatch.setattr(tokens, "_LONGEST", len(text))
    assert tokens.read_signed("s" * 40, text, use=tokens.Use.API) is not None
    monkeypatch.setattr(tokens, "_LONGEST", len(text) - 1)
    assert tokens.read_signed("s" * 40, text, use=tokens.Use.API) is None
