"""The cookies of people and of readers: kept from scripts and other sites, and for an end."""

import time

import httpx
import pytest

from portal.serving import sessions, tokens
from portal.serving.identity import COOKIE, READER_COOKIE
from portal.serving.tokens import Use
from tasks.accounts import reader_links, session_table
from tasks.accounts.token_table import Scope, make_token
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tests.portal.scripted import SECRET, LivePortal, live_portal, live_runtime, settings
from tests.portal.submissions import submitted


def cookies_of(answer: httpx.Response, name: str) -> list[str]:
    """The headers that set a cookie of this name."""
    headers = answer.headers.get_list("set-cookie")
    return [header for header in headers if header.startswith(f"{name}=")]


@pytest.mark.parametrize("portal_url", ["http://127.0.0.1", "https://portal.example.org"])
def test_a_session_is_kept_from_scripts_other_sites_and_plain_http(portal_url: str) -> None:
    made = live_portal(memory_runtime(), settings(portal_url=portal_url))
    with made as portal, portal.visitor() as client:
        client.follow_redirects = False
        answer = client.get(portal.link())
    (cookie,) = cookies_of(answer, COOKIE)
    assert ("Strict-Transport-Security" in answer.headers) == portal_url.startswith("https://")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert f"Max-Age={tokens.LIFETIMES[Use.SESSION]}" in cookie
    assert ("Secure" in cookie) == portal_url.startswith("https://")


@pytest.mark.parametrize("portal_url", ["http://127.0.0.1", "https://portal.example.org"])
def test_a_reader_s_cookie_is_kept_from_plain_http(portal_url: str) -> None:
    runtime = memory_runtime()
    name = submitted(runtime)
    link = reader_links.address("", SECRET, reader_links.key(name, 0), runtime.clock.now() + 60)
    made = live_portal(runtime, settings(portal_url=portal_url))
    with made as portal, portal.visitor() as client:
        client.follow_redirects = False
        found = cookies_of(client.get(link), READER_COOKIE)
    assert len(found) == 2
    assert [("Secure" in one) for one in found] == [portal_url.startswith("https://")] * 2


@pytest.mark.parametrize(
    ("origin", "taken"),
    [("https://portal.example.org", True), ("https://other.example.org", False)],
)
def test_a_form_is_taken_from_the_address_that_a_proxy_shows(origin: str, taken: bool) -> None:
    made = live_portal(memory_runtime(), settings(portal_url="https://portal.example.org"))
    with made as portal, portal.browser() as client:
        # The proxy calls the portal by an address that no browser has seen.
        answer = client.post("/sign-out", headers={"Origin": origin})
    assert (answer.status_code == 403) != taken


def copied(portal: LivePortal, client: httpx.Client) -> httpx.Client:
    """Another browser with the same cookie."""
    other = portal.visitor()
    other.cookies.update(client.cookies)
    return other


def is_in(client: httpx.Client) -> bool:
    return client.get("/tokens").status_code == 200


def test_two_sign_ins_of_one_second_are_two_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    second = time.time()
    monkeypatch.setattr(time, "time", lambda: second)
    with (
        live_portal(live_runtime(), settings()) as portal,
        portal.browser() as client,
        portal.browser() as other,
    ):
        assert client.cookies[COOKIE] != other.cookies[COOKIE]
        assert client.post("/sign-out").status_code == 200
        assert not is_in(client)
        assert is_in(other)


@pytest.mark.parametrize("use", [Use.SESSION, Use.PROVIDED])
def test_a_session_of_the_build_before_is_good(use: Use) -> None:
    """It holds no number of its own."""
    of_before = tokens._serializer(SECRET, use).dumps(["ada@example.org", "scientist"])
    found = tokens.read(SECRET, of_before, use=use)
    assert found is not None
    assert found.owner == "ada@example.org"
    assert tokens.read(SECRET, tokens.issue(SECRET, "ada@example.org", use=use), use=use) == found


def test_signing_out_ends_the_session_wherever_its_cookie_is() -> None:
    with (
        live_portal(live_runtime(), settings()) as portal,
        portal.browser() as client,
        copied(portal, client) as other,
        portal.browser("bob@example.org") as bob,
    ):
        assert is_in(client)
        assert is_in(other)
        assert client.post("/sign-out").status_code == 200
        assert not is_in(other)
        assert is_in(bob)


def test_other_sessions_of_a_person_outlive_one_that_was_signed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with live_portal(live_runtime(), settings()) as portal, portal.browser() as here:
        began = time.time()
        monkeypatch.setattr("time.time", lambda: began - 5)
        with portal.browser() as there:
            monkeypatch.undo()
            here.post("/sign-out")
            assert not is_in(here)
            assert is_in(there)


