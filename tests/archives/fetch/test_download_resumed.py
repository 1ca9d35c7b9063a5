"""Downloads that go on where a cut, a stall or a kill left them, or rightly start over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from archives import errors
from archives.fetch.download import Downloader
from archives.fetch.limits import LocalLimits
from archives.fetch.partial import DownloadOrigin, Partial
from archives.fetch.timing import Timing
from tests.archives.downloads import (
    DATA,
    HASTY,
    NO_CREDENTIALS,
    PATH,
    QUICK,
    Fetch,
    digest_of,
    fetcher,
)
from tests.archives.servers import (
    Act,
    FileServer,
    Request,
    Served,
    cut,
    file_server,
    granule,
    stall,
    status,
)


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


def ranges(server: FileServer) -> list[tuple[str | None, str | None]]:
    return [(a.headers.get("range"), a.headers.get("if-range")) for a in server.asked]


@pytest.mark.parametrize(
    ("fault", "timing"), [(cut(100_000), QUICK), (stall(100_000), HASTY)], ids=["cut", "stall"]
)
def test_after_a_cut_the_rest_is_asked_for(
    server: FileServer, tmp_path: Path, fault: Act, timing: Timing
) -> None:
    server.acts[PATH] = [fault, fault]
    fetch = fetcher(server, tmp_path, timing)
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
    new = Served(data=granule(len(DATA), first=5), etag='"v2"')
    downloader = Downloader(
        NO_CREDENTIALS,
        LocalLimits(),
        timing=QUICK,
        context=server.context,
        sleep=lambda _seconds: server.files.update({PATH: new}),
    )
    assert Fetch(downloader, tmp_path / "folder" / PATH[1:])(server.url + PATH) == new.data
    assert [a.headers.get("if-range") for a in server.asked] == [None, '"v1"']


def test_a_range_of_another_edition_is_seen_without_if_range(
    server: FileServer, tmp_path: Path
) -> None:
    old, new = formatdate(1_000_000, usegmt=True), formatdate(2_000_000, usegmt=True)
    other = granule(len(DATA) + 4, first=5)

    def begin(request: Request) -> None:
        request.begin(200, len(DATA), Last_Modified=old)
        request.wfile.write(DATA[:1000])
        request.close_connection = True

    def go_on(date: str, size: int) -> Act:
        def act(request: Request) -> None:
            span = f"bytes 1000-{size - 1}/{size}"
            request.begin(206, size - 1000, Content_Range=span, Last_Modified=date)
            request.wfile.write(other[1000:size])

        return act

    for date, size in ((new, len(DATA)), (old, len(other))):
        server.files[PATH] = Served(data=other)
        server.acts[PATH] = [begin, go_on(date, size)]
        assert fetcher(server, tmp_path / str(size))(server.url + PATH, size=0) == other


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
from archives.fetch.download import Downloader
from archives.fetch.limits import LocalLimits
from tests.archives.downloads import NO_CREDENTIALS
url, to, size = sys.argv[1:]
Downloader(NO_CREDENTIALS, LocalLimits()).get(
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
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    assert child.stdout is not None
    with child.stdout as said:
        while after and int(said.readline()) < after:
            pass
        while not store.asked:
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not to.exists()
    downloader = Downloader(NO_CREDENTIALS, LocalLimits(), timing=QUICK)
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
    partial.begin(DownloadOrigin(url=server.url + PATH, validator='"v1"', total=len(DATA)))
    partial.append(DATA)
    partial.close()
    assert fetch(server.url + PATH, size=0) == DATA
    assert server.asked == []
