"""A runner of the reduction pool, without a package: a connection is an attempt, and no more."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import pytest

from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import ReduceSpec
from tasks.errors import BlobMissingError, CorruptBlobError, StoreError
from tasks.settings import Settings, WrongSettingError
from tests.waiting import until
from worker.files.scratch import Scratch
from worker.pool import orders
from worker.pool import runner as runner_module
from worker.pool.orders import ALIVE, PLACE, BrokenOffError, Order, read_line, read_parts
from worker.pool.runner import Runner
from worker.pool.service import refuse_secrets
from worker.sandbox.messages import (
    Ended,
    Failed,
    Job,
    LentFile,
    Message,
    Progress,
    Saved,
    Succeeded,
    decode,
    state_path,
)
from worker.slots.lent_blobs import LENT, MADE, LentBlobs, lent_path

ENDED = Ended(exit_code=0, peak_memory=1, over_memory=False, log="")
GIVEN = b"pixels"


def order(**more: object) -> bytes:
    values = {
        "request": "r",
        "key": "4f",
        "claim": "claim",
        "spec": ReduceSpec(package="own", digest="d" * 64, outputs=("out.txt",)),
        "inputs": {},
        "lent": (LentFile(blob="artifacts/in/a.tif", size=len(GIVEN)),),
        **more,
    }
    return Order.model_validate(values).model_dump_json().encode() + b"\n"


@dataclass
class Scripted:
    """A child that does what the test says, once it is `free` to end or was killed."""

    says: Callable[[Job], list[Message]] = lambda _job: []
    ended: Ended | None = ENDED
    jobs: list[Job] = field(default_factory=list)
    given: bytes = b""
    killed: bool = False
    free: threading.Event = field(default_factory=threading.Event)

    def start(self, job: Job) -> "Scripted":
        self.jobs.append(job)
        return self

    def follow(self, heard: Callable[[Message], None]) -> Ended | None:
        (job,) = self.jobs
        path = lent_path(job.scratch, 0)
        self.given = path.read_bytes() if path.exists() else b""
        for message in self.says(job):
            heard(message)
        assert self.free.wait(10)
        return self.ended

    def kill(self) -> None:
        self.killed = True
        self.free.set()


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    made = Scratch(tmp_path, "runner")
    yield made
    made.close()


@contextmanager
def served(runner: Runner) -> Iterator[socket.socket]:
    """A connection of a worker; the runner has done with it at the end."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)

    def serve() -> None:
        with theirs:
            runner.serve(theirs)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join(10)
        assert not thread.is_alive()
        assert runner.busy == 0


def said(connection: socket.socket) -> list[bytes]:
    """All lines until the runner hangs up, without those that only show that it lives."""
    with connection.makefile("rb") as stream:
        return [line for line in stream.read().splitlines(keepends=True) if line != ALIVE]


def test_a_run_gets_what_was_lent_and_its_files_follow_its_success(scratch: Scratch) -> None:
    def makes(job: Job) -> list[Message]:
        (job.scratch / MADE).mkdir()
        (job.scratch / MADE / "out.txt").write_bytes(b"made\n")
        file = ArtifactFile(name="out.txt", blob="artifacts/a/b/out.txt", size=5, sha256="0" * 64)
        return [Progress(fraction=0.5), Succeeded(files=(file,))]

    child = Scripted(says=makes)
    child.free.set()
    with served(Runner(start=child.start, scratch=scratch, slots=1)) as connection:
        connection.sendall(order() + GIVEN)
        place, progress, success, file, ended = said(connection)
    assert (place, file) == (PLACE, b"made\n")
    assert decode(progress) == Progress(fraction=0.5)
    assert isinstance(decode(success), Succeeded)
    assert decode(ended) == ENDED
    assert child.given == GIVEN
    (job,) = child.jobs
    assert (job.key, job.claim, job.request) == ("4f", "claim", "r")
    assert not job.scratch.exists()


def test_a_checkpoint_follows_what_tells_of_it_and_is_removed(scratch: Scratch) -> None:
    def saves(job: Job) -> list[Message]:
        path = state_path(job.scratch)
        path.parent.mkdir()
        path.write_bytes(b"state")
        return [Saved(size=5), Succeeded(files=())]

    child = Scripted(says=saves)
    child.free.set()
    with served(Runner(start=child.start, scratch=scratch, slots=1)) as connection:
        connection.sendall(order(state="") + GIVEN)
        _, saved, rest, *_ = said(connection)
    assert decode(saved) == Saved(size=5)
    assert rest.startswith(b"state{")
    assert isinstance(decode(rest.removeprefix(b"state")), Succeeded)
    (job,) = child.jobs
    assert not state_path(job.scratch).exists()


