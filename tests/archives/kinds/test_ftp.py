"""An FTP server laid out as an archive: listings, transfers, and each of their faults."""

import errno
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from archives import errors
from archives.fetch.limits import LocalLimits
from archives.fetch.partial import Partial
from archives.fetch.timing import Timing
from archives.kinds.ftp import FtpArchive
from archives.model import GranuleRecord
from tasks.bag.categories import Category
from tasks.service.classify import classify
from tests.archives.catalogues import minutes, swath_name
from tests.archives.ftp_servers import (
    Act,
    FTPHandler,
    FtpServed,
    ftp_server,
    hang_up,
    reply,
    silent,
)
from tests.archives.servers import certificate, granule

DAY = date(2018, 1, 1)
DATA = granule(300_000)
NAME = swath_name(minutes(1)[0])
BELOW = "61/MYD04_L2/2018"
YEAR = f"/allData/{BELOW}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for day in ("001", "003"):
        folder = tmp_path / "ftp" / "allData" / "61" / "MYD04_L2" / "2018" / day
        folder.mkdir(parents=True)
        for start in minutes(3, int(day)):
            (folder / swath_name(start)).write_bytes(DATA)
        (folder / "readme.txt").write_text("no granule")
    (tmp_path / "ftp" / "allData" / "61" / "MYD04_L2" / "2018" / "Recent").mkdir()
    return tmp_path / "ftp"


@pytest.fixture
def server(root: Path) -> Iterator[FtpServed]:
    with ftp_server(root) as running:
        yield running


def archive(url: str, stall: float = 20.0) -> FtpArchive:
    timing = Timing(connect=20.0, stall=stall, pause=0.01)
    return FtpArchive(f"{url}/allData", LocalLimits(rate=10_000.0), timing=timing)


def found(of: FtpArchive) -> list[GranuleRecord]:
    return list(of.search("MYD04_L2", "061", DAY, date(2018, 12, 31)))


@pytest.mark.parametrize("mlsd", [True, False])
def test_days_are_listed_in_order(root: Path, mlsd: bool) -> None:
    with ftp_server(root, mlsd=mlsd) as server:
        records = found(archive(server.url))
    assert [r.name for r in records] == [swath_name(s) for d in (1, 3) for s in minutes(3, d)]
    assert {r.size for r in records} == {len(DATA)}
    assert records[0].url == f"{server.url}/allData/61/MYD04_L2/2018/001/{NAME}"
    assert records[0].source == f"{server.url}/allData"


def test_what_is_not_there_is_an_empty_answer(server: FtpServed) -> None:
    of = archive(server.url)
    assert list(of.search("MOD99", "61", DAY, DAY)) == []
    assert list(of.search("MYD04_L2", "6", DAY, DAY)) == []
    (held,) = of.holdings("MYD04_L2")
    assert (held.collection, held.first, held.last) == ("61", DAY, date(2018, 12, 31))
    assert of.holdings("MOD99") == []


def test_a_granule_arrives_whole(server: FtpServed, tmp_path: Path) -> None:
    of = archive(server.url)
    told: list[int] = []
    record = found(of)[0]
    fetched = of.fetch(record, tmp_path / "in" / NAME, lambda so_far, _: told.append(so_far))
    assert fetched.path.read_bytes() == DATA
    assert told[-1] == len(DATA)
    assert [path.name for path in (tmp_path / "in").iterdir()] == [NAME]


def test_a_cut_transfer_goes_on_where_it_was(server: FtpServed, tmp_path: Path) -> None:
    of = archive(server.url)
    record = found(of)[0]
    server.cut_after.append(100_000)
    assert of.fetch(record, tmp_path / NAME).path.read_bytes() == DATA
    rests = [int(c.split()[1]) for c in server.commands if c.startswith("REST ")]
    assert rests
    assert 0 < rests[0] <= 100_000


def test_a_transfer_of_another_attempt_is_taken_up(server: FtpServed, tmp_path: Path) -> None:
    of = archive(server.url)
    record = found(of)[0]
    server.cut_after.extend([100_000, 50_000])
    with pytest.raises(errors.ConnectionFailedError) as caught:
        of.fetch(record, tmp_path / NAME)
    assert classify(caught.value).category is Category.CONNECTION_FAILURE
    assert not (tmp_path / NAME).exists()
    assert archive(server.url).fetch(record, tmp_path / NAME).path.read_bytes() == DATA