def test_an_operator_ends_all_that_a_person_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions, links that were not opened, and tokens; the audit says who did."""
    monkeypatch.setattr(sessions, "FRESH", 0.0)
    runtime = live_runtime()
    with live_portal(runtime, settings()) as portal, portal.browser() as client:
        link = portal.link()
        text, _ = make_token(
            runtime.store, owner="ada@example.org", role="scientist", scope=Scope.READ, name="x",
            now=runtime.clock.now(), days=1,
        )  # fmt: skip
        bearer = {"Authorization": f"Bearer {text}"}
        assert is_in(client)
        with portal.guest() as program:
            assert program.get("/api/requests", headers=bearer).status_code == 200
            body = {"action": "end sessions of owner", "subject": "ada@example.org"}
            with portal.client("root", "operator") as root:
                asked = root.get("/operations/act", params=body).text
                assert "signed out in all browsers" in asked
                done = root.post("/api/operations/actions", json={**body, "reason": "left"})
            assert done.json()["result"] == "signed out in all browsers; 1 tokens revoked"
            assert not is_in(client)
            assert program.get("/api/requests", headers=bearer).status_code == 401
        with portal.visitor() as other:
            assert "incomplete or has expired" in other.get(link).text


def test_an_operator_who_is_none_any_more_loses_the_role_at_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In browsers, by links that were not opened, and by signed and stored tokens."""
    began = time.time()
    monkeypatch.setattr("time.time", lambda: began - 5)
    runtime = live_runtime()
    with live_portal(runtime, settings()) as portal, portal.browser("eve", "operator") as browser:
        link = portal.link("eve", "operator")
        text, _ = make_token(
            runtime.store, owner="eve", role="operator", scope=Scope.READ, name="x",
            now=began - 5, days=1,
        )  # fmt: skip
        stored = {"Authorization": f"Bearer {text}"}
        with (
            portal.client("eve", "operator") as program,
            portal.guest() as script,
            portal.client("root", "operator") as root,
            portal.visitor() as other,
        ):
            monkeypatch.undo()

            def statuses() -> list[int]:
                path = "/api/operations/actions"
                answers = (browser.get(path), program.get(path), script.get(path, headers=stored))
                return [one.status_code for one in answers]

            assert statuses() == [200] * 3
            body = {"action": "end operator rights of owner", "subject": "eve"}
            assert "is no operator any more" in root.get("/operations/act", params=body).text
            done = root.post("/api/operations/actions", json={**body, "reason": "moved on"})
            assert done.json()["result"] == "no operator any more"
            assert statuses() == [403] * 3
            assert is_in(browser)
            monkeypatch.setattr("time.time", lambda: began + 5)
            assert other.get(link).status_code == 200
            assert other.get("/operations/actions").status_code == 403
            assert root.get("/api/operations/actions").status_code == 200
        with portal.browser("eve", "operator") as anew:
            assert anew.get("/operations/actions").status_code == 200


def test_what_has_ended_is_read_anew_after_two_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    runtime = live_runtime()
    known = sessions.Sessions(runtime.store)
    assert not known.has_ended("ada", "token", 5.0)
    session_table.end_all(runtime.store, runtime.clock, "ada")
    now[0] += sessions.FRESH - 0.1
    assert known.is_known("ada")
    assert not known.has_ended("ada", "token", 5.0)
    now[0] += 0.2
    assert not known.is_known("ada")
    assert known.has_ended("ada", "token", 5.0)
    assert not known.has_ended("ada", "token", runtime.clock.now() + 1)


def test_a_row_of_ended_sessions_has_a_bounded_size() -> None:
    clock = ManualClock()
    store = live_runtime().store
    clock.sleep(10.0)
    for number in range(session_table.MOST):
        session_table.end_one(store, clock, "ada", f"token {number}")
    row = session_table.ended(store, "ada")
    assert (len(row.singly), row.before) == (session_table.MOST, 0.0)
    session_table.end_one(store, clock, "ada", "one more")
    row = session_table.ended(store, "ada")
    assert (row.singly, row.before) == ((), clock.now())  # all of them
    session_table.end_one(store, clock, "bob", "old")
    clock.sleep(session_table.LONGEST + 1)
    session_table.end_one(store, clock, "bob", "new")
    assert len(session_table.ended(store, "bob").singly) == 1


def test_what_was_signed_in_the_second_of_the_end_has_ended() -> None:
    """A cookie has whole seconds, and so has the end; what is signed afterwards is good."""
    runtime = memory_runtime(ManualClock(1000.0))
    session_table.end_all(runtime.store, runtime.clock, "ada")
    row = session_table.ended(runtime.store, "ada")
    found = {signed: row.ends("token", signed) for signed in (999.0, 1000.0, 1001.0)}
    assert found == {999.0: True, 1000.0: True, 1001.0: False}
