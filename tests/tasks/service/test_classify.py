"""Classification: each category provoked on the real parts, where they can be made to fail."""

import errno
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from azure.storage.blob import BlobServiceClient
from rasterio.errors import RasterioIOError

from archives.errors import (
    CredentialsRefusedError,
    DownloadFailedError,
    NotPublishedError,
    ServerBusyError,
)
from reprojection.errors import NoGeolocationError, UnknownLayerError, UnreadableGranuleError
from reprojection.read.granule import open_granule
from tasks.bag.categories import RULES, Category
from tasks.errors import BlobMissingError, CorruptBlobError, StorageFullError, StoreError
from tasks.service.classify import AttemptError, Diagnosis, classify, classify_exit
from tasks.service.http_status import category_of_status
from tasks.storage.azure.blobs import AzureBlobs

KEY = "a2V5" * 16


@contextmanager
def server(answer: bytes | None, *, reset: bool = False) -> Iterator[str]:
    """A server on loopback that gives one answer to everything, or none at all."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    connection.recv(65536)
                except OSError:
                    continue
                if reset:
                    linger = struct.pack("ii", 1, 0)  # close with RST
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                elif answer is None:
                    done.wait(5)
                else:
                    connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    done.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def http(status: str, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, "Connection: close", *headers, "", ""]).encode() + body


def diagnosis(provoke: Callable[[], object]) -> Diagnosis:
    try:
        provoke()
    except Exception as error:  # noqa: BLE001 - whatever comes is what is to be classified
        return classify(error, now=0.0)
    pytest.fail("nothing failed")


def get(url: str) -> None:
    httpx.get(url, timeout=0.5).raise_for_status()


def azure(url: str) -> AzureBlobs:
    text = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey={KEY};BlobEndpoint={url}/a;"
    client = BlobServiceClient.from_connection_string(
        text, retry_total=0, connection_timeout=0.5, read_timeout=0.5
    )
    return AzureBlobs(client)


def azure_error(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>m</Message></Error>'.encode()


ANSWERS = [
    (http("503 Busy", b"", "Retry-After: 7"), Category.SERVER_BUSY, 7.0),
    (http("429 Slow", b"", "Retry-After: Thu, 01 Jan 1970 00:01:00 GMT"), Category.SERVER_BUSY, 60),
    (http("401 No"), Category.CREDENTIALS_REFUSED, 0),
    (http("404 Gone"), Category.SOURCE_NOT_PUBLISHED, 0),
    (http("500 Oops"), Category.DOWNLOAD_FAILED, 0),
    (http("504 Slow"), Category.OPERATION_TIMEOUT, 0),
    (http("200 OK", b"short", length=100), Category.TRANSPORT_ERROR, 0),
    (b"this is no HTTP\r\n\r\n", Category.TRANSPORT_ERROR, 0),
    (None, Category.OPERATION_TIMEOUT, 0),
]


@pytest.mark.parametrize(("answer", "category", "asked"), ANSWERS)
def test_what_an_archive_answers(answer: bytes | None, category: Category, asked: float) -> None:
    with server(answer) as url:
        found = diagnosis(lambda: get(url))
    assert (found.category, found.asked) == (category, asked)


def test_an_archive_that_cannot_be_reached(unused_port: int) -> None:
    assert diagnosis(lambda: get(f"http://127.0.0.1:{unused_port}")).category is (
        Category.CONNECTION_FAILURE
    )
    with server(b"", reset=True) as url:
        assert diagnosis(lambda: get(url)).category is Category.CONNECTION_FAILURE
    assert diagnosis(lambda: get("http://no.such.host.invalid")).category is (
        Category.CONNECTION_FAILURE
    )


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


STORAGE = [
    ("503 Busy", "ServerBusy", ("x-ms-retry-after-ms: 1500",), Category.SERVER_BUSY, 1.5),
    ("500 Error", "OperationTimedOut", (), Category.OPERATION_TIMEOUT, 0),
    ("500 Error", "InternalError", (), Category.BLOB_READ_FAILED, 0),
    ("403 No", "AuthorizationFailure", (), Category.STORAGE_CLIENT_ERROR, 0),
    ("400 Bad", "InvalidInput", (), Category.STORAGE_CLIENT_ERROR, 0),
    ("400 Bad", "Md5Mismatch", (), Category.CORRUPT_BLOB_READ, 0),
    ("404 None", "BlobNotFound", (), Category.SOURCE_BLOB_MISSING, 0),
    ("507 Full", "InsufficientStorage", (), Category.OUT_OF_DISK, 0),
]


@pytest.mark.provokes(Category.BLOB_READ_FAILED)
@pytest.mark.parametrize(("status", "code", "headers", "category", "asked"), STORAGE)
def test_what_storage_answers(
    status: str, code: str, headers: tuple[str, ...], category: Category, asked: float
) -> None:
    head = (f"x-ms-error-code: {code}", "Content-Type: application/xml", *headers)
    with server(http(status, azure_error(code), *head)) as url:
        found = diagnosis(lambda: azure(url).get_bytes("c", "n"))
    assert (found.category, found.asked) == (category, asked)


def test_storage_that_cannot_be_reached(unused_port: int) -> None:
    refused = diagnosis(lambda: azure(f"http://127.0.0.1:{unused_port}").get_bytes("c", "n"))
    assert refused.category is Category.CONNECTION_FAILURE
    with server(None) as url:
        silent = diagnosis(lambda: azure(url).get_bytes("c", "n"))
    assert silent.category is Category.OPERATION_TIMEOUT
    with server(b"", reset=True) as url:
        cut = diagnosis(lambda: azure(url).get_bytes("c", "n"))
    assert cut.category is Category.CONNECTION_FAILURE


@pytest.mark.integration
@pytest.mark.provokes(Category.STORAGE_CLIENT_ERROR)
def test_a_blob_that_is_gone_or_changed_on_azurite(azurite: str, tmp_path: Path) -> None:
    blobs = AzureBlobs(BlobServiceClient.from_connection_string(azurite))
    blobs.create(["classify"])
    blobs.put_bytes("classify", "there", b"content")
    gone = diagnosis(lambda: blobs.get_file("classify", "gone", tmp_path / "f"))
    assert gone.category is Category.SOURCE_BLOB_MISSING
    other = diagnosis(lambda: blobs.get_file("classify", "there", tmp_path / "f", "0" * 64))
    assert other.category is Category.CORRUPT_BLOB_READ
    long_name = diagnosis(lambda: blobs.put_bytes("NO_SUCH_CONTAINER", "n", b""))
    assert long_name.category is Category.STORAGE_CLIENT_ERROR


@pytest.mark.provokes(Category.OUT_OF_DISK)
def test_a_full_disk() -> None:
    def fill() -> None:
        with Path("/dev/full").open("wb") as file:
            file.write(b"x" * 10**6)

    assert diagnosis(fill).category is Category.OUT_OF_DISK


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Can't decrement id ref count (file write failed: errno = 28, error ...)"),
        OSError("Can't write data (errno = 122, error message = 'Disk quota exceeded')"),
        RasterioIOError("cell.tif: write failed: No space left on device"),
        OSError(errno.EDQUOT, "x"),
    ],
)
def test_a_full_disk_below_a_library(error: Exception) -> None:
    assert classify(error).category is Category.OUT_OF_DISK


def test_a_full_disk_decides_wherever_it_stands_among_the_causes() -> None:
    error = DownloadFailedError("the copy broke off")
    error.__cause__ = OSError(errno.ENOSPC, "x")
    assert classify(error).category is Category.OUT_OF_DISK


WORDS = "No space left on device; errno = 28; the disk is full"


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (DownloadFailedError(WORDS), Category.DOWNLOAD_FAILED),
        (ServerBusyError(WORDS), Category.SERVER_BUSY),
        (UnreadableGranuleError(WORDS), Category.UNREADABLE_INPUT_FILE),
        (UnknownLayerError(WORDS, []), Category.CHOICE_REFUSED),
        (StoreError(WORDS), Category.STORAGE_CLIENT_ERROR),
        (AttemptError(Category.USER_CODE_FAILED, WORDS), Category.USER_CODE_FAILED),
        (ValueError(WORDS), Category.UNKNOWN),
        (ConnectionResetError(errno.ECONNRESET, WORDS), Category.CONNECTION_FAILURE),
    ],
)
def test_words_of_strangers_make_no_full_disk(error: Exception, category: Category) -> None:
    assert classify(error).category is category


def test_memory_that_is_not_there() -> None:
    assert diagnosis(lambda: np.ones(2**58)).category is Category.OUT_OF_MEMORY


def test_granules_that_cannot_be_used(tmp_path: Path) -> None:
    page = tmp_path / "page.hdf"
    page.write_text("<html>Sign in</html>", "utf-8")
    assert diagnosis(lambda: open_granule(page)).category is Category.BAD_IMAGE_FORMAT
    damaged = tmp_path / "damaged.hdf"
    damaged.write_bytes(b"\x0e\x03\x13\x01" + os.urandom(2000))
    assert diagnosis(lambda: open_granule(damaged)).category is Category.UNREADABLE_INPUT_FILE


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (UnknownLayerError("x", ["y"]), Category.CHOICE_REFUSED),
        (NoGeolocationError("x"), Category.UNREADABLE_INPUT_FILE),
        (NotPublishedError("x"), Category.SOURCE_NOT_PUBLISHED),
        (CredentialsRefusedError("x"), Category.CREDENTIALS_REFUSED),
        (BlobMissingError("c/n"), Category.SOURCE_BLOB_MISSING),
        (StorageFullError("x"), Category.OUT_OF_DISK),
        (CorruptBlobError("c/n", "a", "b"), Category.CORRUPT_BLOB_READ),
        (AttemptError(Category.USER_CODE_TIMED_OUT, "x"), Category.USER_CODE_TIMED_OUT),
    ],
)
def test_errors_of_our_own(error: Exception, category: Category) -> None:
    found = classify(error)
    assert found.category is category
    assert found.remedy == RULES[category].remedy


def test_the_delay_a_busy_archive_names_is_kept() -> None:
    assert classify(ServerBusyError("slow down", retry_after=12.5)).asked == 12.5


def test_a_cause_decides_where_the_error_itself_says_nothing() -> None:
    def fail() -> None:
        try:
            socket.create_connection(("127.0.0.1", 1), timeout=1)
        except OSError as error:
            raise StoreError("the call failed") from error

    found = diagnosis(fail)
    assert found.category is Category.CONNECTION_FAILURE
    assert found.message.startswith("the call failed (")


def test_the_unknown_keeps_its_traceback() -> None:
    def fail() -> None:
        json.loads("{")["x"]

    found = diagnosis(fail)
    assert found.category is Category.UNKNOWN
    assert "test_classify.py" in found.traceback
    assert found.message.startswith("JSONDecodeError: ")


@pytest.mark.parametrize(
    ("code", "category", "word"),
    [
        (-9, Category.OUT_OF_MEMORY, "SIGKILL, as the system does when memory runs out"),
        (-25, Category.OUT_OF_DISK, "SIGXFSZ"),
        (-11, Category.UNKNOWN, "SIGSEGV"),
        (-7, Category.UNKNOWN, "SIGBUS"),
        (-40, Category.UNKNOWN, "signal 40"),
        (3, Category.UNKNOWN, "exit code 3"),
    ],
)
def test_ends_without_a_report(code: int, category: Category, word: str) -> None:
    found = classify_exit(code)
    assert found.category is category
    assert word in found.message


def test_statuses_of_storage_and_archive_differ() -> None:
    assert category_of_status(404) is Category.SOURCE_NOT_PUBLISHED
    assert category_of_status(404, storage=True) is Category.STORAGE_CLIENT_ERROR
