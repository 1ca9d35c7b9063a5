"""Tokens that people make: shown once, stored as digests, with a scope and an end, revocable."""

import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from portal.accounts import token_pages
from swathmill.cli import application
from tasks.accounts import token_table
from tasks.accounts.token_table import (
    MARK,
    TABLE,
    Scope,
    TokenRow,
    TokenTable,
    digest_of,
    make_token,
)
from tasks.bag.runtime import Runtime
from tasks.service.connect import connect_storage
from tasks.storage.clock import ManualClock
from tests.portal.scripted import LivePortal, client_of, live_portal, live_runtime, settings
from tests.portal.submissions import submitted


def bearer(portal: LivePortal, token: str) -> httpx.Client:
    return client_of(portal.url, {"Authorization": f"Bearer {token}"})


def made(portal: LivePortal, scope: str = "read", owner: str = "ada@example.org") -> str:
    with portal.browser(owner) as browser:
        page = browser.post("/tokens", data={"name": "notebook", "scope": scope, "days": "5"})
        assert page.headers["cache-control"] == "no-store"
        shown = re.search(rf'value="({MARK}[^"]+)"', page.text)
        assert shown
        assert shown[1] not in browser.get("/tokens").text
        return shown[1]


def test_the_page_shows_a_token_once_and_storage_holds_its_digest(portal: LivePortal) -> None:
    token = made(portal)
    rows = list(portal.runtime.store.scan(TABLE, "tokens", "", "\uffff"))
    assert [row.row for row in rows] == [f"t|{digest_of(token)}"]
    assert token not in str(rows)
    with bearer(portal, token) as program:
        assert program.get("/api/requests").status_code == 200


def test_a_token_acts_for_who_made_it_alone(portal: LivePortal) -> None:
    names = {owner: submitted(portal.runtime, owner) for owner in ("ada@example.org", "bob")}
    for owner, name in names.items():
        with bearer(portal, made(portal, owner=owner)) as program:
            assert [one["id"] for one in program.get("/api/requests").json()] == [name]


def test_a_token_that_reads_changes_nothing(portal: LivePortal) -> None:
    with bearer(portal, made(portal)) as program:
        refused = program.post("/api/requests?dry_run=true", json={})
        assert refused.status_code == 403
        assert "only reads" in refused.json()["detail"]
    with bearer(portal, made(portal, "write")) as program:
        assert program.post("/api/requests?dry_run=true", json={}).status_code == 422


def test_a_revoked_token_is_refused_at_once(portal: LivePortal) -> None:
    token = made(portal)
    with portal.browser() as browser, bearer(portal, token) as program:
        (known,) = browser.get("/api/tokens", headers={"Accept": "application/json"}).json()
        assert browser.post(f"/tokens/{known['id']}/revoke").status_code == 200
        assert program.get("/api/requests").status_code == 401


def test_nobody_revokes_or_sees_anothers_token(portal: LivePortal) -> None:
    token = made(portal)
    (row,) = TokenTable(portal.runtime.store).of("ada@example.org")
    for role in ("scientist", "operator"):
        with portal.client("eve@example.org", role) as eve:
            assert eve.get("/api/tokens").json() == []
            assert eve.delete(f"/api/tokens/{row.id}").status_code == 404
    with bearer(portal, token) as program:
        assert program.get("/api/requests").status_code == 200


def test_a_program_cannot_make_or_see_tokens(portal: LivePortal) -> None:
    with bearer(portal, made(portal, "write")) as program:
        assert program.post("/api/tokens", json={"name": "another"}).status_code == 403
        assert program.get("/api/tokens").status_code == 403
        assert program.get("/tokens").status_code == 403


def test_a_token_of_a_scientist_is_no_operators(portal: LivePortal) -> None:
    with bearer(portal, made(portal, "write")) as program:
        assert program.get("/api/operations").status_code == 403


def test_a_token_of_an_operator_acts_as_a_scientist(portal: LivePortal) -> None:
    with portal.client("ada@example.org", "operator") as ada:
        shown = ada.post("/api/tokens", json={"name": "mine", "scope": "write"}).json()
    assert shown["about"]["role"] == "scientist"
    with bearer(portal, shown["token"]) as program:
        assert program.get("/api/requests").status_code == 200
        assert program.get("/api/operations").status_code == 403


