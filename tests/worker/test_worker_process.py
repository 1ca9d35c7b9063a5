"""The worker as a process: real Azurite, Redis, Celery, and signals."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from swathmill.stack.redis_server import RedisServer
from tasks import celery_app, protocol, workers
from tasks.categories import Category
from tasks.connect import connect
from tasks.model import State, Task
from tasks.packages import pack
from tasks.settings import Settings
from tasks.spec import GroupSpec, Input, ReduceSpec
from tests.worker.world import World, collect_spec, until
from worker import proctree

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@dataclass(kw_only=True)
class Process:
    """A running worker."""

    popen: subprocess.Popen[bytes]
    log: Path
    name: str
    seen: set[int] = field(default_factory=set)

    def tree(self) -> list[int]:
        return proctree.descendants(self.popen.pid)

    def says(self, event: str) -> bool:
        return any(json.loads(line)["event"] == event for line in self.lines())

    def lines(self) -> list[str]:
        return [x for x in self.log.read_text("utf-8").splitlines() if x.startswith("{")]


@dataclass(kw_only=True)
class Stack:
    """Servers, a world on them, and a way to start workers."""

    world: World
    settings: Settings
    folder: Path
    processes: list[Process] = field(default_factory=list)

    def worker(self, name: str, **more: object) -> Process:
        values = {
            "STORAGE": self.settings.storage.get_secret_value(),
            "REDIS_URL": self.settings.redis_url.get_secret_value(),
            "DATA_DIR": self.folder / "data",
            "ARCHIVE": self.folder / "archive",
            "WORKER_NAME": name,
            "SLOTS": 2,
            "HEARTBEAT_SECONDS": 0.3,
            "LEASE_SECONDS": 20,
            "GRACE_SECONDS": 1,
            **more,
        }
        env = os.environ | {f"SWATHMILL_{key}": str(value) for key, value in values.items()}
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                [sys.executable, "-m", "worker"], cwd=ROOT, env=env, stdout=out, stderr=out
            )
        process = Process(popen=popen, log=log, name=name)
        self.processes.append(process)
        return process

    def send(self, key: str) -> None:
        app = celery_app.make_app(self.settings.redis_url.get_secret_value())
        celery_app.Sender(app)(key)
        app.close()

    def run(self, key: str) -> None:
        self.send(key)

    def settled(self, key: str, seconds: float = 60.0) -> Task:
        until(
            lambda: (
                self.world.task(key).state not in (State.READY, State.RUNNING)
                or self.world.task(key).not_before > 0
            ),
            seconds,
            f"task {key} settled",
        )
        return self.world.task(key)

    def running(self, key: str) -> None:
        until(lambda: self.world.task(key).state is State.RUNNING, 60, "task running")


@pytest.fixture
def stack(azurite: str, redis_server: str, tmp_path: Path) -> Iterator[Stack]:
    settings = Settings(storage=azurite, redis_url=redis_server)  # type: ignore[arg-type]
    (tmp_path / "archive").mkdir()
    stack = Stack(world=World(services=connect(settings)), settings=settings, folder=tmp_path)
    yield stack
    for process in stack.processes:
        process.popen.kill()
        process.popen.wait()


def reduction(stack: Stack, name: str, script: str, **resources: object) -> str:
    """A planned reduction whose package is this Python script; its group is made up."""
    folder = stack.folder / "packages" / name
    folder.mkdir(parents=True)
    text = json.dumps(resources)
    manifest = f"name: {name}\ncommand: [python, run.py]\noutputs: [out.txt]\nresources: {text}\n"
    (folder / "package.yaml").write_text(manifest, "utf-8")
    (folder / "run.py").write_text(script, "utf-8")
    archive = pack(folder)
    stack.world.put_package(archive)
    group = GroupSpec(group=name, cell="c", window="all", grid=None, bands=())
    stored = stack.world.services.blobs.put_bytes("artifacts", f"{name}/manifest", MANIFEST)
    from tasks.model import ArtifactFile

    file = ArtifactFile(
        name="manifest.json",
        blob=f"artifacts/{name}/manifest",
        size=stored.size,
        sha256=stored.sha256,
    )
    given = stack.world.done(group, [file])
    return stack.world.plan(
        ReduceSpec(
            inputs=(Input(key=given.key),),
            package=name,
            digest=archive.digest,
            outputs=("out.txt",),
        )
    )


MANIFEST = b'{"group": "g", "cell": "c", "window": "all", "grid": null, "bands": []}'
GOOD = "import sys, pathlib; pathlib.Path(sys.argv[2], 'out.txt').write_text('made')"
HANG = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    time.sleep(600)
print("hanging", flush=True)
time.sleep(600)
"""


