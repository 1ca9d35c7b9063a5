"""What a process keeps that reads strangers' files: seen in forks that are confined."""

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from processes.reading_rights import (
    can_shut_in,
    packages_elsewhere,
    shut_in,
    shut_in_reader,
)

pytestmark = [
    pytest.mark.skipif(not can_shut_in(), reason="this kernel has no Landlock"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]
OTHER = 54321
_LIBC = ctypes.CDLL(None)


def in_fork(work: Callable[[], bytes]) -> bytes:
    """Return what some work says in a fork of this process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, work())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def capabilities() -> bytes:
    """The capabilities of this process: effective, permitted, inheritable, twice."""
    data = ctypes.create_string_buffer(24)
    header = struct.pack("=Ii", 0x20080522, 0)
    assert _LIBC.capget(header, data) == 0
    return data.raw


def test_a_reader_keeps_of_root_the_passing_of_closed_files_alone() -> None:
    def work() -> bytes:
        assert shut_in_reader()
        bounding = [number for number in range(64) if _LIBC.prctl(23, number, 0, 0, 0) == 1]
        return capabilities() + bytes(bounding)

    said = in_fork(work)
    low = struct.unpack("=6I", said[:24])
    here = struct.unpack("=6I", capabilities())[1]
    assert low == (here & 6, here & 6, here & 6, 0, 0, 0)
    assert set(said[24:]) <= {1, 2}


def test_a_reader_of_root_opens_what_it_is_given_of_others(tmp_path: Path) -> None:
    """As root's commands could before: the other's files alone that it is given."""
    closed = tmp_path / "closed"
    closed.mkdir()
    given, secret, made = closed / "given", closed / "secret", closed / "made"
    made.mkdir()
    for path in (given, secret):
        path.write_bytes(path.name.encode())
        path.chmod(0o600)
        os.chown(path, OTHER, OTHER)
    for path in (closed, made):
        path.chmod(0o700)
        os.chown(path, OTHER, OTHER)

    def work() -> bytes:
        assert shut_in_reader([given], [made])
        (made / "new").write_bytes(b"new")
        try:
            return secret.read_bytes()
        except PermissionError:
            return given.read_bytes()

    assert in_fork(work) == b"given"
    assert (made / "new").read_bytes() == b"new"


def test_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"file")
    odd = [tmp_path / "gone", file / "below", tmp_path / "loop", file]
    (tmp_path / "loop").symlink_to("loop")

    def work() -> bytes:
        assert shut_in_reader(odd)
        return file.read_bytes()

    assert in_fork(work) == b"file"


@pytest.mark.parametrize("name", ["site-packages", "dist-packages"])
def test_packages_outside_our_python_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As of an installation for one user: without them, libraries of a maker miss their data."""
    place = tmp_path / name
    place.mkdir()
    (place / "data").write_bytes(b"data")
    monkeypatch.syspath_prepend(str(place))

    def work() -> bytes:
        shut_in([], [], shared=True)
        return (place / "data").read_bytes()

    assert packages_elsewhere()[0] == str(place)
    assert in_fork(work) == b"data"