def test_a_file_that_changed_meanwhile_is_fetched_anew(
    server: FtpServed, root: Path, tmp_path: Path
) -> None:
    of = archive(server.url)
    record = replace(found(of)[0], size=0)
    server.cut_after.extend([100_000, 50_000])
    with pytest.raises(errors.ConnectionFailedError):
        of.fetch(record, tmp_path / NAME)
    other = granule(200_000, first=5)
    (path,) = root.rglob(NAME)
    path.write_bytes(other)
    assert of.fetch(record, tmp_path / NAME).path.read_bytes() == other


def test_a_size_that_is_not_the_listed_one_is_refused(server: FtpServed, tmp_path: Path) -> None:
    of = archive(server.url)
    record = replace(found(of)[0], size=7)
    with pytest.raises(errors.DownloadFailedError, match="out of date"):
        of.fetch(record, tmp_path / NAME)


def test_a_wrong_checksum_and_a_web_page_leave_nothing(
    server: FtpServed, root: Path, tmp_path: Path
) -> None:
    of = archive(server.url)
    record = replace(found(of)[0], checksum="0" * 32, checksum_type="md5")
    with pytest.raises(errors.DownloadFailedError, match="md5"):
        of.fetch(record, tmp_path / NAME)
    (path,) = root.rglob(NAME)
    path.write_bytes(b"<!DOCTYPE html><html><body>Sign in</body></html>" + b" " * 100)
    with pytest.raises(errors.CredentialsRefusedError):
        of.fetch(replace(record, size=0), tmp_path / NAME)
    assert not (tmp_path / NAME).exists()


def test_a_record_cannot_lead_out_of_the_archive(server: FtpServed, tmp_path: Path) -> None:
    of = archive(server.url)
    record = replace(found(of)[0], url=f"{server.url}/allData/../secret.hdf")
    with pytest.raises(errors.NotPublishedError):
        of.fetch(record, tmp_path / "x.hdf")


def test_user_and_password_stay_out_of_records_and_messages(root: Path, tmp_path: Path) -> None:
    with ftp_server(root, user="reader", password="hush-hush") as server:
        host = server.url.removeprefix("ftp://")
        of = archive(f"ftp://reader:hush-hush@{host}")
        record = found(of)[0]
        assert of.fetch(record, tmp_path / NAME).size == len(DATA)
        assert "hush" not in f"{record} {of.name}"
        with pytest.raises(errors.TokenRefusedError) as caught:
            found(archive(f"ftp://reader:wrong@{host}"))
    assert classify(caught.value).category is Category.CREDENTIALS_REFUSED
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "act", "kind", "category"),
    [
        ("USER", reply("421 Too many users."), errors.ServerBusyError, Category.SERVER_BUSY),
        ("PASS", reply("530 No."), errors.TokenRefusedError, Category.CREDENTIALS_REFUSED),
        ("MLSD", reply("450 Later."), errors.ServerBusyError, Category.SERVER_BUSY),
        ("MLSD", reply("nonsense"), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        ("MLSD", silent, errors.ArchiveTimeoutError, Category.OPERATION_TIMEOUT),
        ("MLSD", hang_up, errors.ConnectionFailedError, Category.CONNECTION_FAILURE),
    ],
)
def test_each_fault_of_a_listing_has_its_error(
    server: FtpServed,
    command: str,
    act: Act,
    kind: type[errors.ArchiveError],
    category: Category,
) -> None:
    server.instead[command] = [act]
    with pytest.raises(errors.ArchiveError) as caught:
        found(archive(server.url, stall=0.5 if act is silent else 20.0))
    assert type(caught.value) is kind
    assert classify(caught.value).category is category


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("550 Internal error.", errors.AnswerBrokenError),
        ("550 Permission denied.", errors.NotPermittedError),
        ("250 " + "x" * 9000, errors.AnswerBrokenError),
    ],
    ids=["lost", "forbidden", "endless"],
)
def test_a_day_that_is_named_and_not_listed_is_no_empty_day(
    server: FtpServed, said: str, kind: type[errors.ArchiveError]
) -> None:
    def year_first(handler: FTPHandler) -> None:
        server.instead["MLSD"] = [reply(said)]
        FTPHandler.pre_process_command(handler, f"MLSD {YEAR}", "MLSD", YEAR)

    server.instead["MLSD"] = [year_first]
    with pytest.raises(errors.ArchiveError) as caught:
        found(archive(server.url))
    assert type(caught.value) is kind


