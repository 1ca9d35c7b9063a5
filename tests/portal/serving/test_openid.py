"""Sign in at an OpenID provider: a real code flow against a provider of the test's own."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi import FastAPI, Form
from fastapi.responses import RedirectResponse
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from portal.serving import openid
from portal.serving.identity import COOKIE
from portal.serving.openid import Claims
from portal.serving.problems import ForbiddenError
from portal.serving.tokens import Role
from tasks.settings import WrongSettingError
from tests.portal.scripted import LivePortal, client_of, live_portal, live_runtime, settings
from tests.serving import serving_app

CLIENT, CLIENT_SECRET = "swathmill", "client-secret"


@dataclass
class Provider:
    """An OpenID provider that lets everyone in whom the test names; `faults` are what it does."""

    port: int = 0
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    other: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    claims: dict[str, object] = field(default_factory=dict)
    fault: str = ""
    asked: dict[str, str] = field(default_factory=dict)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/.well-known/openid-configuration")
        def metadata() -> dict[str, object]:
            return {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "id_token_signing_alg_values_supported": ["RS256"],
            }

        @app.get("/keys")
        def keys() -> dict[str, object]:
            return dict(KeySet([self.key]).as_dict(private=False))

        @app.get("/authorize")
        def authorize(
            redirect_uri: str, state: str, nonce: str, code_challenge: str
        ) -> RedirectResponse:
            self.asked = {"nonce": nonce, "challenge": code_challenge, "state": state}
            if self.fault == "refusal":
                return RedirectResponse(f"{redirect_uri}?error=access_denied&state={state}", 303)
            return RedirectResponse(f"{redirect_uri}?code=c0de&state={state}", 303)

        @app.post("/token")
        def token(code: str = Form(), code_verifier: str = Form()) -> dict[str, object]:
            assert code == "c0de"
            assert code_verifier
            now = int(time.time())
            claims: dict[str, object] = {
                "iss": "http://elsewhere" if self.fault == "issuer" else self.issuer,
                "aud": "another" if self.fault == "audience" else CLIENT,
                "sub": "1",
                "iat": now,
                "exp": now - 1000 if self.fault == "expired" else now + 300,
                "nonce": "forged" if self.fault == "nonce" else self.asked["nonce"],
                **self.claims,
            }
            key = self.other if self.fault == "signature" else self.key
            text = jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)
            return {"access_token": "a", "token_type": "Bearer", "id_token": text}

        return app


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    made = Provider()
    with serving_app(made.app()) as url:
        made.port = int(url.rpartition(":")[2])
        yield made


@pytest.fixture
def provider(server: Provider) -> Provider:
    server.fault = ""
    server.claims = {"email": "ada@example.org", "email_verified": True, "groups": ["modis"]}
    return server


@pytest.fixture
def portal(provider: Provider) -> Iterator[LivePortal]:
    made = settings(
        oidc_issuer=provider.issuer,
        oidc_client_id=CLIENT,
        oidc_client_secret=CLIENT_SECRET,
        oidc_groups="modis, viirs",
        oidc_operators="keepers",
        portal_url="http://127.0.0.1",
    )
    with live_portal(live_runtime(), made) as running:
        yield running


def visitor(portal: LivePortal) -> httpx.Client:
    return client_of(portal.url, {"Accept": "text/html"})


def signed_in(browser: httpx.Client, then: str = "") -> httpx.Response:
    """Follow the code flow by hand: the portal's own address is the one it listens at."""
    asked = browser.get("/sign-in/provider", params={"next": then})
    assert asked.status_code == 303, asked.text
    answered = browser.get(asked.headers["location"])
    back = urlsplit(answered.headers["location"])
    assert back.netloc == "127.0.0.1"
    return browser.get(f"{back.path}?{back.query}")


def test_a_member_signs_in_and_comes_back_to_the_page(portal: LivePortal) -> None:
    with visitor(portal) as browser:
        assert "Sign in with 127.0.0.1" in browser.get("/sign-in").text
        done = signed_in(browser, "/requests/abc")
        assert (done.status_code, done.headers["location"]) == (303, "/requests/abc")
        assert "ada@example.org" in browser.get("/").text
        assert browser.get("/operations").status_code == 403


def test_groups_make_operators(portal: LivePortal, provider: Provider) -> None:
    provider.claims["groups"] = ["keepers"]
    with visitor(portal) as browser:
        signed_in(browser)
        assert browser.get("/operations").status_code == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"groups": ["others"]},
        {"groups": None},
        {"email": None},
        {"email_verified": False},
        {"email": "x" * 300},
    ],
)
def test_others_are_refused(
    portal: LivePortal, provider: Provider, claims: dict[str, object]
) -> None:
    provider.claims |= claims
    with visitor(portal) as browser:
        assert signed_in(browser).status_code == 403
        assert COOKIE not in browser.cookies


