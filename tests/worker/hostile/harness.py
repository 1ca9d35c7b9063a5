"""Run a hostile package as a worker does, beside neighbours that it must not harm."""

import json
import multiprocessing
import os
import resource
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from processes import proctree
from tasks.bag.spec import GridSpec, ReduceSpec
from tasks.packages.packages import Package
from tasks.service.classify import AttemptError
from worker.phases.adopt import read_confined
from worker.phases.flat import take_flat
from worker.phases.group import Manifest
from worker.phases.reduce import take_outputs
from worker.sandbox import sandbox
from worker.sandbox.confined import run_confined
from worker.sandbox.sandbox import Places, SandboxLimits, Tier

SECRET = "AccountKey=do-not-show"
GRID = GridSpec(crs="EPSG:4326", transform=(0.5, 0, 10, 0, -0.5, 50), width=6, height=4)
MANIFEST = Manifest(group="c 2012", cell="c", window="2012", grid=GRID, bands=())
_IPC = tuple(Path("/proc/sysvipc") / kind for kind in ("shm", "sem", "msg"))
_SHARED_MEMORY = Path("/dev/shm")
_OTHERS = ("simulation-", "sem.mp-")  # of tests that run beside these


@dataclass(frozen=True, kw_only=True)
class Way:
    """A tier of the sandbox; with `shared` the package keeps the worker's own user id."""

    tier: Tier
    shared: bool = False

    @property
    def absent(self) -> str:
        """Why it cannot be tried on this machine."""
        if self.tier == "bubblewrap":
            return sandbox.probe_bubblewrap()
        return sandbox._absent_for_limits()


@dataclass(kw_only=True)
class Outcome:
    """How a run ended: its failure, if it failed, and what it left in the folder of outputs."""

    category: str = ""
    message: str = ""
    said: str = ""
    processes: int = 0  # of the whole machine, at most
    taken: dict[str, Path] = field(default_factory=dict)


class Neighbours:
    """What a package must leave alone: a process, a secret, a socket, a web server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir(mode=0o700)
        self.secret = self.data / "secrets.json"
        self.secret.write_text(SECRET, "utf-8")
        self.secret.chmod(0o600)
        # What another attempt on the machine was given: open to all who find their way there.
        self.others = [folder / "scratch" / "other" / "input", folder / "unpacked" / "other"]
        for other in self.others:
            other.mkdir(parents=True)
            (other / "theirs.py").write_text(SECRET, "utf-8")
        self.process = subprocess.Popen(["sleep", "600"], env={"SECRET": SECRET})
        self.path_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.path_socket.bind(str(folder / "datagrams"))
        (folder / "datagrams").chmod(0o777)
        self.web = socket.create_server(("127.0.0.1", 0))
        for one in (self.path_socket, self.web):
            one.setblocking(False)
        self._before = self._state()

    def about(self) -> dict[str, object]:
        """Tell a package where its neighbours are: it may know."""
        return {
            "process": self.process.pid,
            "data": str(self.data),
            "secret": str(self.secret),
            "others": [str(other) for other in self.others],
            "worker": os.getpid(),
            "socket": str(self.folder / "datagrams"),
            "port": self.web.getsockname()[1],
        }

    def unharmed(self) -> None:
        """Assert that nothing has changed and that nothing was left behind."""
        assert self.process.poll() is None
        assert self._state() == self._before
        with suppress(BlockingIOError):
            raise AssertionError(f"a datagram arrived: {self.path_socket.recv(100)!r}")
        with suppress(BlockingIOError):
            raise AssertionError(f"a connection arrived: {self.web.accept()}")

    def _state(self) -> object:
        pid = self.process.pid
        kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)
        limits = [resource.prlimit(pid, kind) for kind in kinds]
        files = [
            (path.stat().st_mode, path.stat().st_mtime_ns, path.stat().st_uid)
            for path in (self.data, self.secret, *self.others)
        ]
        shared = sorted(
            path.name for path in _SHARED_MEMORY.iterdir() if not path.name.startswith(_OTHERS)
        )
        ipc = [path.read_text() for path in _IPC if path.exists()]
        priority = os.getpriority(os.PRIO_PROCESS, pid)
        return limits, files, shared, ipc, priority, os.sched_getaffinity(pid), self.data_files()

    def data_files(self) -> list[str]:
        return sorted(path.name for path in self.data.iterdir())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.path_socket.close()
        self.web.close()


def run_package(
    way: Way,
    folder: Path,
    program: str | Path,
    about: dict[str, object],
    bounds: SandboxLimits,
    outputs: tuple[str, ...] = (),
) -> Outcome:
    """Run a program in a child of its own, as a warm child does, and take its outputs."""
    names = ("package", "inputs", "outputs", "temporary", "reading", "artifact")
    for name in names:
        (folder / name).mkdir()
    places = Places(
        package=folder / "package",
        inputs=folder / "inputs",
        outputs=folder / "outputs",
        temporary=folder / "temporary",
    )
    (places.inputs / "about.json").write_text(json.dumps(about), "utf-8")
    command: tuple[str, ...] = ("python", "run.py")
    if isinstance(program, Path):
        copy = places.package / "run"
        copy.write_bytes(program.read_bytes())
        copy.chmod(0o755)
        command = ("./run",)
    else:
        (places.package / "run.py").write_text(program, "utf-8")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, way, command, places, bounds, outputs))
    process.start()
    theirs.close()
    try:
        most = 0
        while not ours.poll(0.005):
            most = max(most, len(os.listdir("/proc")))  # noqa: PTH208 - this must be quick
        category, message, left = ours.recv()
    except EOFError:
        category, message, left = "died", "the runner died", []
    process.join(20)
    assert not left, f"processes were left: {left}"
    out = places.outputs / "out.txt"
    said = out.read_text("utf-8") if not out.is_symlink() and out.is_file() else ""
    taken = {path.name: path for path in (folder / "artifact").iterdir()}
    return Outcome(category=category, message=message, said=said, processes=most, taken=taken)


def _run(
    connection: Connection,
    way: Way,
    command: tuple[str, ...],
    places: Places,
    bounds: SandboxLimits,
    outputs: tuple[str, ...],
) -> None:
    os.environ["SWATHMILL_STORAGE"] = SECRET
    os.umask(0o022)
    if way.shared:
        sandbox.own_user = lambda _: None  # type: ignore[assignment]
    category = message = ""
    try:
        run_confined(way.tier, command, places, bounds)
        if outputs:
            folder = places.package.parent
            take_flat([name for name in outputs if name.endswith(".tif")], GRID, places.outputs)
            read = read_confined(way.tier, places.outputs, MANIFEST, bounds, folder / "reading")
            package = Package(name="own", command=command, outputs=outputs)
            spec = ReduceSpec(package="own", digest="d", outputs=outputs)
            take_outputs(spec, package, MANIFEST, places.outputs, folder / "artifact", read)
    except AttemptError as error:
        category, message = error.category.value, str(error)
    connection.send((category, message, proctree.descendants(os.getpid())))
