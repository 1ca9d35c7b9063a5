"""What one caller may cost: calls, links asked for, large answers; and who a caller is."""

import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI, Request
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from portal.http_server import Limits
from portal.serving import caller_limits
from portal.serving.caller_limits import ASKED, BURST, HOUR, CallerLimits, Rates, address_of
from portal.serving.problems import PROBLEM_JSON, TooManyError
from tasks.settings import Settings
from tests.portal.scripted import (
    LivePortal,
    client_of,
    live_portal,
    live_runtime,
    put_result,
    settings,
)
from tests.portal.submissions import submitted
from tests.serving import serving_app
from tests.waiting import until


class Watch:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_so_many_at_once_and_so_many_more_in_each_time() -> None:
    watch = Watch()
    rates = Rates(4, 2.0, watch)
    assert [rates.take("a") for _ in range(5)] == [0.0] * 4 + [0.5]
    assert rates.take("b") == 0.0
    watch.now += 0.49
    assert 0.0 < rates.take("a") < 0.02
    watch.now += 0.01
    assert [rates.take("a"), rates.take("a")] == [0.0, pytest.approx(0.5)]
    watch.now += 100.0
    assert [rates.take("a") for _ in range(5)] == [0.0] * 4 + [pytest.approx(0.5)]


@given(st.lists(st.floats(0.0, 3.0), max_size=40))
def test_no_time_has_more_than_its_amount(pauses: list[float]) -> None:
    """In any time of t seconds at most burst + t / seconds * burst are taken."""
    watch = Watch()
    rates = Rates(5, 2.0, watch)
    taken = []
    for pause in pauses:
        watch.now += pause
        while not rates.take("a"):
            taken.append(watch.now)
    for first, began in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= 5 + (taken[last] - began) / 2.0 * 5 + 1e-6


def test_what_is_used_beyond_the_amount_is_waited_for() -> None:
    watch = Watch()
    rates = Rates(100, 10.0, watch)
    assert rates.wait("a") == 0.0
    rates.use("a", 250)
    assert rates.wait("a") == pytest.approx(15.0)
    watch.now += 15.01
    assert rates.wait("a") == 0.0


def test_callers_are_forgotten_and_no_limit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    rates = Rates(4, 2.0, watch)
    for number in range(50):
        rates.take(str(number))
    watch.now += 0.6
    rates.take("later")
    assert len(rates) == 1
    monkeypatch.setattr(caller_limits, "_MOST", 10)
    for number in range(50):
        rates.take(str(number))
    assert len(rates) == 10
    none = Rates(0, 2.0, watch)
    assert {none.take("a") for _ in range(100)} == {0.0}
    assert {rates.take("") for _ in range(100)} == {0.0}
    assert (len(none), rates.wait("")) == (0, 0.0)


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (None, ""),
        (("127.0.0.1", 1), ""),
        (("127.8.8.8", 1), ""),
        (("::1", 1), ""),
        (("::ffff:127.0.0.1", 1), ""),
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::", 1), "2001:db8:1:2::/64"),
        (("2001:db8:1:3::6", 1), "2001:db8:1:3::/64"),
        (("unknown", 1), "unknown"),
    ],
)
def test_an_address_stands_for_a_subscriber(client: tuple[str, int] | None, address: str) -> None:
    assert address_of({"type": "http", "client": client}) == address


def test_the_limits_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_limits, "DOWNLOADS", 2)
    watch = Watch()
    limits = CallerLimits(Settings(caller_rate=2.0, caller_gb=1.0), watch)
    assert [limits.calls.take("a") for _ in range(21)] == [0.0] * 20 + [0.5]
    assert [limits.asked.take("a") for _ in range(ASKED + 1)] == [0.0] * ASKED + [HOUR / ASKED]
    limits.sent.use("a", 1e9)
    limits.begin("a")
    limits.sent.use("a", 1e6)
    with pytest.raises(TooManyError, match="within an hour") as refused:
        limits.begin("a")
    assert refused.value.seconds == pytest.approx(3.6)
    limits.begin("b")
    limits.begin("b")
    with pytest.raises(TooManyError, match="2 large files"):
        limits.begin("b")
    limits.end("b")
    limits.begin("b")
    for _ in range(5):
        limits.begin("")
    assert Settings().caller_rate * BURST == 2000


@pytest.fixture(scope="module")
def portal() -> Iterator[LivePortal]:
    """A portal behind a proxy on this machine; it takes ten calls of an address at once."""
    made = settings(caller_rate="1", smtp_url="smtp://mail.example.org")
    with live_portal(live_runtime(), made) as running:
        yield running


def from_address(portal: LivePortal, address: str, accept: str = "text/html") -> httpx.Client:
    headers = {"X-Forwarded-For": address, "Accept": accept, "Origin": portal.url}
    return client_of(portal.url, headers)


def test_an_address_that_calls_too_often_waits_and_others_do_not(portal: LivePortal) -> None:
    with from_address(portal, "192.0.2.1", "*/*") as client:
        answers = [client.get("/api/groups") for _ in range(15)]
        page = client.get("/groups", headers={"Accept": "text/html"})
    assert {one.status_code for one in answers[:10]} == {401}
    refused = answers[-1]
    assert refused.status_code == 429
    assert refused.headers["content-type"] == PROBLEM_JSON
    assert int(refused.headers["retry-after"]) >= 1
    assert (refused.json()["status"], refused.json()["remedy"]) == (429, "Call more slowly.")
    assert "X-Request-Id" in refused.headers
    assert page.status_code == 429
    assert "calls more often than one may" in page.text
    assert re.search(r"That is possible again in [\d.]+ m?s\.", page.text)
    assert '<a class="button primary" href="">Try again</a>' in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert int(page.headers["retry-after"]) >= 1
    with from_address(portal, "192.0.2.2") as other:
        assert other.get("/sign-in").status_code == 200
    with portal.guest() as here:
        assert {here.get("/livez").status_code for _ in range(30)} == {200}


