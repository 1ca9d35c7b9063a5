"""The data folder: private, remembered, one stack at a time, bounded."""

import socket
import stat
from pathlib import Path

import pytest

from swathmill.errors import StackError
from swathmill.stack import ports
from swathmill.stack.folder import GIGABYTE, DataFolder, DiskUse, FolderLock, StackState, is_running


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    one = DataFolder(path=tmp_path / "data")
    one.prepare()
    return one


def test_secrets_are_made_once_and_are_the_owners_alone(folder: DataFolder) -> None:
    secrets = folder.secrets()
    assert folder.secrets() == secrets
    assert stat.S_IMODE((folder.path / "secrets.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert len(secrets.signing_key) >= 32


def test_two_folders_have_different_secrets(tmp_path: Path) -> None:
    keys = set()
    for name in ("one", "two"):
        folder = DataFolder(path=tmp_path / name)
        folder.prepare()
        keys.add(folder.secrets().account_key)
    assert len(keys) == 2


def test_damaged_secrets_are_told_and_not_replaced(folder: DataFolder) -> None:
    file = folder.path / "secrets.json"
    file.write_text("{}")
    with pytest.raises(StackError, match="damaged"):
        folder.secrets()
    assert file.read_text() == "{}"


def test_the_state_survives(folder: DataFolder) -> None:
    state = StackState(pid=7, azurite_ports=(1, 2, 3), portal_url="http://127.0.0.1:9")
    folder.write_state(state)
    assert folder.state() == state


def test_one_stack_at_a_time(folder: DataFolder) -> None:
    assert not is_running(folder)
    with FolderLock(folder):
        assert is_running(folder)
        with pytest.raises(StackError, match="already runs"), FolderLock(folder):
            pass
    assert not is_running(folder)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="cannot be written"):
        DataFolder(path=tmp_path / "file" / "data").prepare()


def test_disk_use_counts_what_the_folder_holds(folder: DataFolder) -> None:
    before = folder.disk_use(1.0).used
    (folder.mail / "large").write_bytes(b"x" * 1_000_000)
    use = folder.disk_use(1.0)
    assert 1_000_000 <= use.used - before < 1_100_000
    assert use.quota == GIGABYTE


def test_a_file_with_two_names_is_counted_once(folder: DataFolder) -> None:
    """Embedded storage and the workers' cache share their files."""
    (folder.mail / "large").write_bytes(b"x" * 1_000_000)
    before = folder.disk_use(1.0).used
    (folder.redis / "same").hardlink_to(folder.mail / "large")
    assert folder.disk_use(1.0).used == before


@pytest.mark.parametrize(
    ("used", "free", "word"),
    [(5, 9, ""), (11, 9, "quota"), (5, 0, "left")],
)
def test_a_full_disk_has_a_name(used: int, free: int, word: str) -> None:
    use = DiskUse(used=used * GIGABYTE, quota=10 * GIGABYTE, free=free * GIGABYTE)
    assert bool(use.problem) == bool(word)
    assert word in use.problem


def test_preferred_ports_are_taken_when_they_are_free_and_others_when_not() -> None:
    (free,) = ports.choose(1)
    assert ports.choose(1, preferred=[free]) == (free,)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((ports.LOOPBACK, free))
        server.listen()
        chosen = ports.choose(3, preferred=[free])
    assert free not in chosen
    assert len(set(chosen)) == 3


def test_a_chosen_port_is_kept_from_programs_that_take_any_port() -> None:
    chosen = ports.choose(20)
    for port in chosen:
        with socket.socket() as client, pytest.raises(OSError, match="in use"):
            client.bind((ports.LOOPBACK, port))
