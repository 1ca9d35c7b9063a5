"""Downloads from a real server on loopback that does wrong in every way it can."""

import errno
import hashlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

import pytest

from archives import errors
from archives.checksums import Cksum
from archives.download import Downloader, NoCredentials, Timing
from archives.limits import LocalLimits
from archives.partial import Origin, Partial
from tasks import logs
from tasks.categories import Category
from tasks.classify import classify
from tests.archives.servers import (
    HDF4,
    Act,
    FileServer,
    Request,
    Served,
    body,
    cut,
    file_server,
    granule,
    nonsense,
    redirect,
    silence,
    stall,
    status,
)

DATA = granule(300_000)
TOKEN = "the-token-that-nobody-may-see"
PATH = "/MOD09GA.A2020001.h18v04.061.2020003030507.hdf"
QUICK = Timing(connect=2.0, stall=0.4, pause=0.0)
HTML = b"<!DOCTYPE html>\n<html><title>Earthdata Login</title></html>" + b" " * 4000


@dataclass
class TokenFor:
    """A token for one address's host and port."""

    url: str
    asked: list[str] = field(default_factory=list)

    def headers(self, url: str) -> Mapping[str, str]:
        self.asked.append(url)
        return {"Authorization": f"Bearer {TOKEN}"} if url.startswith(self.url + "/") else {}


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