@pytest.mark.real_data
def test_granules_are_collected_by_two_slots(stack: Stack, granules: Path) -> None:
    found = sorted(granules.rglob("MCD15A2.A2012*.h17v03.005.*.hdf"))[:4]
    for path in found:
        shutil.copy(path, stack.folder / "archive")
    keys = [
        stack.world.plan(
            collect_spec(
                stack.folder / "archive" / path.name, stack.folder / "archive", "MCD15A2", "5"
            )
        )
        for path in found
    ]
    process = stack.worker("collector")
    for key in [*keys, *keys]:
        stack.send(key)
    for key in keys:
        task = stack.settled(key)
        assert task.state is State.DONE, protocol.attempts_of(stack.world.services.store, key)
        assert task.attempt == 1
        assert len(protocol.attempts_of(stack.world.services.store, key)) == 1
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(20) == 0
    names = [row.name for row in workers.list_workers(stack.world.services.store)]
    assert "collector" not in names
    assert not list((stack.folder / "data" / "scratch").glob("*/*"))


def test_a_reduction_runs_in_the_sandbox_and_its_output_is_stored(stack: Stack) -> None:
    key = reduction(stack, "good", "print('hello from the package');" + GOOD)
    stack.worker("reducer")
    stack.send(key)
    task = stack.settled(key)
    (attempt,) = protocol.attempts_of(stack.world.services.store, key)
    assert task.state is State.DONE, attempt
    assert "hello from the package" in attempt.log
    assert attempt.peak_memory > 0
    container, _, name = task.files[0].blob.partition("/")
    assert stack.world.services.blobs.get_bytes(container, name) == b"made"


def test_failing_user_code_shows_its_output_and_is_not_repeated(stack: Stack) -> None:
    key = reduction(stack, "failing", "raise SystemExit('the input has no snow')")
    stack.worker("failer")
    stack.send(key)
    task = stack.settled(key)
    (attempt,) = protocol.attempts_of(stack.world.services.store, key)
    assert (task.state, task.category) == (State.FAILED, Category.USER_CODE_FAILED)
    assert "the input has no snow" in attempt.message
    assert "the input has no snow" in attempt.log


def test_memory_beyond_the_limit_is_out_of_memory(stack: Stack) -> None:
    script = "import os\nheld = []\nwhile True: held.append(bytearray(os.urandom(1 << 20)))"
    key = reduction(stack, "hungry", script, memory_gb=50)
    stack.worker("small", ATTEMPT_MEMORY_GB=0.4)
    stack.send(key)
    task = stack.settled(key)
    (attempt,) = protocol.attempts_of(stack.world.services.store, key)
    assert attempt.category in (Category.OUT_OF_MEMORY, Category.USER_CODE_FAILED), attempt
    assert task.strikes == (attempt.category is Category.OUT_OF_MEMORY)


def hanging(stack: Stack, name: str, worker: str, **more: object) -> tuple[str, Process]:
    key = reduction(stack, name, HANG)
    process = stack.worker(worker, **more)
    stack.send(key)
    stack.running(key)
    until(lambda: any("hang" in c for c in commands(process)), 30, "user code hangs")
    return key, process


def commands(process: Process) -> list[str]:
    """What the worker's processes run, and where."""
    found = []
    for pid in process.tree():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append("hang" if b"run.py" in line and b"confine" not in line else "")
    return found


def dead(pids: list[int]) -> Callable[[], bool]:
    return lambda: not any(proctree.alive(pid) for pid in pids)


def test_hanging_user_code_is_killed_by_order(stack: Stack) -> None:
    key, process = hanging(stack, "hang-order", "ordered")
    children = process.tree()
    store, clock = stack.world.services.store, stack.world.services.clock
    until(
        lambda: any(row.attempts for row in workers.list_workers(store) if row.name == "ordered"),
        10,
        "the attempt is in the heartbeat",
    )
    assert workers.order_kill(store, clock, "ordered", stack.world.task(key).claim)
    task = stack.settled(key, 20)
    (attempt,) = protocol.attempts_of(store, key)
    assert attempt.category is Category.EXECUTION_TIMEOUT
    assert task.state is State.READY
    assert task.not_before > 0
    kept = set(process.tree())
    until(dead([pid for pid in children if pid not in kept]), 10, "the tree is gone")
    assert not any("hang" in c for c in commands(process))


