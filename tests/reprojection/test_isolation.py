"""A crash, hang or memory hunger while reading costs one call."""

import contextlib
import ctypes
import fcntl
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from modis.tile import Tile
from processes import proctree
from processes.reading_rights import can_shut_in
from reprojection import isolation
from reprojection.errors import ReprojectionError, UnknownLayerError, UnreadableGranuleError
from reprojection.isolation import ReadingProcess, Rights, run_in_fork
from reprojection.read.granule import open_granule
from reprojection.read.outline import Outline
from reprojection.sample.hdfeos_write import write_granule
from tests.reprojection.reading_samples import small_tile
from tests.waiting import until

pytestmark = pytest.mark.slow


def read_missing_layer(path: Path) -> None:
    with open_granule(path) as found:
        found.read("Nothing")


def test_a_crash_is_one_error_and_the_next_call_works(tmp_path: Path) -> None:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile())
    with ReadingProcess() as reader:
        with pytest.raises(UnreadableGranuleError, match="signal 6"):
            reader.run(os.abort)
        outline = reader.read_outline(path)
        assert outline is not None
        assert (outline.product, outline.tile) == ("MCD15A2", (17, 3))


def test_calls_share_a_process_until_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile())
    with ReadingProcess() as reader:
        first = reader.run(os.getpid)
        assert reader.run(os.getpid) == first
        with pytest.raises(UnknownLayerError):
            reader.run(read_missing_layer, path)
        second = reader.run(os.getpid)
        assert second != first
        with pytest.raises(UnreadableGranuleError, match="signal 6"):
            reader.run(os.abort)
        assert reader.run(os.getpid) not in (first, second)


def test_a_process_answers_a_bounded_number_of_calls() -> None:
    with ReadingProcess() as reader:
        first = reader.run(os.getpid)
        used = [reader.run(os.getpid) for _ in range(isolation._CALLS_OF_A_FORK)]
    assert used[:-1] == [first] * (len(used) - 1)
    assert used[-1] != first


def test_a_hang_ends_at_its_limit() -> None:
    with (
        ReadingProcess(seconds=0.7) as reader,
        pytest.raises(UnreadableGranuleError, match=r"0\.7 s"),
    ):
        reader.run(time.sleep, 60)


def test_hunger_ends_at_its_limit() -> None:
    with ReadingProcess(memory=1 << 30) as reader:
        with pytest.raises(UnreadableGranuleError, match="out of memory"):
            reader.run(bytearray, 2 << 30)
        assert reader.run(len, b"fine") == 4


def test_errors_come_through_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile())
    with ReadingProcess() as reader:
        with pytest.raises(UnknownLayerError) as problem:
            reader.run(read_missing_layer, path)
        assert problem.value.layer == "Nothing"
        assert "Lai_1km" in problem.value.known


def test_what_cannot_be_read_has_no_outline(tmp_path: Path) -> None:
    path = tmp_path / "page.hdf"
    path.write_text("<html>")
    with ReadingProcess() as reader:
        assert reader.read_outline(path) is None
        assert reader.read_outline(tmp_path / "gone.hdf") is None


class Reader(ReadingProcess):
    """Counts calls, and crashes at a file, or at each call for several."""

    def __init__(self, crash_at: Path | None = None) -> None:
        super().__init__()
        self.calls = 0
        self.crash_at = crash_at

    def run(self, function: Callable[..., object], *args: object, **kwargs: object) -> object:  # type: ignore[override]
        self.calls += 1
        (asked,) = args
        if self.crash_at and (asked == self.crash_at or isinstance(asked, tuple)):
            return super().run(os.abort)
        return super().run(function, *args, **kwargs)