def test_a_caller_cannot_state_another_address(portal: LivePortal) -> None:
    """What the proxy adds comes last; what the caller wrote before it counts for nothing."""
    with client_of(portal.url) as client:
        statuses = [
            client.get(
                "/api/groups", headers={"X-Forwarded-For": f"198.51.100.{number}, 192.0.2.3"}
            ).status_code
            for number in range(15)
        ]
    assert statuses[-1] == 429


def test_without_a_trusted_proxy_the_header_counts_for_nothing() -> None:
    app = FastAPI()

    @app.get("/who")
    def who(request: Request) -> list[str]:
        return [request.client.host if request.client else "", request.url.scheme]

    told = {}
    stated = {"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "https"}
    for proxies in ("", "192.0.2.0/24", "127.0.0.0/8, 10.0.0.1"):
        with serving_app(app, None, proxies) as url:
            told[proxies] = httpx.get(f"{url}/who", headers=stated).json()
    assert told == {
        "": ["127.0.0.1", "http"],
        "192.0.2.0/24": ["127.0.0.1", "http"],
        "127.0.0.0/8, 10.0.0.1": ["198.51.100.1", "https"],
    }


@pytest.mark.parametrize("wrong", ["*", "proxy", "127.0.0.1, proxy.example.org", "10.0.0.0/99"])
def test_proxies_are_addresses(wrong: str) -> None:
    with pytest.raises(ValueError, match="trusted_proxies"):
        Settings(trusted_proxies=wrong)


def test_an_address_asks_for_so_many_links_and_is_told_when_again(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told whether or not the mailboxes are known, and others still ask."""
    clients = [from_address(portal, "2001:db8::1"), from_address(portal, "2001:db8::2")]
    monkeypatch.setattr(portal.limits, "calls", Rates(0, 1.0, Watch()))
    answers = [
        clients[number % 2].post("/sign-in", data={"address": f"a{number}@example.org"})
        for number in range(ASKED + 1)
    ]
    assert [one.status_code for one in answers] == [200] * ASKED + [429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= HOUR / ASKED
    assert "Try again in 6 minutes" in answers[-1].text
    with from_address(portal, "192.0.2.9") as other:
        assert other.post("/sign-in", data={"address": "a@example.org"}).status_code == 200
    for client in clients:
        client.close()


def test_large_answers_to_one_caller_are_counted_and_small_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, raster: bytes
) -> None:
    """A second one at once is refused; a range, another caller and this machine are not."""
    monkeypatch.setattr(caller_limits, "LARGE", len(raster))
    monkeypatch.setattr(caller_limits, "DOWNLOADS", 1)
    runtime = live_runtime()
    name = submitted(runtime, "ada@example.org")
    put_result(runtime, name, "MCD15A2.005/Lai_1km", "a.tif", raster)
    path = f"/api/requests/{name}/results/MCD15A2.005/Lai_1km/a.tif"
    made = settings(caller_gb=str(2.5 * len(raster) / 1e9))
    with live_portal(runtime, made) as portal, portal.client() as client:
        limits = portal.limits
        there = {"X-Forwarded-For": "192.0.2.5"}
        limits.begin("owner ada@example.org")
        refused = client.get(path, headers=there)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert "large files are being sent" in refused.json()["detail"]
        assert client.get(path, headers=there | {"Range": "bytes=0-99"}).status_code == 206
        assert client.get(path).status_code == 200
        with portal.client("root", "operator") as root:
            assert root.get(path, headers=there).status_code == 200
        limits.end("owner ada@example.org")
        statuses = [client.get(path, headers=there).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = client.get(path, headers=there)
        assert "within an hour" in refused.json()["detail"]
        assert 0 < int(refused.headers["retry-after"]) <= HOUR
        assert client.get(f"/api/requests/{name}/archive.zip").status_code == 200
        until(lambda: not limits.under_way, what="all answers are counted off again")


def test_an_address_has_so_many_connections() -> None:
    app = FastAPI()

    @app.get("/livez")
    def livez() -> str:
        return "lives"

    few = Limits(connections=3)
    with serving_app(app, few, "") as url:
        clients = [httpx.Client(base_url=url, trust_env=False) for _ in range(4)]
        statuses = [client.get("/livez").status_code for client in clients]
        assert statuses == [200, 200, 200, 429]
        clients[0].close()
        until(
            lambda: clients[3].get("/livez").status_code == 200,
            what="the place of a connection that was closed is free",
        )
        for client in clients:
            client.close()
    with serving_app(app, few, "127.0.0.1") as url:
        clients = [httpx.Client(base_url=url, trust_env=False) for _ in range(6)]
        assert {client.get("/livez").status_code for client in clients} == {200}
        for client in clients:
            client.close()


def test_a_proxy_that_is_not_trusted_is_named_in_the_log_once() -> None:
    made = live_portal(live_runtime(), settings(), proxies="")
    with capture_logs() as logs, made as portal, portal.guest() as client:
        for _ in range(3):
            client.get("/livez", headers={"X-Forwarded-For": "192.0.2.1"})
    assert sum("SWATHMILL_TRUSTED_PROXIES" in one["event"] for one in logs) == 1