@pytest.mark.parametrize(
    "fault", ["refusal", "issuer", "audience", "expired", "nonce", "signature"]
)
def test_a_wrong_answer_signs_nobody_in(portal: LivePortal, provider: Provider, fault: str) -> None:
    provider.fault = fault
    with visitor(portal) as browser:
        refused = signed_in(browser)
        assert refused.status_code == 401
        assert "Sign in again" in refused.text
        assert COOKIE not in browser.cookies


def test_the_code_of_one_browser_is_of_no_use_in_another(portal: LivePortal) -> None:
    with visitor(portal) as one, visitor(portal) as other:
        asked = one.get("/sign-in/provider")
        answered = one.get(asked.headers["location"])
        back = urlsplit(answered.headers["location"])
        assert parse_qs(back.query)["code"] == ["c0de"]
        assert other.get(f"{back.path}?{back.query}").status_code == 401
        assert COOKIE not in other.cookies


def test_it_goes_on_to_pages_of_this_portal_alone(portal: LivePortal) -> None:
    with visitor(portal) as browser:
        assert signed_in(browser, "https://example.org/").headers["location"] == "/"


def test_a_provider_that_is_silent_is_told() -> None:
    made = settings(oidc_issuer="http://127.0.0.1:9", oidc_client_id=CLIENT)
    with live_portal(live_runtime(), made) as portal, visitor(portal) as browser:
        answer = browser.get("/sign-in/provider")
        assert (answer.status_code, "does not answer" in answer.text) == (502, True)


def test_without_a_provider_there_is_no_such_page() -> None:
    with live_portal(live_runtime(), settings()) as portal, visitor(portal) as browser:
        assert browser.get("/sign-in/provider").status_code == 404
        assert "Sign in with" not in browser.get("/sign-in").text


def test_a_provider_named_in_part_is_a_wrong_setting() -> None:
    with (
        pytest.raises(WrongSettingError, match="CLIENT_ID"),
        live_portal(live_runtime(), settings(oidc_issuer="https://example.org")),
    ):
        pass


def test_everyone_may_enter_where_no_group_is_named() -> None:
    claims = Claims.of(settings(oidc_operators="keepers"))
    assert claims.person({"email": "ada@example.org"}).role is Role.SCIENTIST
    with pytest.raises(ForbiddenError):
        claims.person({"sub": "1"})


def test_a_role_is_that_of_the_groups_and_of_the_settings_of_now(
    provider: Provider, portal: LivePortal
) -> None:
    """A session names the provider's groups; the settings say at each call what these may do."""
    provider.claims["groups"] = ["keepers", "others"]
    with visitor(portal) as browser:
        signed_in(browser)
        assert browser.get("/operations").status_code == 200
        cookie = browser.cookies[COOKIE]
    for groups, operators, status in (
        ("modis", "keepers", 200),
        ("keepers", "others", 403),  # "others" were no operators when the session began
        ("keepers", "elders", 403),
        ("", "elders", 403),
        ("modis", "elders", 401),
    ):
        made = settings(
            oidc_issuer=provider.issuer,
            oidc_client_id=CLIENT,
            oidc_groups=groups,
            oidc_operators=operators,
        )
        with live_portal(live_runtime(), made) as other, visitor(other) as browser:
            browser.cookies.set(COOKIE, cookie)
            assert browser.get("/operations").status_code == status, (groups, operators)


def test_who_is_named_without_the_operators_group_is_no_operator_anywhere(
    provider: Provider, portal: LivePortal
) -> None:
    provider.claims["groups"] = ["keepers"]
    with visitor(portal) as earlier, visitor(portal) as later:
        signed_in(earlier)
        assert earlier.get("/operations").status_code == 200
        provider.claims["groups"] = ["modis"]
        signed_in(later)
        assert later.get("/operations").status_code == 403
        assert earlier.get("/operations").status_code == 403
        assert earlier.get("/").status_code == 200


@pytest.mark.parametrize(
    ("issuer", "name"),
    [
        ("", ""),
        ("https://login.microsoftonline.com/tenant/v2.0", "Microsoft"),
        ("https://accounts.google.com", "Google"),
        ("https://id.example.org:8443/realms/mill", "id.example.org"),
    ],
)
def test_a_provider_is_called_as_people_know_it_or_by_its_host(issuer: str, name: str) -> None:
    assert openid.name_of(issuer) == name
