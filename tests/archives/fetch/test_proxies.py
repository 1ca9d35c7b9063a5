"""Proxies of the environment: which a call takes, and what is said of those that cannot be used."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from archives.errors import ProxyUnusableError
from archives.fetch.http import http_client, named_errors
from archives.fetch.proxies import Proxies
from archives.fetch.timing import Timing
from swathmill.cli import application
from swathmill.client import Client
from swathmill.diagnosis import Verdict, proxies_finding
from swathmill.errors import ApiError, RefusedError
from tasks.bag.model import RequestState
from tasks.request.document import parse_request
from tasks.service.classify import classify
from tests.acceptance.in_process import Work
from tests.acceptance.test_no_granule import DOCUMENT
from tests.archives.servers import FileServer, file_server

SOCKS = "socks5://me:secret@127.0.0.1:1080"
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
QUICK = Timing(connect=2.0, stall=2.0, pause=0.0)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr("archives.fetch.proxies.find_spec", lambda _: None)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def taken(url: str, **environment: str) -> str | None:
    proxy = Proxies.of(environment).of_url(httpx.URL(url))
    return proxy.url if proxy is not None else None


def test_the_scheme_has_its_proxy_and_else_that_of_all() -> None:
    both = {"HTTPS_PROXY": "http://a:1", "all_proxy": "b:2", "ALL_PROXY": "http://c:3"}
    assert taken("https://x/", **both) == "http://a:1"
    assert taken("http://x/", **both) == "http://b:2"
    assert taken("http://x/", HTTPS_PROXY="http://a:1") is None
    assert taken("http://x/", HTTP_PROXY="http://a:1", REQUEST_METHOD="GET") is None
    assert taken("http://x/", HTTP_PROXY=" ") is None


@pytest.mark.parametrize(
    ("listed", "url", "exempt"),
    [
        ("*", "https://nasa.gov/", True),
        ("nasa.gov", "https://nasa.gov/", True),
        ("nasa.gov", "https://cmr.nasa.gov/", True),
        ("nasa.gov", "https://notnasa.gov/", False),
        (".nasa.gov,*.esa.int", "https://scihub.esa.int/", True),
        (".nasa.gov", "https://NASA.gov./", True),
        ("nasa.gov:443", "https://nasa.gov/", True),
        ("nasa.gov:80", "https://nasa.gov/", False),
        ("https://nasa.gov/", "https://nasa.gov/", True),
        ("a b\tnasa.gov", "https://nasa.gov/", True),
        ("localhost,127.0.0.0/8", "http://127.3.2.1:8080/", True),
        ("10.0.0.0/8", "http://11.0.0.1/", False),
        ("10.0.0.0/8", "http://ten.example/", False),
        ("::1", "http://[::1]:80/", True),
        ("[::1]:81,[fe80::]", "http://[::1]:80/", False),
        ("2001:db8::/32", "http://[2001:db8::7]/", True),
    ],
)
def test_hosts_that_need_none(listed: str, url: str, exempt: bool) -> None:
    assert (taken(url, ALL_PROXY="http://p:1", NO_PROXY=listed) is None) is exempt
    assert Proxies.of({"no_proxy": listed}).passed_over == ()


def test_an_entry_that_means_nothing_is_passed_over() -> None:
    odd = "[::1,nasa.gov,a b:c:d,https://,-x-,[::1]x,esa.int:port"
    found = Proxies.of({"ALL_PROXY": "http://p:1", "NO_PROXY": odd})
    assert found.passed_over == ("[::1", "b:c:d", "https://", "-x-", "[::1]x", "esa.int:port")
    assert found.of_url(httpx.URL("https://cmr.nasa.gov/")) is None
    assert found.of_url(httpx.URL("https://else.org/")) is not None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (SOCKS, "SOCKS needs the Python package socksio"),
        ("socks5h://127.0.0.1:1080", "SOCKS needs the Python package socksio"),
        ("socks4://127.0.0.1:1080", "it is neither HTTP nor SOCKS 5"),
        ("ftp://proxy", "it is neither HTTP nor SOCKS 5"),
        ("::bad::", "it is no address"),
        ("http://", "it is no address"),
        ("http://proxy:port", "it is no address"),
    ],
)
@pytest.mark.parametrize("name", ["ALL_PROXY", "all_proxy", "HTTP_PROXY"])
def test_what_cannot_be_used_is_named_with_its_variable(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with (
        pytest.raises(ProxyUnusableError) as caught,
        named_errors("http://127.0.0.1:9/", QUICK),
        http_client(QUICK, None) as client,
    ):
        client.get("http://127.0.0.1:9/")
    said = str(caught.value)
    assert f"{name} names the proxy" in said
    assert why in said
    assert "name an HTTP proxy there, or exempt hosts by NO_PROXY" in said
    assert "secret" not in said
    assert classify(caught.value).category.value == "connection failure"


def test_socks_is_used_where_its_package_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archives.fetch.proxies.find_spec", lambda _: object())
    assert Proxies.of({"ALL_PROXY": SOCKS}).by_scheme["all"].problem == ""


def test_a_call_takes_the_proxy_or_not(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    server.always["/there"] = lambda request: request.answer(200, b"by the proxy")
    with http_client(QUICK, None) as client:
        assert client.get("http://nowhere.invalid/there").content == b"by the proxy"
    assert server.asked[0].path == "http://nowhere.invalid/there"
    monkeypatch.setenv("HTTP_PROXY", SOCKS)
    monkeypatch.setenv("NO_PROXY", "[broken,127.0.0.1")
    with http_client(QUICK, None) as client:
        assert client.get(f"{server.url}/there").content == b"by the proxy"
    assert server.asked[1].path == "/there"


def test_find_says_it_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWATHMILL_SOURCES", "cmr+http://127.0.0.1:9/search")
    monkeypatch.setenv("ALL_PROXY", SOCKS)
    asked = ["find", "MOD13A2", "--days", "2018-01-01"]
    found = CliRunner().invoke(application(), asked)
    assert isinstance(found.exception, ProxyUnusableError)
    assert "ALL_PROXY names the proxy socks5://127.0.0.1:1080" in str(found.exception)


def test_a_request_is_refused_and_none_over_a_folder(
    tmp_path: Path, sample_archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", SOCKS)
    sources = "pool+http://127.0.0.1:9/pool"
    work = Work(folder=tmp_path / "data", archive=Path(), sources=sources)
    row = work.row(work.run(DOCUMENT))
    assert row.state is RequestState.REFUSED
    assert "ALL_PROXY names the proxy socks5://127.0.0.1:1080" in row.message
    days = {"start": "2012-04-13", "end": "2012-04-15"}
    folder = Work(folder=tmp_path / "other", archive=sample_archive)
    assert folder.plan(parse_request({**DOCUMENT, "time": days})).tasks


def test_a_portal_elsewhere_is_not_reached_and_one_here_is(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", SOCKS)
    with pytest.raises(ApiError, match="ALL_PROXY names the proxy"):
        Client(url="http://portal.invalid", token="t").status("r")
    with pytest.raises(RefusedError, match="no such file"):
        Client(url=server.url, token="t").status("r")


def test_the_doctor_tells_proxies() -> None:
    assert proxies_finding({}).found == "none are named"
    good = proxies_finding({"https_proxy": "http://me:secret@proxy:3128"})
    assert (good.verdict, good.found) == (Verdict.GOOD, "https_proxy http://proxy:3128")
    bad = proxies_finding({"ALL_PROXY": SOCKS, "NO_PROXY": "a.b,[::1"})
    assert bad.verdict is Verdict.NOTE
    assert "ALL_PROXY names the proxy socks5://127.0.0.1:1080, which cannot be used" in bad.found
    assert "NO_PROXY has what is no host: [::1" in bad.found
