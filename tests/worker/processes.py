"""Workers as processes over real servers, and reductions for them to run."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from processes import proctree
from tasks.bag.model import ArtifactFile, State, Task
from tasks.bag.spec import GroupSpec, Input, ReduceSpec
from tasks.messages import celery_app
from tasks.packages.packages import pack
from tasks.service.connect import connect
from tasks.settings import Settings
from tests.waiting import until
from tests.worker.world import World

ROOT = Path(__file__).parents[2]


@dataclass(kw_only=True)
class Process:
    """A running worker."""

    popen: subprocess.Popen[bytes]
    log: Path
    name: str

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

    def send(self, key: str, host: str = "") -> None:
        app = celery_app.make_app(self.settings.redis_url.get_secret_value())
        celery_app.Sender(app)([key], host)
        app.close()

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

    def end(self) -> None:
        """Kill the workers that still run."""
        for process in self.processes:
            process.popen.kill()
            process.popen.wait()

    def running(self, key: str) -> None:
        until(lambda: self.world.task(key).state is State.RUNNING, 60, "task running")


def make_stack(storage: str, redis_url: str, folder: Path) -> Stack:
    """A world on running servers, with its files in a folder."""
    settings = Settings(storage=storage, redis_url=redis_url)
    (folder / "archive").mkdir()
    return Stack(world=World(runtime=connect(settings)), settings=settings, folder=folder)


def reduction(
    stack: Stack, name: str, script: str, *, checkpoint: bool = False, **resources: object
) -> str:
    """A planned reduction whose package is this Python script; its group is made up."""
    folder = stack.folder / "packages" / name
    folder.mkdir(parents=True)
    text = json.dumps(resources)
    manifest = f"name: {name}\ncommand: [python, run.py]\noutputs: [out.txt]\nresources: {text}\n"
    manifest += "checkpoint: true\n" if checkpoint else ""
    (folder / "package.yaml").write_text(manifest, "utf-8")
    (folder / "run.py").write_text(script, "utf-8")
    archive = pack(folder)
    stack.world.put_package(archive)
    group = GroupSpec(group=name, cell="c", window="all", grid=None, bands=())
    stored = stack.world.runtime.blobs.put_bytes("artifacts", f"{name}/manifest", MANIFEST)
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


def hanging(stack: Stack, name: str, process: Process) -> str:
    """A reduction that hangs by now, in that worker, with a detached process of its own."""
    key = reduction(stack, name, HANG)
    stack.send(key)
    stack.running(key)
    until(lambda: any("hang" in c for c in commands(process)), 30, "user code hangs")
    return key


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