def test_names_of_files_are_any(server: FtpServed, root: Path, tmp_path: Path) -> None:
    of = archive(server.url)
    (path,) = root.rglob(NAME)
    folder = path.parents[1] / "a#b %41"
    folder.mkdir()
    path.rename(folder / NAME)
    record = replace(found(of)[0], url=f"{server.url}/allData/{quote(f'{BELOW}/a#b %41/{NAME}')}")
    assert of.fetch(record, tmp_path / NAME).path.read_bytes() == DATA
    broken = replace(record, url=f"{server.url}/allData/{BELOW}/a%0d%0aDELE.hdf")
    with pytest.raises(errors.AnswerBrokenError):
        of.fetch(broken, tmp_path / "broken.hdf")


def test_without_a_date_a_transfer_starts_over(
    server: FtpServed, root: Path, tmp_path: Path
) -> None:
    of = archive(server.url)
    record = found(of)[0]
    server.instead["MDTM"] = [reply("502 No.") for _ in range(3)]
    server.cut_after.extend([100_000, 50_000])
    with pytest.raises(errors.ConnectionFailedError):
        of.fetch(record, tmp_path / NAME)
    other = granule(len(DATA), first=5)  # of the same size
    (path,) = root.rglob(NAME)
    path.write_bytes(other)
    assert of.fetch(record, tmp_path / NAME).path.read_bytes() == other


def test_a_full_disk_is_seen_before_a_byte_comes_and_is_no_fault_of_the_server(
    server: FtpServed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = archive(server.url)
    record = found(of)[0]
    server.commands.clear()
    with monkeypatch.context() as patched:
        patched.setattr(
            "archives.fetch.partial.shutil.disk_usage", lambda _: SimpleNamespace(free=1000)
        )
        with pytest.raises(OSError, match="bytes free") as caught:
            of.fetch(record, tmp_path / NAME)
    assert classify(caught.value).category is Category.OUT_OF_DISK
    assert not any(command.startswith("RETR") for command in server.commands)

    def full(_partial: Partial, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Partial, "append", full)
    with pytest.raises(OSError, match="No space left") as caught:
        of.fetch(record, tmp_path / NAME)
    assert classify(caught.value).category is Category.OUT_OF_DISK


def test_a_server_nobody_vouches_for_is_told_no_password(tmp_path: Path) -> None:
    heard: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def serve() -> None:
            plain, _ = listening.accept()
            plain.settimeout(20)
            with plain:
                plain.sendall(b"220 ready\r\n")
                heard.append(plain.recv(1000))
                plain.sendall(b"234 go on\r\n")
                with (
                    suppress(OSError),
                    context.wrap_socket(
                        plain, server_side=True, do_handshake_on_connect=False
                    ) as secret,
                ):
                    secret.do_handshake()
                    while line := secret.recv(1000):
                        heard.append(line)
                        secret.sendall(b"331 password\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        with pytest.raises(errors.ConnectionFailedError, match="certificate"):
            found(archive(f"ftps://alice:secret@127.0.0.1:{port}"))
        thread.join()
    assert heard == [b"AUTH TLS\r\n"]


def test_a_granule_that_is_gone_is_not_published(
    server: FtpServed, root: Path, tmp_path: Path
) -> None:
    of = archive(server.url)
    record = found(of)[0]
    (path,) = root.rglob(NAME)
    path.unlink()
    with pytest.raises(errors.NotPublishedError):
        of.fetch(record, tmp_path / NAME)


def test_no_server_is_a_failed_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        with pytest.raises(errors.ConnectionFailedError):
            found(archive(f"ftp://127.0.0.1:{taken.getsockname()[1]}"))