@pytest.mark.parametrize("there", [False, True])
def test_a_child_that_tells_of_a_checkpoint_which_is_not_so_is_killed(
    scratch: Scratch, there: bool
) -> None:
    def saves(job: Job) -> list[Message]:
        if there:
            state_path(job.scratch).parent.mkdir()
            state_path(job.scratch).write_bytes(b"sta")
        return [Saved(size=5)]

    child = Scripted(
        says=saves, ended=Ended(exit_code=None, peak_memory=1, over_memory=False, log="")
    )
    with served(Runner(start=child.start, scratch=scratch, slots=1)) as connection:
        connection.sendall(order() + GIVEN)
        said(connection)
    assert child.killed


def test_success_is_told_once_after_the_run_has_ended(scratch: Scratch) -> None:
    """Until then the package may still write into what was made."""
    child = Scripted(says=lambda _job: [Succeeded(files=())])
    with (
        served(Runner(start=child.start, scratch=scratch, slots=1)) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(order() + GIVEN)
        assert stream.readline() == PLACE
        until(lambda: bool(child.given), 20, "the run has begun")
        child.free.set()
        success, ended = stream.read().splitlines()
    assert isinstance(decode(success), Succeeded)
    assert decode(ended) == ENDED


def test_only_files_of_the_folder_of_results_are_sent(scratch: Scratch) -> None:
    """What a run says of its files may have come from the package."""

    def names(job: Job) -> list[Message]:
        (job.scratch / MADE).mkdir()
        (job.scratch / "secret").write_bytes(b"secret\n")
        file = ArtifactFile(name="../secret", blob="artifacts/a/b/c", size=7, sha256="0" * 64)
        return [Succeeded(files=(file,))]

    child = Scripted(says=names)
    child.free.set()
    with served(Runner(start=child.start, scratch=scratch, slots=1)) as connection:
        connection.sendall(order() + GIVEN)
        assert b"secret\n" not in said(connection)


def test_no_run_begins_over_a_part_of_its_files(scratch: Scratch) -> None:
    child = Scripted()
    child.free.set()
    with served(Runner(start=child.start, scratch=scratch, slots=1)) as connection:
        connection.sendall(order() + GIVEN[:-1])
        connection.shutdown(socket.SHUT_WR)
        assert said(connection) == [PLACE]
    assert child.jobs == []


def test_an_order_of_something_else_than_a_reduction_is_refused(scratch: Scratch) -> None:
    child = Scripted()
    line = order().replace(b'"kind":"reduce"', b'"kind":"collect"')
    assert line != order()
    with served(Runner(start=child.start, scratch=scratch, slots=1)) as connection:
        connection.sendall(line + GIVEN)
        connection.shutdown(socket.SHUT_WR)
        assert said(connection) == [PLACE]
    assert child.jobs == []


def test_a_run_is_killed_when_its_worker_hangs_up(scratch: Scratch) -> None:
    child = Scripted()
    with served(Runner(start=child.start, scratch=scratch, slots=1)) as connection:
        connection.sendall(order() + GIVEN)
        until(lambda: bool(child.jobs), 20, "the run has begun")
    assert child.killed


def test_a_runner_shows_that_it_lives_while_a_run_says_nothing(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "ALIVE_SECONDS", 0.01)
    child = Scripted()
    with (
        served(Runner(start=child.start, scratch=scratch, slots=1)) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(order() + GIVEN)
        assert [stream.readline() for _ in range(3)] == [PLACE, ALIVE, ALIVE]
        child.free.set()
        until(lambda: stream.readline() not in (ALIVE, b""), 20, "the end is sent")


def test_a_runner_takes_no_more_runs_than_it_has_slots(scratch: Scratch) -> None:
    child = Scripted()
    runner = Runner(start=child.start, scratch=scratch, slots=1, patience=0.0)
    with served(runner) as first:
        first.sendall(order() + GIVEN)
        until(lambda: bool(child.jobs), 20, "the run has begun")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.shutdown(socket.SHUT_WR)
            runner.serve(theirs)
            ours.setblocking(False)
            with pytest.raises(BlockingIOError):
                ours.recv(1)
        child.free.set()
        assert said(first)[0] == PLACE


def test_a_runner_whose_machine_failed_takes_no_run(scratch: Scratch) -> None:
    failed = Failed(category=Category.HOST_FAILED, message="scratch cannot be written")
    child = Scripted(says=lambda _job: [failed])
    child.free.set()
    runner = Runner(start=child.start, scratch=scratch, slots=1, patience=0.0)
    with served(runner) as connection:
        connection.sendall(order() + GIVEN)
        assert said(connection)[0] == PLACE
    until(lambda: not runner.busy, 20, "the run is over")
    assert runner.fitness.unready == "scratch cannot be written"
    with served(runner) as connection:
        assert said(connection) == []


def test_a_runner_that_stops_kills_what_runs_and_takes_no_more(scratch: Scratch) -> None:
    child = Scripted()
    runner = Runner(start=child.start, scratch=scratch, slots=2, patience=0.0)
    with served(runner) as connection:
        connection.sendall(order() + GIVEN)
        until(lambda: bool(child.jobs), 20, "the run has begun")
        runner.stop(0.0)
        assert child.killed
        assert runner.busy == 0
    with served(runner) as late:
        assert said(late) == []


def test_a_run_whose_guard_was_killed_has_no_end(scratch: Scratch) -> None:
    """Then the worker counts it as lost with its runner, and not as the package's failure."""
    child = Scripted(ended=None)
    child.free.set()
    with served(Runner(start=child.start, scratch=scratch, slots=1)) as connection:
        connection.sendall(order() + GIVEN)
        assert said(connection) == [PLACE]


@pytest.mark.parametrize(
    "secret", [{"redis_url": "redis://:word@host/0"}, {"earthdata_token": "token"}]
)
def test_a_runner_holds_no_secret(secret: dict[str, str]) -> None:
    none = {"storage": "", "redis_url": "", "earthdata_token": ""}
    refuse_secrets(Settings.model_validate(none))
    with pytest.raises(WrongSettingError, match=f"SWATHMILL_{next(iter(secret)).upper()} is set"):
        refuse_secrets(Settings.model_validate(none | secret))


# --- what goes over a connection ---


def test_a_line_is_whole_and_no_longer_than_a_line_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_line(BytesIO(b"\n\nline\nmore")) == b"line\n"
    for text in (b"broken off", b"", b"\n"):
        with pytest.raises(BrokenOffError):
            read_line(BytesIO(text))
    monkeypatch.setattr(orders, "LONGEST_LINE", 5)
    assert read_line(BytesIO(b"line\n")) == b"line\n"
    with pytest.raises(BrokenOffError, match="too long"):
        read_line(BytesIO(b"line!\n"))


def test_a_file_is_read_in_parts_to_its_end_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "_CHUNK", 4)
    stream = BytesIO(b"0123456789 and more")
    assert [*read_parts(stream, 10)] == [b"0123", b"4567", b"89"]
    assert stream.read() == b" and more"
    with pytest.raises(BrokenOffError, match="1 bytes of a file are absent"):
        list(read_parts(BytesIO(b"0123"), 5))


# --- the storage of a run ---


@pytest.fixture
def lent(tmp_path: Path) -> LentBlobs:
    (tmp_path / LENT).mkdir()
    lent_path(tmp_path, 0).write_bytes(GIVEN)
    return LentBlobs((LentFile(blob="artifacts/in/a.tif", size=len(GIVEN)),), tmp_path)


def test_what_was_lent_is_read_by_its_name_as_often_as_asked(
    lent: LentBlobs, tmp_path: Path
) -> None:
    assert lent.exists("artifacts", "in/a.tif")
    assert lent.size("artifacts", "in/a.tif") == len(GIVEN)
    assert b"".join(lent.stream("artifacts", "in/a.tif", 1, 3)) == GIVEN[1:4]
    for name in ("first", "second", "second"):
        lent.get_file("artifacts", "in/a.tif", tmp_path / name)
        assert (tmp_path / name).read_bytes() == GIVEN
        (tmp_path / name).rename(tmp_path / "elsewhere")
    lent.get_file("artifacts", "in/a.tif", tmp_path / "there already")
    lent.get_file("artifacts", "in/a.tif", tmp_path / "there already")
    assert (tmp_path / "there already").read_bytes() == GIVEN


def test_a_lent_file_of_other_content_is_damaged(lent: LentBlobs, tmp_path: Path) -> None:
    with pytest.raises(CorruptBlobError):
        lent.get_file("artifacts", "in/a.tif", tmp_path / "here", "0" * 64)
    assert not (tmp_path / "here").exists()


def test_what_was_not_lent_is_absent_and_nothing_is_listed_or_deleted(lent: LentBlobs) -> None:
    for call in (lent.get_bytes, lent.size, lent.exists):
        with pytest.raises(BlobMissingError):
            call("artifacts", "in/b.tif")
    with pytest.raises(StoreError, match="deletes nothing"):
        lent.delete("artifacts", "in/a.tif")
    with pytest.raises(StoreError, match="lists nothing"):
        lent.names("artifacts")