class Fetch(NamedTuple):
    """A downloader of one server's, and where it puts the file."""

    downloader: Downloader
    to: Path

    def __call__(self, *urls: str, size: int = len(DATA), **more: str | None) -> bytes:
        given: dict[str, str | None] = {"checksum": None, "checksum_type": None, **more}
        fetched = self.downloader.get(urls, self.to, size=size, **given)
        assert fetched.path == self.to
        data = self.to.read_bytes()
        assert (fetched.size, fetched.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert [path.name for path in self.to.parent.iterdir()] == [self.to.name]
        return data


def fetcher(server: FileServer, folder: Path, timing: Timing = QUICK) -> Fetch:
    downloader = Downloader(
        TokenFor(server.url), LocalLimits(rate=1000), timing=timing, context=server.context
    )
    return Fetch(downloader, folder / "granules" / PATH[1:])


def digest_of(kind: str) -> str:
    if kind == "cksum":
        running = Cksum()
        running.update(DATA)
        return running.hexdigest()
    return hashlib.new(kind, DATA).hexdigest()


@pytest.mark.parametrize("kind", ["md5", "sha256", "sha512", "cksum", "SHA-256", None, "crc-64"])
def test_a_file_comes_whole_and_verified(
    server: FileServer, tmp_path: Path, kind: str | None
) -> None:
    known = kind and kind != "crc-64"
    checksum = digest_of(kind.lower().replace("-", "")).upper() if known and kind else "77"
    fetch = fetcher(server, tmp_path)
    assert fetch(server.url + PATH, checksum=checksum, checksum_type=kind) == DATA
    assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert len(server.asked) == 1


def test_the_size_may_be_unknown(server: FileServer, tmp_path: Path) -> None:
    assert fetcher(server, tmp_path)(server.url + PATH, size=0) == DATA


def test_an_empty_file_is_a_file(server: FileServer, tmp_path: Path) -> None:
    server.files["/empty.txt"] = Served(data=b"")
    assert fetcher(server, tmp_path)(server.url + "/empty.txt", size=0) == b""


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
    fetch = fetcher(server, tmp_path)
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


def test_nobody_listens(tmp_path: Path) -> None:
    with file_server() as gone:
        url = gone.url
    downloader = Downloader(NoCredentials(), LocalLimits(), timing=QUICK)
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
    monkeypatch.setattr("archives.download.shutil.disk_usage", lambda _path: usage)
    fetch = fetcher(server, tmp_path)
    with pytest.raises(OSError, match="make room") as caught:
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
    handlers, level = list(root.handlers), root.level
    logs.configure("info")
    root.handlers[:], root.level = handlers, level
    url = store.url.replace("//", "//user:secret-word@") + "/y.hdf?sig=secret-word"
    downloader = Downloader(NoCredentials(), LocalLimits(), timing=QUICK)
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


# --- Going on after a cut ---


def ranges(server: FileServer) -> list[tuple[str | None, str | None]]:
    return [(a.headers.get("range"), a.headers.get("if-range")) for a in server.asked]


@pytest.mark.parametrize("fault", [cut(100_000), stall(100_000)])
def test_after_a_cut_the_rest_is_asked_for(server: FileServer, tmp_path: Path, fault: Act) -> None:
    server.acts[PATH] = [fault, fault]
    fetch = fetcher(server, tmp_path)
    assert fetch(server.url + PATH, checksum=digest_of("md5"), checksum_type="md5") == DATA
    assert ranges(server) == [
        (None, None),
        ("bytes=100000-", '"v1"'),
        ("bytes=200000-", '"v1"'),
    ]


def test_the_date_serves_where_there_is_no_strong_tag(server: FileServer, tmp_path: Path) -> None:
    date = formatdate(0, usegmt=True)
    server.files[PATH] = Served(data=DATA, etag='W/"weak"', modified=date)
    server.acts[PATH] = [cut(1000)]
    assert fetcher(server, tmp_path)(server.url + PATH) == DATA
    assert ranges(server)[1] == ("bytes=1000-", date)


def test_without_a_proof_of_sameness_all_is_fetched_again(
    server: FileServer, tmp_path: Path
) -> None:
    server.files[PATH] = Served(data=DATA, etag="")
    server.acts[PATH] = [cut(1000)]
    assert fetcher(server, tmp_path)(server.url + PATH) == DATA
    assert ranges(server) == [(None, None), (None, None)]


def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(
    server: FileServer, tmp_path: Path
) -> None:
    server.acts[PATH] = [cut(1000)]
    new = Served(data=HDF4 + DATA[::-1][4:], etag='"v2"')
    downloader = Downloader(
        NoCredentials(),
        LocalLimits(),
        timing=QUICK,
        context=server.context,
        sleep=lambda _seconds: server.files.update({PATH: new}),
    )
    assert Fetch(downloader, tmp_path / "folder" / PATH[1:])(server.url + PATH) == new.data
    assert [a.headers.get("if-range") for a in server.asked] == [None, '"v1"']


def test_a_server_that_answers_another_range_is_asked_for_the_whole(
    server: FileServer, tmp_path: Path
) -> None:
    def other(request: Request) -> None:
        request.begin(206, 10, Content_Range=f"bytes 5-14/{len(DATA)}", ETag='"v1"')
        request.wfile.write(DATA[5:15])

    server.acts[PATH] = [cut(1000), other]
    assert fetcher(server, tmp_path)(server.url + PATH) == DATA
    assert [r for r, _ in ranges(server)] == [None, "bytes=1000-", None]


def test_a_range_beyond_the_end_starts_over(server: FileServer, tmp_path: Path) -> None:
    server.acts[PATH] = [cut(1000), status(416)]
    assert fetcher(server, tmp_path)(server.url + PATH) == DATA
    assert [r for r, _ in ranges(server)] == [None, "bytes=1000-", None]


def test_what_an_earlier_attempt_left_is_gone_on_with(server: FileServer, tmp_path: Path) -> None:
    server.acts[PATH] = [cut(100_000), status(503)]
    fetch = fetcher(server, tmp_path)
    with pytest.raises(errors.ServerBusyError):
        fetch(server.url + PATH)
    assert not fetch.to.exists()
    assert fetch(server.url + PATH, checksum=digest_of("md5"), checksum_type="md5") == DATA
    assert [r for r, _ in ranges(server)] == [None, "bytes=100000-", "bytes=100000-"]


def test_a_left_over_that_is_damaged_is_fetched_from_the_start(
    server: FileServer, tmp_path: Path
) -> None:
    server.acts[PATH] = [cut(100_000), status(503)]
    fetch = fetcher(server, tmp_path)
    with pytest.raises(errors.ServerBusyError):
        fetch(server.url + PATH)
    part = fetch.to.with_name(fetch.to.name + ".part")
    part.write_bytes(b"\0" * 100_000)
    with pytest.raises(errors.DownloadFailedError, match="md5"):
        fetch(server.url + PATH, checksum=digest_of("md5"), checksum_type="md5")
    assert fetch(server.url + PATH, checksum=digest_of("md5"), checksum_type="md5") == DATA


@pytest.mark.parametrize("state", ["", "rubbish", "[]", '{"url": 1}'])
def test_a_left_over_of_unknown_origin_is_not_used(
    server: FileServer, tmp_path: Path, state: str
) -> None:
    fetch = fetcher(server, tmp_path)
    fetch.to.parent.mkdir()
    fetch.to.with_name(fetch.to.name + ".part").write_bytes(b"x" * 1000)
    fetch.to.with_name(fetch.to.name + ".part.json").write_text(state, "utf-8")
    assert fetch(server.url + PATH) == DATA
    assert ranges(server) == [(None, None)]


CHILD = """
import sys
from pathlib import Path
from archives.download import Downloader, NoCredentials
from archives.limits import LocalLimits
url, to, size = sys.argv[1:]
Downloader(NoCredentials(), LocalLimits()).get(
    [url], Path(to), size=int(size), checksum=None, checksum_type=None,
    progress=lambda done, total: print(done, flush=True),
)
"""


@pytest.mark.parametrize("after", [0, 150_000])
def test_a_kill_leaves_nothing_visible_and_the_next_attempt_resumes(
    store: FileServer, tmp_path: Path, after: int
) -> None:
    store.files[PATH] = Served(data=DATA)
    store.acts[PATH] = [stall(after)]
    store.asked = []
    to = tmp_path / PATH[1:]
    command = [sys.executable, "-c", CHILD, store.url + PATH, str(to), "0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert child.stdout is not None
    with child.stdout as said:
        while after and int(said.readline()) < after:
            pass
        while not store.asked:
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not to.exists()
    downloader = Downloader(NoCredentials(), LocalLimits(), timing=QUICK)
    fetched = downloader.get(
        [store.url + PATH], to, size=0, checksum=digest_of("sha256"), checksum_type="sha256"
    )
    assert fetched.size == len(DATA)
    assert to.read_bytes() == DATA
    again = [asked.headers.get("range") for asked in store.asked[1:]]
    assert again == [f"bytes={after}-" if after else None]


def test_a_kill_before_the_last_step_costs_no_request(server: FileServer, tmp_path: Path) -> None:
    fetch = fetcher(server, tmp_path)
    fetch.to.parent.mkdir()
    partial = Partial(fetch.to, None)
    partial.begin(Origin(url=server.url + PATH, validator='"v1"', total=len(DATA)))
    partial.append(DATA)
    partial.close()
    assert fetch(server.url + PATH, size=0) == DATA
    assert server.asked == []
