"""The cookies of people and of readers: kept from scripts and other sites, and for an end."""

import httpx
import pytest

from portal.core import tokens
from portal.core.identity import COOKIE, READER_COOKIE
from portal.core.tokens import Use
from tasks.run import reader_links
from tasks.tables.runtime import memory_runtime
from tests.portal.scripted import SECRET, live_portal, settings
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
        (cookie,) = cookies_of(client.get(portal.link()), COOKIE)
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
