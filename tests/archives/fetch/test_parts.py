"""Parts of files elsewhere are the file's own bytes, of one edition, or a clear error."""

import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from archives import errors
from archives.fetch.download import Downloader
from archives.fetch.files import LocalFiles, RemoteFiles
from archives.fetch.limits import LocalLimits
from archives.fetch.parts import AddressInParts, WholeOnlyError
from tests.archives.downloads import DATA, NO_CREDENTIALS, PATH, QUICK, TOKEN, TokenFor
from tests.archives.servers import (
    Act,
    FileServer,
    Request,
    Served,
    cut,
    file_server,
    redirect,
    serve,
    status,
)

PARTS = [(0, 10), (100, 5000), (299_990, 300_000)]


def address(
    server: FileServer, path: str = PATH, size: int = 0, own: TokenFor | None = None
) -> AddressInParts:
    return Downloader(
        own or NO_CREDENTIALS, LocalLimits(rate=10_000.0), timing=QUICK, context=server.context
    ).in_parts(server.url + path, size)


@pytest.fixture
def served() -> Iterator[FileServer]:
    with file_server() as server:
        server.files[PATH] = Served(data=DATA)
        yield server


@pytest.fixture
def other_server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


def test_parts_are_the_files_own_bytes(served: FileServer) -> None:
    file = address(served)
    assert file.size() == len(DATA)
    assert file.read(PARTS) == [DATA[begin:end] for begin, end in PARTS]
    assert file.read([]) == []
    assert served.asked[0].headers["range"] == "bytes=0-0"


def test_parts_of_a_known_file_are_asked_for_at_once(served: FileServer) -> None:
    file = address(served)
    assert file.read([(0, 9)]) == [DATA[:9]]
    all_there = threading.Barrier(len(PARTS), timeout=30)

    def when_all_are_there(request: Request) -> None:
        all_there.wait()
        serve(request)

    served.always[PATH] = when_all_are_there
    assert file.read(PARTS) == [DATA[begin:end] for begin, end in PARTS]


def test_the_token_goes_to_its_own_host_and_the_led_to_address_is_asked_again(
    served: FileServer, other_server: FileServer
) -> None:
    served.always["/signed"] = redirect(f"{other_server.url}{PATH}?signature=1")
    other_server.files[PATH] = Served(data=DATA)
    file = address(served, "/signed", own=TokenFor(served.url))
    assert file.read(PARTS) == [DATA[begin:end] for begin, end in PARTS]
    assert [asked.headers.get("authorization") for asked in served.asked] == [f"Bearer {TOKEN}"]
    assert {asked.headers.get("authorization") for asked in other_server.asked} == {None}


def test_an_expired_signature_is_renewed(served: FileServer, other_server: FileServer) -> None:
    served.always["/signed"] = redirect(f"{other_server.url}{PATH}?signature=1")
    other_server.files[PATH] = Served(data=DATA)
    file = address(served, "/signed")
    assert file.read([(0, 9)]) == [DATA[:9]]
    other_server.acts[PATH] = [status(403, b"Request has expired")]
    assert file.read([(9, 19)]) == [DATA[9:19]]
    assert len(served.asked) == 2


def test_a_cut_connection_is_tried_again(served: FileServer) -> None:
    served.acts[PATH] = [serve, cut(20), cut(0)]
    assert address(served).read([(0, 9), (9, 90)]) == [DATA[:9], DATA[9:90]]
    served.acts[PATH] = [cut(1)] * 3
    with pytest.raises(errors.ConnectionFailedError):
        address(served).read([(0, 90)])


def changed(tag: str) -> Served:
    return Served(data=bytes(len(DATA)), etag=tag)


def test_parts_of_two_editions_never_come_together(served: FileServer) -> None:
    file = address(served)
    file.read([(0, 9)])
    served.files[PATH] = changed('"v2"')
    with pytest.raises(errors.UnlikeRecordError, match="was replaced while it was read"):
        file.read([(9, 19)])
    served.files[PATH] = Served(data=DATA[:1000])
    with pytest.raises(errors.UnlikeRecordError, match="replaced meanwhile"):
        file.read([(9, 19)])
    with pytest.raises(errors.UnlikeRecordError, match="shorter than it was"):
        file.read([(2000, 2010)])


def test_a_file_that_is_not_its_record_is_refused(served: FileServer) -> None:
    with pytest.raises(errors.UnlikeRecordError, match="300000 bytes, 5 are expected"):
        address(served, size=5).read([(0, 9)])


def whole(request: Request) -> None:
    request.answer(200, DATA)


def of_unknown_size(request: Request) -> None:
    request.answer(206, DATA[:9], Content_Range="bytes 0-8/*")


def of_no_edition(request: Request) -> None:
    request.answer(206, DATA[:9], Content_Range=f"bytes 0-8/{len(DATA)}")


@pytest.mark.parametrize("act", [whole, of_unknown_size, of_no_edition])
def test_a_server_without_ranges_is_told(served: FileServer, act: Act) -> None:
    served.always[PATH] = act
    with pytest.raises(WholeOnlyError, match="fetched whole"):
        address(served).read([(0, 9)])


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (status(200, b"<!DOCTYPE html><p>Sign in"), errors.CredentialsRefusedError),
        (status(401), errors.TokenRefusedError),
        (status(404), errors.NotPublishedError),
        (status(503), errors.ServerBusyError),
        (status(206, DATA[5:14], Content_Range="bytes 5-13/300000"), errors.AnswerBrokenError),
        (
            status(206, DATA[:5], Content_Range="bytes 0-8/300000", ETag='"v1"'),
            errors.AnswerBrokenError,
        ),
        (
            status(206, DATA[:20], Content_Range="bytes 0-8/300000", ETag='"v1"'),
            errors.AnswerBrokenError,
        ),
        (
            status(206, DATA[:9], Content_Range="bytes 0-8/300000", Content_Encoding="gzip"),
            errors.DownloadFailedError,
        ),
    ],
)
def test_no_other_answer_is_taken_for_a_part(
    served: FileServer, act: Act, error: type[Exception]
) -> None:
    served.always[PATH] = act
    with pytest.raises(error):
        address(served).read([(0, 9)])


def test_parts_of_a_file_system() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/parts/a.hdf", DATA)
    files = RemoteFiles("memory://parts")
    file = files.in_parts("a.hdf", len(DATA))
    assert file.size() == len(DATA)
    assert file.read(PARTS) == [DATA[begin:end] for begin, end in PARTS]
    memory.pipe("/parts/a.hdf", DATA[:-1])
    with pytest.raises(errors.UnlikeRecordError, match="replaced while it was read"):
        file.read([(0, 9)])
    with pytest.raises(errors.UnlikeRecordError, match="replaced"):
        files.in_parts("a.hdf", len(DATA)).read([(0, 9)])
    memory.rm("/parts/a.hdf")
    with pytest.raises(errors.NotPublishedError):
        files.in_parts("a.hdf", len(DATA)).read([(0, 9)])


def test_a_file_of_this_machine_is_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf"
    path.write_bytes(DATA)
    file = LocalFiles(tmp_path).in_parts("a.hdf", len(DATA))
    assert file.read(PARTS) == [DATA[begin:end] for begin, end in PARTS]
    edition = file.edition
    path.write_bytes(DATA[:-1])
    with pytest.raises(errors.UnlikeRecordError, match="replaced while it was read"):
        file.read([(0, 9)])
    assert file.edition == edition
    with pytest.raises(errors.NotPublishedError):
        LocalFiles(tmp_path / "..").in_parts("../a.hdf", 5).read([(0, 9)])
