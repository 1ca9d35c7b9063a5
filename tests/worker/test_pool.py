"""The reduction pool: packages run in a process that holds no secret and believes no more."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import BufferedRWPair
from pathlib import Path
from typing import Self

import pytest

from swathmill.stack import ports
from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile, State
from tasks.bag.spec import ReduceSpec
from tasks.bag.time_limits import TimeLimits
from tasks.errors import BlobMissingError, StoreError
from tasks.packages.packages import blob_of
from tasks.service.classify import AttemptError
from tasks.service.connect import connect_storage
from tasks.storage.blobs import ARTIFACTS, PACKAGES, MemoryBlobs
from tests.waiting import until
from tests.worker.processes import (
    GOOD,
    ROOT,
    Process,
    Stack,
    commands,
    dead,
    hanging,
    make_stack,
    reduction,
)
from worker.pool import remote
from worker.pool.orders import PLACE, Order
from worker.pool.remote import Pool
from worker.pool.runner import PLACE_SECONDS
from worker.sandbox.admission import LONGEST_WAIT
from worker.sandbox.messages import (
    Ended,
    Failed,
    Job,
    Message,
    Postponed,
    Progress,
    Saved,
    Succeeded,
    encode,
    state_path,
)
from worker.slots.lent_blobs import LentBlobs


def runner(stack: Stack, name: str, port: int, **more: object) -> Process:
    """Start a runner; it is ready."""
    values = {
        "DATA_DIR": stack.folder / name,
        "RUNNER_ADDRESS": f"127.0.0.1:{port}",
        "WORKER_NAME": name,
        "ATTEMPT_MEMORY_GB": 0.4,
        "GRACE_SECONDS": 1,
        "SANDBOX": "limits",
        **more,
    }
    known = {key: value for key, value in os.environ.items() if not key.startswith("SWATHMILL_")}
    env = known | {f"SWATHMILL_{key}": str(value) for key, value in values.items()}
    log = stack.folder / f"{name}.log"
    with log.open("ab") as out:
        popen = subprocess.Popen(
            [sys.executable, "-m", "worker.pool"], cwd=ROOT, env=env, stdout=out, stderr=out
        )
    process = Process(popen=popen, log=log, name=name)
    stack.processes.append(process)
    until(lambda: listens(port) or popen.poll() is not None, 60, "the runner listens")
    return process


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def port() -> int:
    (chosen,) = ports.choose(1, preferred=[])
    return chosen


@pytest.fixture(scope="module")
def stack(
    embedded: str, redis_server: str, port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    made = make_stack(embedded, redis_server, tmp_path_factory.mktemp("pool"))
    made.worker("lender", REDUCTION_POOL=f"127.0.0.1:{port}", EARTHDATA_TOKEN="do-not-show")
    yield made
    made.end()


@pytest.fixture(scope="module")
def pooled(stack: Stack, port: int) -> Process:
    return runner(stack, "pooled", port)


@pytest.mark.integration
def test_a_package_runs_in_the_pool_and_its_output_is_stored(stack: Stack, pooled: Process) -> None:
    key = reduction(stack, "pool-good", "print('hello from the pool');" + GOOD)
    stack.send(key)
    task = stack.settled(key)
    (attempt,) = stack.world.runtime.tasks.attempts(key)
    assert task.state is State.DONE, attempt
    assert "hello from the pool" in attempt.log
    assert attempt.peak_memory > 0
    container, _, name = task.files[0].blob.partition("/")
    assert name == f"{key}/{attempt.claim}/out.txt"
    assert stack.world.runtime.blobs.get_bytes(container, name) == b"made"
    assert "run started" in pooled.log.read_text()


@pytest.mark.integration
def test_a_runner_has_no_secret_and_an_order_kills_its_tree(stack: Stack, pooled: Process) -> None:
    key = hanging(stack, "pool-hang", pooled)
    lender = stack.processes[0]
    assert not any("hang" in c for c in commands(lender))
    secrets = (stack.settings.storage, stack.settings.redis_url)
    hidden = [b"do-not-show", *(one.get_secret_value().encode() for one in secrets)]
    found = [environment_of(pid) for pid in (pooled.popen.pid, *pooled.tree())]
    assert len([one for one in found if one]) > 5
    assert not any(secret in one for secret in hidden for one in found)
    store, clock = stack.world.runtime.store, stack.world.runtime.clock
    tree = pooled.tree()
    until(
        lambda: any(row.attempts for row in workers.list_workers(store) if row.name == "lender"),
        10,
        "the attempt is in the heartbeat",
    )
    assert workers.order_kill(store, clock, "lender", stack.world.task(key).claim)
    stack.settled(key, 20)
    (attempt,) = stack.world.runtime.tasks.attempts(key)
    assert attempt.category is Category.EXECUTION_TIMEOUT
    until(lambda: not any("hang" in c for c in commands(pooled)), 10, "the program has ended")
    kept = {*pooled.tree()}
    until(dead([pid for pid in tree if pid not in kept]), 10, "the tree is gone")


@pytest.mark.integration
@pytest.mark.provokes(Category.WORKER_LOST)
def test_a_runner_that_dies_costs_its_tasks_no_try(
    stack: Stack, pooled: Process, port: int
) -> None:
    key = hanging(stack, "pool-dies", pooled)
    tree = pooled.tree()
    pooled.popen.send_signal(signal.SIGKILL)
    pooled.popen.wait()
    until(lambda: bool(stack.world.runtime.tasks.attempts(key)), 30, "the attempt has ended")
    (attempt,) = stack.world.runtime.tasks.attempts(key)
    assert attempt.category is Category.WORKER_LOST
    assert "reduction pool" in attempt.message
    task = stack.world.task(key)
    assert (task.state, task.retries) == (State.READY, 0)
    until(dead(tree), 20, "nothing of the runner is left")
    again = runner(stack, "again", port)
    after = reduction(stack, "pool-after", "x = 'after'\n" + GOOD)
    stack.send(after)
    assert stack.settled(after).state is State.DONE
    again.popen.terminate()
    assert again.popen.wait(20) == 0


@pytest.mark.integration
def test_a_runner_refuses_to_start_with_a_secret(stack: Stack) -> None:
    (free,) = ports.choose(1, preferred=[])
    process = runner(stack, "with-secret", free, REDIS_URL="redis://:word@host/0")
    assert process.popen.wait(20) == 78
    assert "SWATHMILL_REDIS_URL is set, and a runner holds no secret" in process.log.read_text()


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""  # it has ended


INPUT = b"pixels"


def job(blobs: MemoryBlobs, folder: Path) -> Job:
    stored = blobs.put_bytes(ARTIFACTS, "in/a.tif", INPUT)
    given = ArtifactFile(
        name="a.tif", blob=f"{ARTIFACTS}/in/a.tif", size=stored.size, sha256=stored.sha256
    )
    folder.mkdir(exist_ok=True)
    return Job(
        key="4f",
        claim="claim",
        spec=ReduceSpec(package="own", digest="d" * 64, outputs=("out.txt",)),
        inputs={0: (given,)},
        scratch=folder,
    )


class Scripted:
    """A runner that says what it is told to once it has read the order, and then hangs up."""

    def __init__(self, say: bytes, *, place: bool = True, hangs: bool = False) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._say, self._place, self._hangs = say, place, hangs
        self.order: Order | None = None
        self.bytes = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                connection.settimeout(5)
                with connection, connection.makefile("rwb") as stream:
                    if self._place:
                        self._carry_out(connection, stream)

    def _carry_out(self, connection: socket.socket, stream: BufferedRWPair) -> None:
        stream.write(PLACE)
        stream.flush()
        ordered = stream.readline()
        if not ordered:
            return  # an attempt that was killed says nothing
        self.order = Order.model_validate_json(ordered)
        self.bytes = stream.read(sum(one.size for one in self.order.lent if not one.link))
        stream.write(self._say)
        stream.flush()
        if not self._hangs:
            connection.shutdown(socket.SHUT_WR)
        stream.read(1)  # until the worker has read it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)


def line(message: Message) -> bytes:
    return encode(message) + b"\n"


ENDED = Ended(exit_code=0, peak_memory=1, over_memory=False, log="said")


def made(name: str, size: int, number: int = 1) -> Succeeded:
    file = ArtifactFile(name=name, blob="artifacts/of/another", size=size, sha256="0" * 64)
    return Succeeded(files=(file,) * number)


def heard(blobs: MemoryBlobs, folder: Path, say: bytes) -> tuple[list[Message], Ended]:
    messages: list[Message] = []
    with Scripted(say) as scripted:
        pool = Pool(host="127.0.0.1", port=scripted.port, blobs=blobs, most_bytes=100)
        ended = pool.start(job(blobs, folder)).follow(messages.append)
    assert scripted.bytes == INPUT
    return messages, ended


def test_what_a_runner_sends_is_stored_under_this_attempt_by_its_bytes(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    say = b"\n" + line(made("out.txt", 4)) + b"made" + b"\n" + line(ENDED)
    (said,), ended = heard(blobs, tmp_path / "a", say)
    assert ended == ENDED
    assert isinstance(said, Succeeded)
    (file,) = said.files
    assert file.blob == "artifacts/4f/claim/out.txt"
    assert blobs.get_bytes(ARTIFACTS, "4f/claim/out.txt") == b"made"
    assert file.sha256 == blobs.put_bytes(ARTIFACTS, "4f/claim/out.txt", b"made").sha256


def test_a_checkpoint_lies_where_a_child_leaves_one_when_it_is_told(tmp_path: Path) -> None:
    say = line(Saved(size=5)) + b"state" + line(made("out.txt", 4)) + b"made" + line(ENDED)
    (said, _), ended = heard(MemoryBlobs(), tmp_path / "a", say)
    assert ended == ENDED
    assert said == Saved(size=5)
    assert state_path(tmp_path / "a").read_bytes() == b"state"


@pytest.mark.parametrize(
    "say",
    [
        pytest.param(line(made("../out.txt", 1)) + b"x", id="a name that leads elsewhere"),
        pytest.param(line(made("out.txt", 101)) + b"x" * 101, id="more bytes than allowed"),
        pytest.param(line(made("out.txt", 50)) + b"x", id="fewer bytes than announced"),
        pytest.param(line(made("a", 0, number=1001)), id="more files than there may be"),
        pytest.param(line(Saved(size=101)) + b"x" * 101, id="a checkpoint larger than allowed"),
        pytest.param(line(Saved(size=50)) + b"x", id="a checkpoint that breaks off"),
        pytest.param(b"no message\n", id="no message"),
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"kind":"progress","fraction":2}\n', id="no fraction"),
    ],
)
def test_a_runner_that_breaks_the_protocol_counts_as_lost(tmp_path: Path, say: bytes) -> None:
    blobs = MemoryBlobs()
    with pytest.raises(AttemptError) as raised:
        heard(blobs, tmp_path / "a", say)
    assert raised.value.category is Category.WORKER_LOST
    assert [*blobs.names(ARTIFACTS)] == ["in/a.tif"]


@pytest.mark.parametrize("lost", [False, True])
def test_inputs_are_made_again_only_if_they_are_lost(tmp_path: Path, lost: bool) -> None:
    blobs = Losing() if lost else MemoryBlobs()
    failed = Failed(category=Category.CORRUPT_BLOB_READ, message="damaged", healing=0b11)
    (said,), _ = heard(blobs, tmp_path / "a", line(failed) + line(ENDED))
    assert isinstance(said, Failed)
    assert said.healing == (1 if lost else 0)
    assert said.category is (Category.CORRUPT_BLOB_READ if lost else Category.BLOB_READ_FAILED)


@pytest.mark.parametrize("damaged", [False, True])
def test_inputs_are_made_again_only_if_they_are_damaged(tmp_path: Path, damaged: bool) -> None:
    class Changing(MemoryBlobs):
        """Has other content once the input was lent."""

        def stream(self, container: str, name: str, *_: object) -> Iterator[bytes]:
            yield self.get_bytes(container, name)
            if damaged:
                self.delete(container, name)
                self.put_bytes(container, name, b"PIXELS")

    failed = Failed(category=Category.CORRUPT_BLOB_READ, message="damaged", healing=0b1)
    (said,), _ = heard(Changing(), tmp_path / "a", line(failed) + line(ENDED))
    assert isinstance(said, Failed)
    assert said.healing == damaged


class Losing(MemoryBlobs):
    """Keeps each blob for one reader."""

    def stream(self, container: str, name: str, *_: object) -> Iterator[bytes]:
        yield self.get_bytes(container, name)
        self.delete(container, name)


@pytest.mark.parametrize("there", [True, False])
def test_without_a_place_an_attempt_is_postponed(tmp_path: Path, there: bool) -> None:
    messages: list[Message] = []
    with Scripted(b"", place=False) as scripted:
        (free,) = ports.choose(1, preferred=[])
        port = scripted.port if there else free
        pool = Pool(host="127.0.0.1", port=port, blobs=MemoryBlobs(), most_bytes=1, patience=0.0)
        ended = pool.start(job(MemoryBlobs(), tmp_path / "a")).follow(messages.append)
    (said,) = messages
    assert isinstance(said, Postponed)
    assert "no place in the reduction pool" in said.message
    assert ended.exit_code == 0


def test_an_attempt_that_waits_for_a_place_can_be_killed(tmp_path: Path) -> None:
    with Scripted(b"", place=False) as scripted:
        pool = Pool(host="127.0.0.1", port=scripted.port, blobs=MemoryBlobs(), most_bytes=1)
        attempt = pool.start(job(MemoryBlobs(), tmp_path / "a"))
        timer = threading.Timer(0.2, attempt.kill)
        timer.start()
        assert attempt.follow(lambda _: None).exit_code is None
        timer.join()


def started(
    scripted: Scripted, folder: Path, blobs: MemoryBlobs | None = None
) -> remote.RemoteAttempt:
    blobs = blobs or MemoryBlobs()
    pool = Pool(host="127.0.0.1", port=scripted.port, blobs=blobs, most_bytes=100)
    return pool.start(job(blobs, folder))


def test_an_attempt_that_was_killed_is_not_lost(tmp_path: Path) -> None:
    with Scripted(line(Progress(fraction=0.5)), hangs=True) as scripted:
        attempt = started(scripted, tmp_path / "a")
        assert attempt.follow(lambda _: attempt.kill()).exit_code is None


def test_an_attempt_that_was_killed_while_it_connected_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scripted(line(ENDED)) as scripted:
        attempt = started(scripted, tmp_path / "a")
        connect = socket.create_connection

        def late(*given: object, **more: object) -> socket.socket:
            attempt.kill()
            return connect(*given, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(socket, "create_connection", late)
        assert attempt.follow(lambda _: None).exit_code is None
        assert scripted.order is None


def test_a_runner_that_is_silent_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "SILENT_SECONDS", 0.2)
    with (
        pytest.raises(AttemptError, match="timed out") as raised,
        Scripted(b"", hangs=True) as scripted,
    ):
        started(scripted, tmp_path / "a").follow(lambda _: None)
    assert raised.value.category is Category.WORKER_LOST


def test_an_input_of_another_length_is_not_lent(tmp_path: Path) -> None:
    class Short(MemoryBlobs):
        def stream(self, container: str, name: str, *_: object) -> Iterator[bytes]:
            yield self.get_bytes(container, name)[:-1]

    blobs = Short()
    with Scripted(line(ENDED)) as scripted, pytest.raises(AttemptError, match="has not 6 bytes"):
        started(scripted, tmp_path / "a", blobs).follow(lambda _: None)


def test_a_run_is_lent_its_inputs_its_package_and_what_that_needs_once_each(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    given = job(blobs, tmp_path / "a")
    assert isinstance(given.spec, ReduceSpec)
    blobs.put_bytes(PACKAGES, blob_of(given.spec.digest), b"package")
    blobs.put_bytes(PACKAGES, blob_of("e" * 64), b"of another")
    pool = Pool(host="", port=0, blobs=blobs, most_bytes=1)
    twice = replace(given, inputs={0: given.inputs[0], 1: given.inputs[0]})
    assert [(one.blob, one.size, one.link) for one in pool.lend(twice, given.spec)] == [
        (f"{ARTIFACTS}/in/a.tif", len(INPUT), ""),
        (f"{PACKAGES}/{blob_of(given.spec.digest)}", 7, ""),
    ]


def test_all_waits_for_a_run_are_shorter_than_the_least_time_limit() -> None:
    """Else an attempt is killed for its age that has not begun."""
    floor = TimeLimits().floor
    assert Pool.patience + PLACE_SECONDS + LONGEST_WAIT < floor - 10


@pytest.mark.integration
def test_links_open_what_is_lent_and_nothing_else(azurite: str, tmp_path: Path) -> None:
    blobs = connect_storage(azurite).blobs
    given = job(MemoryBlobs(), tmp_path / "a")
    stored = blobs.put_bytes(ARTIFACTS, f"{tmp_path.name}/a.tif", INPUT)
    blobs.put_bytes(ARTIFACTS, f"{tmp_path.name}/b.tif", b"of another")
    file = replace(given.inputs[0][0], blob=f"{ARTIFACTS}/{tmp_path.name}/a.tif")
    pool = Pool(host="", port=0, blobs=blobs, most_bytes=1)
    assert isinstance(given.spec, ReduceSpec)
    (lent,) = pool.lend(replace(given, inputs={0: (file,)}), given.spec)
    assert "sp=r&" in f"{lent.link}&"
    assert lent.size == 0
    storage = LentBlobs((lent,), tmp_path)
    to = tmp_path / "here.tif"
    storage.get_file(ARTIFACTS, f"{tmp_path.name}/a.tif", to, stored.sha256)
    assert to.read_bytes() == INPUT
    with pytest.raises(BlobMissingError):
        storage.get_bytes(ARTIFACTS, f"{tmp_path.name}/b.tif")
    other = replace(lent, link=lent.link.replace("/a.tif?", "/b.tif?"))
    with pytest.raises(StoreError):
        LentBlobs((other,), tmp_path).get_bytes(ARTIFACTS, f"{tmp_path.name}/a.tif")