def test_a_person_has_so_many_tokens_at_most(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_table, "MOST_TOKENS", 2)
    made(portal, owner="ben@example.org")
    made(portal)
    made(portal)
    with portal.client("ada@example.org") as ada:
        refused = ada.post("/api/tokens", json={"name": "third"})
        assert refused.status_code == 409
        assert "You have 2 tokens" in refused.json()["detail"]
        (first, _) = ada.get("/api/tokens").json()
        ada.delete(f"/api/tokens/{first['id']}")
        assert ada.post("/api/tokens", json={"name": "third"}).status_code == 201


def test_all_tokens_are_revoked_though_another_process_deletes_some_meanwhile(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [made(portal), made(portal)]
    table, other = (TokenTable(portal.runtime.store) for _ in range(2))
    of = TokenTable.of

    def looked_at_before_the_other(table: TokenTable, owner: str) -> list[TokenRow]:
        found = of(table, owner)
        monkeypatch.setattr(TokenTable, "of", of)
        assert other.revoke(owner, found[0].id)
        return found

    monkeypatch.setattr(TokenTable, "of", looked_at_before_the_other)
    table.revoke_all("ada@example.org")
    assert [table.find(text, portal.runtime.clock.now()) for text in texts] == [None, None]


def test_expired_tokens_are_deleted_when_one_is_made() -> None:
    store = live_runtime().store

    def make(owner: str, now: float) -> None:
        make_token(store, owner=owner, role="scientist", scope=Scope.READ, name="x", now=now,
                   days=1)  # fmt: skip

    make("ada", 0.0)
    make("ben", 10.0)
    make("ada", 86_401.0)
    assert [len(TokenTable(store).of(owner)) for owner in ("ada", "ben")] == [1, 1]
    make("eve", 86_410.0)
    assert TokenTable(store).of("ben") == []


def test_a_token_ends() -> None:
    clock = ManualClock()
    runtime: Runtime = replace(live_runtime(), clock=clock)
    text, _ = make_token(
        runtime.store, owner="ada", role="scientist", scope=Scope.READ, name="x",
        now=clock.now(), days=1,
    )  # fmt: skip
    with live_portal(runtime, settings()) as portal, bearer(portal, text) as program:
        assert program.get("/api/requests").status_code == 200
        clock.sleep(86_401)
        assert program.get("/api/requests").status_code == 401


@pytest.mark.parametrize("text", [MARK, MARK + "x" * 43, MARK + "/" * 43, MARK + "é"])
def test_an_invented_token_is_refused(portal: LivePortal, text: str) -> None:
    with portal.guest() as program:
        headers = {b"Authorization": f"Bearer {text}".encode()}
        assert program.get("/api/requests", headers=headers).status_code == 401


def test_the_command_makes_tokens_and_revokes_all_of_one_person(tmp_path: Path) -> None:
    storage = f"file:{tmp_path / 'storage'}"
    store = connect_storage(storage).store

    def run(*words: str) -> str:
        command = ["sign-in", *words, "--data", str(tmp_path / "data")]
        result = CliRunner().invoke(
            application(["sign-in"]), command, env={"SWATHMILL_STORAGE": storage}
        )
        assert result.exit_code == 0, result.output
        return result.output.strip()

    ada, other, ben = run("ada", "--token"), run("ada", "--token"), run("ben", "--token")
    table = TokenTable(store)
    assert all(table.find(text, 0.0) for text in (ada, other, ben))
    assert run("ada", "--revoke") == "Sessions ended. Tokens revoked: 2"
    assert [bool(table.find(text, 0.0)) for text in (ada, other, ben)] == [False, False, True]


def test_a_token_is_good_for_so_many_days_at_most(portal: LivePortal, tmp_path: Path) -> None:
    assert token_table.MOST_DAYS == 730
    with portal.browser() as browser:
        for days, status in (("730", 200), ("731", 422)):
            said = {"name": "notebook", "scope": "read", "days": days}
            assert browser.post("/tokens", data=said).status_code == status
            named = {"name": "n" * token_pages.LONGEST_NAME, "days": int(days)}
            made = browser.post("/api/tokens", json=named)
            assert made.status_code == (201 if status == 200 else 422), made.text
        longer = {"name": "n" * (token_pages.LONGEST_NAME + 1)}
        assert browser.post("/api/tokens", json=longer).status_code == 422
        assert browser.post("/tokens", data={**longer, "days": "5"}).status_code == 422
    command = ["sign-in", "ada", "--token", "--days", "731", "--data", str(tmp_path)]
    result = CliRunner().invoke(application(["sign-in"]), command)
    assert result.exit_code == 2
    assert "730" in result.output