@pytest.fixture
def tiles(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{number}.hdf" for number in range(7)]
    for number, path in enumerate(found):
        write_granule(path, small_tile(tile=(17, number)))
    return found


def places(found: Sequence[Outline | None]) -> list[Tile | None]:
    return [None if one is None else one.tile for one in found]


def test_outlines_of_many_files_are_read_by_few_calls_and_a_bad_one_costs_no_other(
    tiles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiles[2].write_text("<html>")
    monkeypatch.setattr(isolation, "_FILES_OF_A_FORK", 4)
    with Reader() as reader:
        found = places(reader.read_outlines(tiles))
    assert found == [None if number == 2 else (17, number) for number in range(7)]
    assert reader.calls == 2, "what follows a bad file is read by another fork"


def test_a_file_that_ends_its_fork_costs_no_other(tiles: list[Path]) -> None:
    with Reader(crash_at=tiles[1]) as reader:
        found = places(reader.read_outlines(tiles))
    assert found == [None if number == 1 else (17, number) for number in range(7)]


FILES = [Path("one.hdf"), Path("two.hdf")]


def test_a_fork_answers_and_hands_errors_on(tmp_path: Path) -> None:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile())
    assert run_in_fork([path], len, b"four") == 4
    with pytest.raises(UnknownLayerError):
        run_in_fork([path], read_missing_layer, path)


def test_a_fork_that_crashes_is_an_error_that_names_the_files() -> None:
    with pytest.raises(UnreadableGranuleError, match=r"one\.hdf, two\.hdf crashed \(signal 9\)"):
        run_in_fork(FILES, signal.raise_signal, signal.SIGKILL)
    with pytest.raises(UnreadableGranuleError, match="ended the reading process"):
        run_in_fork(FILES, os._exit, 3)
    with pytest.raises(ReprojectionError, match="coarser pixels"):
        run_in_fork(FILES, bytearray, 1 << 60)


@pytest.mark.slow
def test_a_fork_that_hangs_is_an_error_that_names_the_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reprojection.isolation._PATIENCE", 1.0)
    assert run_in_fork(FILES, time.sleep, 2.0) is None  # the lock is free meanwhile
    with pytest.raises(UnreadableGranuleError, match=r"one\.hdf, two\.hdf hung for 1 s"):
        run_in_fork(FILES, ctypes.PyDLL(None).pause)  # the lock is kept


SLEEPER = """
import sys, time
from reprojection.isolation import run_in_fork
def sleep():
    print("asleep", flush=True)
    time.sleep(60)
run_in_fork([], sleep)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_fork_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"asleep\n"
        parent.send_signal(signal.SIGKILL)
        # The fork holds the pipe's other end for as long as it lives.
        assert parent.stdout.read() == b""


def stay(to: Path) -> None:
    (to / "begun").write_text(str(os.getpid()), "ascii")
    while True:
        signal.pause()


def test_a_call_ends_with_the_process_that_forked_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the middle of a call that does not return, and where its caller is killed, too."""
    monkeypatch.setattr(proctree, "kill_group", lambda _group: None)  # what the caller would do
    begun = tmp_path / "begun"
    with ReadingProcess(writing=tmp_path) as reading, ThreadPoolExecutor(1) as threads:
        call = threads.submit(reading.run, stay, tmp_path)
        until(lambda: begun.exists() and bool(begun.read_text("ascii")))
        fork = int(begun.read_text("ascii"))
        try:
            assert reading._child is not None
            reading._child.kill()
            until(lambda: not proctree.alive(fork), 20)
        finally:
            if proctree.alive(fork):
                proctree.kill(fork)
        with pytest.raises(UnreadableGranuleError):
            call.result()


def attacks(given: Path, secret: str, port: int) -> Mapping[str, Callable[[], object]]:
    """What a decoder that a file took over may try; `secret` is a path that it is not given."""
    beside = Path(secret)
    parent = Path(f"/proc/{os.getppid()}")
    return {
        "read a secret": beside.read_bytes,
        "read it by a link to it": (given.parent / "link").read_bytes,
        "list the folder": lambda: [*beside.parent.iterdir()],
        "change the input": lambda: given.open("r+b"),
        "cut the input": lambda: os.truncate(given, 0),
        "remove the input": given.unlink,
        "change its rights": lambda: given.chmod(0o777),
        "write": (beside.parent / "new").touch,
        "write for others": lambda: Path("/tmp/swathmill-hostile").touch(),
        "read the environment": (parent / "environ").read_bytes,
        "read the memory": lambda: os.open(parent / "mem", os.O_RDONLY),
        "connect": lambda: socket.create_connection(("127.0.0.1", port), 1),
        "listen": lambda: socket.create_server(("127.0.0.1", 0)),
        "connect to a process": lambda: socket.socket(socket.AF_UNIX),
    }


def done(given: Path, secret: str, port: int) -> list[str]:
    """Try each attack, and the folder's listing through the input; return what was possible."""
    given.read_bytes()
    possible = []
    for name, attack in attacks(given, secret, port).items():
        try:
            attack()
        except OSError:
            continue
        possible.append(name)
    return [*possible, *(name for name in os.environ if name == "SWATHMILL_SECRET")]


def canary(folder: Path) -> Path:
    """A file that is given, beside a secret and a link to it."""
    (folder / "secrets.json").write_text("key")
    (folder / "link").symlink_to(folder / "secrets.json")
    given = folder / "given.hdf"
    given.write_bytes(b"bytes")
    return given


needs_landlock = pytest.mark.skipif(not can_shut_in(), reason="this kernel has no Landlock")


@needs_landlock
def test_a_decoder_that_is_taken_over_reaches_its_input_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWATHMILL_SECRET", "key")
    given = canary(tmp_path)
    before = sorted(tmp_path.iterdir())
    with socket.create_server(("127.0.0.1", 0)) as server, ReadingProcess() as reader:
        port = server.getsockname()[1]
        assert reader.run(done, given, str(tmp_path / "secrets.json"), port) == []
    assert sorted(tmp_path.iterdir()) == before
    assert given.read_bytes() == b"bytes"


@needs_landlock
def test_a_fork_reaches_what_its_rights_name(tmp_path: Path) -> None:
    """As the test before, in a fork of this process."""
    given = canary(tmp_path)
    secret = str(tmp_path / "secrets.json")
    assert in_fork(Rights((given,)), done, given, secret, 9) == []
    assert in_fork(Rights((given, tmp_path)), done, given, secret, 9) == [
        "read a secret",
        "read it by a link to it",
        "list the folder",
    ]
    made = tmp_path / "made"
    made.mkdir()
    assert in_fork(Rights((given,), (made,)), written, str(made / "new")) == 3
    assert (made / "new").read_bytes() == b"new"


def written(to: str) -> int:
    return Path(to).write_bytes(b"new")


def in_fork(rights: Rights, function: Callable[..., object], *args: object) -> object:
    """Call a function in a fork of this process as in one of the child."""
    calls, asking = os.pipe()
    reading, answers = os.pipe()
    fork = isolation._Fork(calls, answers, rights)
    try:
        answer = fork.answer(pickle.dumps((rights, function, args, {})))
        assert answer is not None
        return isolation._result(answer)
    finally:
        for pipe in (calls, asking, reading, answers):
            os.close(pipe)
        if fork.goes_on:
            fork.end()


def say_in_place_of_the_child(to: str) -> None:
    """Write what makes a folder when it is unpickled, to whatever can be written to."""
    said = b"-" + pickle.dumps(_Touching(to))
    for pipe in range(3, 64):
        with contextlib.suppress(OSError):
            if fcntl.fcntl(pipe, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                os.write(pipe, len(said).to_bytes(8, "big") + said)
    os._exit(0)


class _Touching:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (self._path,)


def test_an_answer_runs_nothing_in_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    with ReadingProcess() as reader:
        with pytest.raises(UnreadableGranuleError, match="cannot be taken"):
            reader.run(say_in_place_of_the_child, str(made))
        assert reader.run(len, b"fine") == 4
    hostile = pickle.dumps(_Touching(str(made)))
    monkeypatch.setattr("processes.plain_answers.dump", lambda _: hostile)
    with pytest.raises(
        UnreadableGranuleError, match=r"one\.hdf, two\.hdf gave an answer that cannot"
    ):
        run_in_fork(FILES, len, b"four")
    assert not made.exists()


@needs_landlock
def test_a_fork_with_rights_is_confined_to_them(tmp_path: Path) -> None:
    given = canary(tmp_path)
    secret = str(tmp_path / "secrets.json")
    assert run_in_fork(Rights((given,)), done, given, secret, 9) == []
    assert run_in_fork(Rights((given,), (tmp_path,)), written, str(tmp_path / "new")) == 3
    with pytest.raises(OSError, match=r"denied|too large"):
        run_in_fork(Rights((given,)), written, str(tmp_path / "new"))


def test_calls_of_other_files_get_a_process_of_their_own(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.write_text(path.name)
    with ReadingProcess() as reader:
        first = reader.run(process_of, one)
        assert reader.run(process_of, one) == first
        assert reader.run(process_of, other) != first


def test_calls_of_other_files_get_a_process_of_their_own_in_the_child(tmp_path: Path) -> None:
    """As the test before, with the child's loop in a fork of this process."""
    calls, asking = os.pipe()
    reading, answers = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(calls, 0)
            os.dup2(answers, 1)
            os.close(asking)
            sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
            isolation.serve(resource.RLIM_INFINITY)
        finally:
            os._exit(0)
    found = []
    with os.fdopen(asking, "wb") as pipe:
        for name in ("one", "one", "other"):
            call: object = (Rights((tmp_path / name,)), process_of, (tmp_path / name,), {})
            isolation._send(pipe, pickle.dumps(call))
            found.append(isolation._result(isolation._receive(reading, None)))
    os.waitpid(pid, 0)
    for one in (calls, reading, answers):
        os.close(one)
    assert found[0] == found[1] != found[2]


def test_a_fork_has_neither_calls_nor_answers() -> None:
    calls, asking = os.pipe()
    reading, answers = os.pipe()
    fork = isolation._Fork(calls, answers, Rights())
    said = fork.answer(pickle.dumps((Rights(), are_nothing, ([calls, answers],), {})))
    fork.end()
    for pipe in (calls, asking, reading, answers):
        os.close(pipe)
    assert said is not None
    assert isolation._result(said) is True


def are_nothing(pipes: list[int]) -> bool:
    return all(os.path.samestat(os.fstat(one), Path(os.devnull).stat()) for one in pipes)


def test_without_landlock_a_reader_writes_no_file_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("processes.reading_rights.can_shut_in", lambda: False)
    with pytest.raises(OSError, match="too large"):
        run_in_fork(Rights(), written, str(tmp_path / "new"))
    assert run_in_fork(Rights((), (tmp_path,)), written, str(tmp_path / "new")) == 3


def process_of(_path: Path) -> int:
    return os.getpid()


@needs_landlock
def test_only_a_call_with_a_folder_to_write_writes(tmp_path: Path) -> None:
    with ReadingProcess() as reader, pytest.raises(OSError, match=r"denied|too large"):
        reader.run(written, str(tmp_path / "new"))
    with ReadingProcess(writing=tmp_path) as reader:
        assert reader.run(written, str(tmp_path / "new")) == 3
        with pytest.raises(PermissionError):
            reader.run(written, str(tmp_path.parent / "new"))


def test_a_call_writes_no_file_larger_than_it_may(tmp_path: Path) -> None:
    with ReadingProcess(writing=tmp_path, most_written=3) as reader:
        assert reader.run(written, str(tmp_path / "new")) == 3
    with (
        ReadingProcess(writing=tmp_path, most_written=2) as reader,
        pytest.raises(OSError, match="too large"),
    ):
        reader.run(written, str(tmp_path / "new"))
    with pytest.raises(OSError, match="too large"):
        run_in_fork(Rights((), (tmp_path,), 2), written, str(tmp_path / "new"))


@pytest.mark.parametrize("size", [3, 4])
def test_an_answer_has_so_many_bytes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """What a process that has been taken over announces takes no memory here."""
    monkeypatch.setattr(isolation, "_MAX_ANSWER", 3)
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "wb") as pipe:
        isolation._send(pipe, b"x" * size)
        if size == 3:
            assert isolation._receive(ours, None) == b"xxx"
        else:
            with pytest.raises(EOFError, match="an answer of 4 bytes is announced"):
                isolation._receive(ours, None)


FORKED = """
import os, sys
from pathlib import Path
import reprojection.formats.hdf4
from reprojection.isolation import ReadingProcess
from reprojection.read.outline import read_outline

def variables(folder):
    return sorted(os.environ)

with ReadingProcess() as reading:
    reading.begin(fork=True)
    first, granule = reading._child.pid, Path(sys.argv[1])
    tile = reading.run(read_outline, granule).tile
    print(Path(f"/proc/{first}/comm").read_text().strip(), tile)
    print(*reading.run(variables, granule.parent))
    reading._child.kill()
    while reading._child.poll() is None:
        pass
    print(reading.run(read_outline, granule).tile, reading._child.pid != first)
print(reading._child)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the name of a process is read of /proc")
def test_a_fork_reads_as_a_program_of_its_own_does(tmp_path: Path) -> None:
    granule = small_tile()
    write_granule(tmp_path / granule.local_name, granule)
    program = tmp_path / "program.py"
    program.write_text(FORKED)
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "OWN": "1", "HOME": "/h"}
    told = subprocess.run(
        [sys.executable, program, tmp_path / granule.local_name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    name, variables, again, after = told.stdout.splitlines()
    assert name.startswith("reader ")
    assert "OWN" not in variables.split()
    assert "HOME" in variables.split()
    assert again == name.removeprefix("reader ") + " True"
    assert after == "None"