def test_a_killed_worker_leaves_nothing_running(stack: Stack) -> None:
    key, process = hanging(stack, "hang-kill", "victim")
    children = process.tree()
    assert len(children) >= 5
    process.popen.kill()
    took = until(dead(children), 10, "the whole tree is gone")
    assert took < 10
    assert stack.world.task(key).state is State.RUNNING  # for the monitor to find
    successor = stack.worker("victim")
    until(lambda: successor.says("worker starts"), 30, "the successor has started")
    assert not list((stack.folder / "data" / "scratch").glob("*/*"))


def test_sigterm_hands_back_after_the_grace(stack: Stack) -> None:
    key, process = hanging(stack, "hang-term", "leaver", GRACE_SECONDS=0.5)
    children = process.tree()
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(20) == 0
    task = stack.world.task(key)
    assert (task.state, task.not_before, task.retries) == (State.READY, 0.0, 0)
    (attempt,) = protocol.attempts_of(stack.world.services.store, key)
    assert attempt.category is Category.CANCELLED
    until(dead(children), 10, "the tree is gone")


def test_sigterm_lets_short_attempts_end(stack: Stack) -> None:
    key = reduction(stack, "short", "import time; time.sleep(2);" + GOOD)
    process = stack.worker("patient", GRACE_SECONDS=30)
    stack.send(key)
    stack.running(key)
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(30) == 0
    assert stack.world.task(key).state is State.DONE


def test_a_package_time_limit_is_its_own_category(stack: Stack) -> None:
    key = reduction(stack, "slow", "import time; time.sleep(60)", timeout_seconds=1)
    stack.worker("timer")
    stack.send(key)
    task = stack.settled(key, 30)
    assert (task.state, task.category) == (State.FAILED, Category.USER_CODE_TIMED_OUT)


def test_full_slots_leave_the_worker_idle_and_take_the_next_at_once(stack: Stack) -> None:
    script = "import os, time\nwhile not os.path.exists('/nonexistent'): time.sleep(8); break\n"
    keys = [reduction(stack, f"wait{n}", f"{script}x = {n}\n{GOOD}") for n in range(2)]
    after = [reduction(stack, f"after{n}", f"x = {n}\n{GOOD}") for n in range(2)]
    process = stack.worker("idler")
    for key in [*keys, *after]:
        stack.send(key)
    for key in keys:
        stack.running(key)
    before = cpu_seconds(process.popen.pid)
    for key in keys:
        assert stack.settled(key).state is State.DONE
    assert cpu_seconds(process.popen.pid) - before < 2.0, "the loop spins while slots are full"
    for key in after:
        assert stack.settled(key, 8).state is State.DONE


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_slots_go_on_after_redis_was_away(azurite: str, tmp_path: Path) -> None:
    server = RedisServer.on_free_port(folder=tmp_path / "redis", log=tmp_path / "redis.log")
    child = server.start()
    settings = Settings(storage=azurite, redis_url=server.url)  # type: ignore[arg-type]
    stack = Stack(world=World(services=connect(settings)), settings=settings, folder=tmp_path)
    try:
        process = stack.worker("survivor")
        first = reduction(stack, "during", f"import time; time.sleep(3);x = 'during'\n{GOOD}")
        stack.send(first)
        stack.running(first)
        child.kill()
        assert stack.settled(first).state is State.DONE
        child = server.start()
        second = reduction(stack, "after", f"x = 'after'\n{GOOD}")
        stack.send(second)
        assert stack.settled(second).state is State.DONE
        assert process.popen.poll() is None
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(20) == 0
    finally:
        for process in stack.processes:
            process.popen.kill()
            process.popen.wait()
        child.stop()


def test_a_forkserver_that_was_killed_is_replaced(stack: Stack) -> None:
    process = stack.worker("phoenix")
    first = reduction(stack, "before-fork", f"x = 'before'\n{GOOD}")
    stack.send(first)
    assert stack.settled(first).state is State.DONE
    (forkserver,) = [
        pid for pid in process.tree() if b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(forkserver, signal.SIGKILL)
    second = reduction(stack, "after-fork", f"x = 'after'\n{GOOD}")
    stack.send(second)
    task = stack.settled(second)
    if task.state is State.READY:  # the attempt met the dying one
        stack.world.wake(second)
        stack.send(second)
        task = stack.settled(second)
    assert task.state is State.DONE
