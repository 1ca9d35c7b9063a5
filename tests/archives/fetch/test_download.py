"""Downloads from a real server on loopback that does wrong in every way it can."""

import errno
import logging
import shutil
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
import structlog

from archives import errors
from archives.fetch.download import Downloader
from archives.fetch.limits import LocalLimits
from tasks.bag.categories import Category
from tasks.service import logs
from tasks.service.classify import classify
from tests.archives.downloads import (
    DATA,
    HASTY,
    NO_CREDENTIALS,
    PATH,
    QUICK,
    TOKEN,
    Fetch,
    TokenFor,
    digest_of,
    fetcher,
)
from tests.archives.servers import (
    FileServer,
    Served,
    body,
    cut,
    file_server,
    nonsense,
    redirect,
    silence,
    stall,
    status,
)

HTML = b"<!DOCTYPE html>\n<html><title>Earthdata Login</title></html>" + b" " * 4000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileServer]:
    with file_server(tls=tmp_path_factory.mktemp("tls")) as server:
        yield server


@pytest.fixture
def server(running: FileServer) -> FileServer:
    """An HTTPS archive with one file."""
    running.files = {PATH: Served(data=DATA)}
    running.acts, running.always, running.asked = {}, {}, []
    return running


@pytest.fixture(scope="module")
def store() -> Iterator[FileServer]:
    """A foreign host that signed addresses lead to."""
    with file_server() as server:
        yield server


@pytest.mark.parametrize("kind", ["md5", "sha256", "sha512", "cksum", "SHA-256", None, "crc-64"])
def test_a_file_comes_whole_and_verified(
    server: FileServer, tmp_path: Path, kind: str | None
) -> None:
    known = kind and kind != "crc-64"
    checksum = digest_of(kind.lower().replace("-", "")).upper() if known and kind else "77"
    fetch = fetcher(server, tmp_path)
    assert fetch(server.url + PATH, checksum=checksum, checksum_type=kind) == DATA
    assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert server.asked[0].headers["accept-encoding"] == "identity"  # parts of a file are asked for
    assert server.asked[0].headers["user-agent"].startswith("swathmill/")
    assert len(server.asked) == 1


def test_the_size_may_be_unknown(server: FileServer, tmp_path: Path) -> None:
    assert fetcher(server, tmp_path)(server.url + PATH, size=0) == DATA


# --- Faults, each with its category ---

CODES = {
    "401": (status(401), errors.TokenRefusedError, Category.CREDENTIALS_REFUSED),
    "403": (status(403, b"no"), errors.NotPermittedError, Category.CREDENTIALS_REFUSED),
    "403 licence": (
        status(
            403,
            b'{"error_description": "EULA Acceptance Failure", '
            b'"resolution_url": "https://urs.earthdata.nasa.gov/approve_app?client_id=x"}',
        ),
        errors.LicenceNotAcceptedError,
        Category.CREDENTIALS_REFUSED,
    ),
    "404": (status(404), errors.NotPublishedError, Category.SOURCE_NOT_PUBLISHED),
    "410": (status(410), errors.NotPublishedError, Category.SOURCE_NOT_PUBLISHED),
    "429": (
        status(429, Retry_After="17"),
        errors.ServerBusyError,
        Category.SERVER_BUSY,
    ),
    "503": (status(503), errors.ServerBusyError, Category.SERVER_BUSY),
    "500": (status(500, b"oops"), errors.DownloadFailedError, Category.DOWNLOAD_FAILED),
    "504": (status(504), errors.ArchiveTimeoutError, Category.OPERATION_TIMEOUT),
    "cut at once": (cut(0), errors.ConnectionFailedError, Category.CONNECTION_FAILURE),
    "silent": (silence, errors.ArchiveTimeoutError, Category.OPERATION_TIMEOUT),
    "stalled at once": (stall(0), errors.ArchiveTimeoutError, Category.OPERATION_TIMEOUT),
    "no HTTP": (nonsense, errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
    "too short": (
        body(DATA[:-5]),
        errors.DownloadFailedError,
        Category.DOWNLOAD_FAILED,
    ),
    "too long": (
        body(DATA + b"more"),
        errors.DownloadFailedError,
        Category.DOWNLOAD_FAILED,
    ),
    "other content": (
        body(DATA[:-1] + b"\0"),
        errors.DownloadFailedError,
        Category.DOWNLOAD_FAILED,
    ),
    "sign-in page": (
        body(HTML, Content_Type="text/html"),
        errors.CredentialsRefusedError,
        Category.CREDENTIALS_REFUSED,
    ),
    "a document": (body(b"<?xml?><Error/>"), errors.DownloadFailedError, Category.DOWNLOAD_FAILED),
    "compressed": (
        body(DATA, Content_Encoding="gzip"),
        errors.DownloadFailedError,
        Category.DOWNLOAD_FAILED,
    ),
    "to a file": (redirect("file:///etc/passwd"), errors.DownloadFailedError, None),
    "unprotected": (redirect("http://127.0.0.1:9/x"), errors.DownloadFailedError, None),
    "round and round": (redirect(PATH), errors.DownloadFailedError, Category.DOWNLOAD_FAILED),
}


@pytest.mark.parametrize("fault", CODES)
def test_each_fault_has_its_category_and_leaves_nothing(
    server: FileServer, tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    act, kind, category = CODES[fault]
    server.always[PATH] = act
    fetch = fetcher(server, tmp_path, HASTY if fault in ("silent", "stalled at once") else QUICK)
    with caplog.at_level(logging.INFO), pytest.raises(kind) as caught:
        fetch(server.url + PATH, checksum=digest_of("md5"), checksum_type="MD5")
    diagnosis = classify(caught.value)
    assert diagnosis.category is (category or Category.DOWNLOAD_FAILED)
    assert not fetch.to.exists()
    assert TOKEN not in diagnosis.message + diagnosis.traceback + caplog.text
    assert PATH[1:] in diagnosis.message


def test_the_licence_to_accept_is_named(server: FileServer, tmp_path: Path) -> None:
    server.always[PATH] = CODES["403 licence"][0]
    with pytest.raises(errors.LicenceNotAcceptedError, match=r"approve_app\?client_id=x"):
        fetcher(server, tmp_path)(server.url + PATH)


@pytest.mark.parametrize("date", [False, True])
def test_the_pause_a_busy_server_asks_for_is_carried(
    server: FileServer, tmp_path: Path, date: bool
) -> None:
    asked = formatdate(time.time() + 40, usegmt=True) if date else "40"
    server.always[PATH] = status(503, Retry_After=asked)
    with pytest.raises(errors.ServerBusyError) as caught:
        fetcher(server, tmp_path)(server.url + PATH)
    assert 30 < classify(caught.value).asked <= 40


@pytest.mark.parametrize(
    ("asked", "pause", "said"),
    [
        ("5", 5.0, "5 s"),
        ("600", 600.0, "10 min"),
        ("7300", 7300.0, "2 h"),
        ("2300473266", 86_400.0, "a day or more"),
        ("Fri, 31 Dec 2100 23:59:59 GMT", 86_400.0, "a day or more"),
    ],
)
def test_a_pause_is_bounded_and_told_in_words(
    server: FileServer, tmp_path: Path, asked: str, pause: float, said: str
) -> None:
    server.always[PATH] = status(503, Retry_After=asked)
    with pytest.raises(errors.ServerBusyError, match=f"asks for {said} of pause") as caught:
        fetcher(server, tmp_path)(server.url + PATH)
    assert classify(caught.value).asked == pause


@pytest.mark.parametrize("text", ["inf", "1e999", "nan", "soon", "Mon, 99 Jan 2018"])
def test_a_pause_without_end_is_none(server: FileServer, tmp_path: Path, text: str) -> None:
    server.always[PATH] = status(503, Retry_After=text)
    with pytest.raises(errors.ServerBusyError) as caught:
        fetcher(server, tmp_path)(server.url + PATH)
    assert classify(caught.value).asked == 0.0


def test_nobody_listens(tmp_path: Path) -> None:
    with file_server() as gone:
        url = gone.url
    downloader = Downloader(NO_CREDENTIALS, LocalLimits(), timing=QUICK)
    with pytest.raises(errors.ConnectionFailedError):
        Fetch(downloader, tmp_path / PATH[1:])(url + PATH)


def test_a_server_nobody_vouches_for_is_refused(server: FileServer, tmp_path: Path) -> None:
    downloader = Downloader(TokenFor(server.url), LocalLimits(), timing=QUICK)
    with pytest.raises(errors.ConnectionFailedError, match="certificate"):
        Fetch(downloader, tmp_path / "f.hdf")(server.url + PATH)
    assert server.asked == []


def test_a_full_disk_is_seen_before_a_byte_comes(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=200_000)
    monkeypatch.setattr("archives.fetch.partial.shutil.disk_usage", lambda _path: usage)
    fetch = fetcher(server, tmp_path)
    with pytest.raises(OSError, match="bytes free") as caught:
        fetch(server.url + PATH)
    assert caught.value.errno == errno.ENOSPC
    assert classify(caught.value).category is Category.OUT_OF_DISK
    assert not list(tmp_path.rglob("*.part"))


# --- Redirects: the token stays at home ---


def test_the_token_does_not_go_where_a_redirect_leads(store: FileServer, tmp_path: Path) -> None:
    store.files["/x"] = Served(data=DATA)
    store.asked = []
    with file_server() as home:
        home.acts[PATH] = [redirect("/login"), redirect(f"{store.url}/x?X-Amz-Signature=abc")]
        home.always["/login"] = status(302, Location=PATH, Set_Cookie="session=secret-cookie")
        downloader = Downloader(TokenFor(home.url), LocalLimits(rate=1000), timing=QUICK)
        assert Fetch(downloader, tmp_path / "d" / PATH[1:])(home.url + PATH) == DATA
        assert home.paths() == [PATH, "/login", PATH]
        assert all(a.headers["authorization"] == f"Bearer {TOKEN}" for a in home.asked)
        assert "secret-cookie" in home.asked[2].headers["cookie"]
    (foreign,) = store.asked
    assert "authorization" not in foreign.headers


def test_no_name_or_signature_of_an_address_reaches_a_message_or_a_log(
    store: FileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.always["/y.hdf"] = status(500)
    root = logging.getLogger()
    handlers, level, ours = list(root.handlers), root.level, structlog.get_config()
    logs.configure("info")
    root.handlers[:], root.level = handlers, level
    # botocore would log headers with keys, and s3fs what it is called with.
    assert min(logging.getLogger(one).level for one in ("botocore", "s3fs")) >= logging.WARNING
    # Else loggers that other tests look into would be bound for good at their first use.
    structlog.configure(**ours)
    url = store.url.replace("//", "//user:secret-word@") + "/y.hdf?sig=secret-word"
    downloader = Downloader(NO_CREDENTIALS, LocalLimits(), timing=QUICK)
    with caplog.at_level(logging.INFO), pytest.raises(errors.DownloadFailedError) as caught:
        Fetch(downloader, tmp_path / "y.hdf")(url)
    diagnosis = classify(caught.value)
    assert "secret-word" not in diagnosis.message + diagnosis.traceback + caplog.text


def test_a_signature_that_expires_midway_is_got_anew(store: FileServer, tmp_path: Path) -> None:
    store.files["/z"] = Served(data=DATA)
    store.acts["/z"] = [cut(1000), status(403, b"<Error>Request has expired</Error>")]
    store.asked = []
    with file_server() as home:
        home.always[PATH] = redirect(f"{store.url}/z?Signature=abc")
        downloader = Downloader(TokenFor(home.url), LocalLimits(rate=1000), timing=QUICK)
        assert Fetch(downloader, tmp_path / "d" / PATH[1:])(home.url + PATH) == DATA
        assert len(home.asked) == 3
    assert [a.headers.get("range") for a in store.asked] == [None, "bytes=1000-", "bytes=1000-"]


def test_a_signature_that_is_never_good_ends(store: FileServer, tmp_path: Path) -> None:
    store.always["/bad"] = status(403)
    with file_server() as home:
        home.always[PATH] = redirect(f"{store.url}/bad?Signature=abc")
        downloader = Downloader(TokenFor(home.url), LocalLimits(rate=1000), timing=QUICK)
        fetch = Fetch(downloader, tmp_path / "d" / PATH[1:])
        with pytest.raises(errors.SignatureExpiredError) as caught:
            fetch(home.url + PATH)
        assert classify(caught.value).category is Category.CREDENTIALS_REFUSED
        with pytest.raises(errors.SignatureExpiredError):
            fetch(f"{store.url}/bad?sig=1")


def test_a_redirect_to_no_address_is_a_broken_answer(server: FileServer, tmp_path: Path) -> None:
    server.always[PATH] = redirect("http://[bad")
    with pytest.raises(errors.AnswerBrokenError, match="leads to no address") as caught:
        fetcher(server, tmp_path)(server.url + PATH)
    assert classify(caught.value).category is Category.TRANSPORT_ERROR
    with pytest.raises(errors.AnswerBrokenError, match="leads to no address"):
        fetcher(server, tmp_path)("http://[bad/x.hdf")


# --- Further addresses ---


def test_the_next_address_serves_when_the_first_does_not(
    server: FileServer, store: FileServer, tmp_path: Path
) -> None:
    server.acts[PATH] = [cut(1000), status(404)]
    store.files[PATH] = Served(data=DATA)
    store.asked = []
    assert fetcher(server, tmp_path)(server.url + PATH, store.url + PATH) == DATA
    assert "range" not in store.asked[0].headers


def test_of_several_reasons_the_one_that_passes_is_told(server: FileServer, tmp_path: Path) -> None:
    server.always |= {"/a.hdf": status(404), "/b.hdf": status(503), "/c.hdf": status(401)}
    fetch = fetcher(server, tmp_path)
    with pytest.raises(errors.ServerBusyError):
        fetch(*(server.url + path for path in server.always))
    with pytest.raises(errors.NotPublishedError):
        fetch(server.url + "/a.hdf")
    with pytest.raises(errors.NotPublishedError, match="no address"):
        fetch()
