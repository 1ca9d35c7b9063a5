"""The sandbox of a reduction: no network, no secrets, a read-only system, limited resources.

It has two tiers. `bubblewrap` has its own namespaces for files, processes and network. `limits`
runs where namespaces cannot be created (a container under the usual seccomp profile): Landlock for
files. Both have resource limits, no_new_privs and a seccomp filter, and a user id of their own
where the worker is root. docs/reductions.md says what each tier holds and what it does not; the
report says it of this machine.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from processes import confine
from processes.reading_rights import DEVICES, KERNEL, packages_elsewhere, readable
from processes.refused_calls import filter_of, seccomp_known
from tasks.network_hosts import AllowedHosts
from tasks.settings import Settings

Tier = Literal["bubblewrap", "limits"]

PROBE_SECONDS = 60.0  # a busy machine took over ten, and its worker ran no package all its life
_CONFINE = Path(confine.__file__).resolve()
# For a program that has a network.
_CERTIFICATES = (
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
)
CHECKPOINT = "SWATHMILL_CHECKPOINT"
"""The variable that names the folder which is kept for a run's next attempt."""
STATE_SHARE = 4
"""A checkpoint has at most a quarter of what a program may write."""
SHARED_MEMORY = "/dev/shm"
"""Where a program in bubblewrap has a small file system in memory, for semaphores."""
_SHARED_MEMORY = 256 * 2**20
_OPEN_FILES = 1024
_TASKS = 4  # processes and threads that may be there at once, for each of the package's processes
_FIRST_USER = 2_000_000_000  # of the user ids of reductions; the number of the runner is added
_ALL_USERS = ["0", "0", "4294967295"]  # /proc/self/uid_map outside a user namespace
# What root needs to give programs a user id and to look after them (capabilities(7)): CHOWN,
# DAC_OVERRIDE, KILL, SETGID, SETUID, SYS_PTRACE; for bubblewrap SYS_ADMIN, too.
_NEEDED = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 19
_SYS_ADMIN = 1 << 21
OWN_PROCESSES = 3
"""Processes of a program's tree that are ours: two of bubblewrap and the launcher."""
_LONGEST_VARIABLE = 16 * 2**10  # bytes
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9]")
_MOST_LINKS = 40  # the limit of Linux, path_resolution(7)


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """What a program may use, including its descendants, in bytes and seconds.

    `processors` are the numbers of those that it runs on; without any, all that there are. `reach`
    are the hosts that it may connect to; None: there is no network.
    """

    memory: int
    seconds: float
    processes: int
    output: int
    processors: tuple[int, ...] = ()
    reach: AllowedHosts | None = None

    @property
    def state(self) -> int:
        """The bytes that the files of a checkpoint may have together."""
        return self.output // STATE_SHARE


@dataclass(frozen=True, kw_only=True)
class Places:
    """The folders of a program: its package, inputs (read-only), outputs and a temporary one.

    `environment` has the Python packages that it depends on (read-only), if it depends on any.
    `checkpoint` is the folder that is kept for its next attempt, if it keeps one. `parameters` are
    variables of its environment.
    """

    package: Path
    inputs: Path
    outputs: Path
    temporary: Path
    environment: Path | None = None
    checkpoint: Path | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def written(self) -> tuple[Path, ...]:
        """The folders in which the program may write."""
        kept = () if self.checkpoint is None else (self.checkpoint,)
        return (self.outputs, self.temporary, *kept)


@dataclass(frozen=True, kw_only=True)
class SandboxReport:
    """The tier in which reductions run, what it holds, and what it does not.

    With `tier` None no reduction runs but the shipped ones, and `remedy` says why.
    """

    tier: Tier | None
    holds: tuple[str, ...]
    lacks: tuple[str, ...]
    remedy: str = ""

    @property
    def line(self) -> str:
        """The report in one line, for the worker's row."""
        if self.tier is None:
            return f"none: {self.remedy}"
        lacks = f"; does not hold: {', '.join(self.lacks)}" if self.lacks else ""
        return f"{self.tier}: {', '.join(self.holds)}{lacks}"


def report(settings: Settings) -> SandboxReport:
    """Probe this machine for the strongest tier that works and that the settings allow.

    Where they name a tier exactly, no other is taken.
    """
    exactly, _, named = settings.sandbox.rpartition(":")
    weakest = named.strip()
    if exactly and weakest == "limits":
        problem = _DEMANDED
    elif not (problem := probe_bubblewrap()):
        network, *more = _HELD_BY_BOTH
        if settings.network_hosts:
            network = "no network but the hosts that a package names and SWATHMILL_NETWORK_HOSTS"
        holds = (network, *more, "own process and file namespaces", _OWN_USER)
        return SandboxReport(tier="bubblewrap", holds=holds, lacks=_HELD_BY_NEITHER)
    if weakest == "bubblewrap":
        return SandboxReport(
            tier=None,
            holds=(),
            lacks=(),
            remedy=f"bubblewrap does not work here: {problem}. Install it and allow user "
            "namespaces, or allow the weaker tier with SWATHMILL_SANDBOX=limits.",
        )
    if absent := _absent_for_limits():
        return SandboxReport(
            tier=None,
            holds=(),
            lacks=(),
            remedy=f"{_not_taken(problem)}; and the tier limits needs {absent}.",
        )
    return _limits_report(problem, settings)


_DEMANDED = "SWATHMILL_SANDBOX demands exactly the tier limits"


def _not_taken(problem: str) -> str:
    """Say why the tier bubblewrap was not taken."""
    return problem if problem == _DEMANDED else f"Bubblewrap does not work here: {problem}"


_OWN_USER = "own user id"
_HELD_BY_BOTH = (
    "no network and no sockets",
    "read-only system",
    "no capabilities",
    "refused system calls",
    "resource limits",
)
_HELD_BY_NEITHER = (
    "bursts of memory and disk between two looks (0.1 s)",
    "the processor's caches and timing",
    "faults of the kernel",
)


def _absent_for_limits() -> str:
    """Name what the kernel lacks without which the tier limits would be no sandbox."""
    if not confine.landlock_abi():
        return "Landlock (Linux 5.13 or newer, `landlock` among the security modules)"
    return "" if seccomp_known() else "x86_64 or aarch64, whose system calls are known"


def _limits_report(problem: str, settings: Settings) -> SandboxReport:
    holds = [*_HELD_BY_BOTH, "only own files (Landlock)"]
    lacks = [
        "own process namespace: it sees that other processes run",
        "sizes and times of files whose names it knows (stat), wherever they lie",
    ]
    if settings.network_hosts:
        lacks.append("network: packages that name hosts do not run")
    if own_user("limits") is None:
        lacks.append(f"{_OWN_USER}: chmod, chown and utime are refused to the package")
        if os.geteuid() == 0:
            lacks.append("processes above the limit for a moment, because the worker is root")
        else:
            lacks.append("forks of others of this user fail while a fork bomb is being ended")
    else:
        holds.append(_OWN_USER)
    abi = confine.landlock_abi()
    (holds if abi >= 6 else lacks).append("no signals to other processes (Linux 6.12)")
    (holds if abi >= 5 else lacks).append("no control of devices (Linux 6.10)")
    (holds if abi >= 3 else lacks).append("no truncation of readable files (Linux 6.2)")
    return SandboxReport(
        tier="limits",
        holds=tuple(holds),
        lacks=(*lacks, *_HELD_BY_NEITHER),
        remedy=f"{_not_taken(problem)}.",
    )


def probe_bubblewrap() -> str:
    """Explain why bubblewrap does not work here; return "" if it works."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    if not seccomp_known():
        return "the system calls of this processor are not known"
    return fault("bubblewrap")


def fault(tier: Tier) -> str:
    """Run a program that does nothing in a tier; explain why that fails, "" if it does not."""
    bounds = SandboxLimits(memory=2**30, seconds=PROBE_SECONDS, processes=16, output=2**20)
    try:
        with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
            here = Path(name)
            here.chmod(0o755)
            places = Places(package=here, inputs=here, outputs=here, temporary=here)
            command = command_line(tier, ("python", "-c", "pass"), places, bounds)
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=PROBE_SECONDS,
                check=False,
                env=environment(tier, places, bounds),
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"exit code {done.returncode}")


def own_user(tier: Tier) -> int | None:
    """Return the user id that programs started by this process take; None: they keep its own.

    Only root can give them one. In bubblewrap's user namespace others have one in effect: limits
    count there apart, and what it can reach is only its own.
    """
    if os.geteuid() != 0 or Path("/proc/self/uid_map").read_text("ascii").split() != _ALL_USERS:
        return None
    needed = _NEEDED | (_SYS_ADMIN if tier == "bubblewrap" else 0)
    status = Path("/proc/self/status").read_text("ascii", "replace")
    held = int(status.partition("CapEff:")[2].split()[0], 16)
    return _FIRST_USER + os.getpid() if held & needed == needed else None


def give_folders(tier: Tier, places: Places) -> None:
    """Make the folders in which a program may write, and the files there, its user's property."""
    if (user := own_user(tier)) is not None:
        for folder in places.written:
            os.chown(folder, user, user)
            for file in folder.iterdir():
                os.chown(file, user, user, follow_symlinks=False)


def variables_of(places: Places, bounds: SandboxLimits) -> dict[str, str]:
    """Return the variables that differ from run to run: parameters, and how many threads to start.

    The parameter `least-share` is `PARAMETER_LEAST_SHARE`. One that is very long is left out.
    `places` are the folders as the program sees them.
    """
    threads = str(max(1, len(bounds.processors)))
    found = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    if places.checkpoint is not None:
        found[CHECKPOINT] = str(places.checkpoint)
    for name, value in places.parameters.items():
        if len(value.encode()) <= _LONGEST_VARIABLE and "\0" not in value:
            found[f"PARAMETER_{_NOT_IN_NAMES.sub('_', name.upper())}"] = value
    return found


def environment(tier: Tier, places: Places, bounds: SandboxLimits) -> dict[str, str]:
    """Build the program's whole environment, which has nothing of ours but the path to Python."""
    seen = inside(tier, places)
    path = (sysconfig.get_path("scripts"), "/usr/local/bin", "/usr/bin", "/bin")
    own = () if seen.environment is None else (str(seen.environment),)
    packages = (*own, *packages_elsewhere())
    python = {"PYTHONPATH": ":".join(packages)} if packages else {}
    names = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy") if bounds.reach else ()
    return (
        python
        | dict.fromkeys(names, f"http://127.0.0.1:{confine.PROXY_PORT}")
        | variables_of(seen, bounds)
        | {
            "PATH": ":".join(path),
            "HOME": str(seen.temporary),
            "TMPDIR": str(seen.temporary),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
        }
    )


def command_line(
    tier: Tier,
    command: tuple[str, ...],
    places: Places,
    bounds: SandboxLimits,
    proxy: int | None = None,
) -> list[str]:
    """Build the command that runs `command INPUT_DIR OUTPUT_DIR` within the sandbox.

    `proxy` is the descriptor that leads to the program's proxy, if it has one.
    """
    seen = inside(tier, places)
    program = [*command, str(seen.inputs), str(seen.outputs)]
    policy = [f"{name}={value}" for name, value in _rlimits(bounds).items()]
    policy += [f"tasks={_TASKS * (bounds.processes + OWN_PROCESSES)}"]
    policy += [f"processor={number}" for number in bounds.processors]
    if (user := own_user(tier)) is not None:
        policy += [f"user={user}"]
    tcp = proxy is not None and tier == "bubblewrap"
    if tcp:
        policy += [f"proxy={proxy}"]
    limits = tier == "limits"
    calls = filter_of(shared=limits and user is None, one_group=limits, tcp=tcp)
    policy += [f"filter={calls.hex()}"]
    if tier == "bubblewrap":
        launcher = [sys.executable, "-I", "-S", "/swathmill/confine.py"]
        return [*_bubblewrap(places, bounds), "--", *launcher, *policy, "--", *program]
    policy += [f"parent={os.getpid()}"]  # bubblewrap ends by itself
    folders = (places.package, places.inputs, places.environment)
    read = (*readable(), *(str(folder) for folder in folders if folder is not None), *KERNEL)
    policy += [f"read={path}" for path in read]
    policy += [f"write={path}" for path in (*places.written, *DEVICES)]
    policy += ["shared" if user is None else "search"]
    return [sys.executable, "-I", "-S", str(_CONFINE), *policy, "--", *program]


def inside(tier: Tier, places: Places) -> Places:
    """Return the folders as the program sees them."""
    if tier == "limits":
        return places
    root = Path("/swathmill")
    return replace(
        places,
        package=root / "package",
        inputs=root / "input",
        outputs=root / "output",
        temporary=Path("/tmp"),  # the attempt's own temporary folder is mounted there
        environment=root / "environment" if places.environment is not None else None,
        checkpoint=root / "checkpoint" if places.checkpoint is not None else None,
    )


def links_to(path: Path) -> dict[str, str]:
    """List the symbolic links on the way to a file, each with its target."""
    found: dict[str, str] = {}
    at, ahead, followed = Path("/"), list(path.absolute().parts[1:]), 0
    while ahead and followed < _MOST_LINKS:
        name = ahead.pop(0)
        if name == "..":
            at = at.parent
            continue
        step = at / name
        if not step.is_symlink():
            at = step
            continue
        target = found[str(step)] = os.readlink(step)  # noqa: PTH115 - keeps the target as written
        followed += 1
        ahead[:0] = Path(target).parts
        if Path(target).is_absolute():
            ahead.pop(0)
            at = Path("/")
    return found


def _links_outside(python: Path, mounted: tuple[str, ...]) -> dict[str, str]:
    """Find links on the way to our Python that lie neither in nor above a mounted folder."""
    folders = [Path(folder) for folder in mounted]
    return {
        link: target
        for link, target in links_to(python).items()
        if not any(Path(link).is_relative_to(f) or f.is_relative_to(link) for f in folders)
    }


def _bubblewrap(places: Places, bounds: SandboxLimits) -> list[str]:
    seen = inside("bubblewrap", places)
    # Own namespaces of every kind, an own terminal, and an end with this process.
    command = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL"]
    if own_user("bubblewrap") is None:
        command += ["--unshare-all", "--uid", "65534", "--gid", "65534"]
    else:  # root, whose number counts against no limit, also where a namespace shows another one
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        command += ["--unshare-cgroup-try", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    command += ["--hostname", "swathmill", "--clearenv"]
    for name, value in environment("bubblewrap", places, bounds).items():
        command += ["--setenv", name, value]
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--perms", "1777", "--size", str(_SHARED_MEMORY), "--tmpfs", SHARED_MEMORY]
    command += ["--bind", str(places.temporary), str(seen.temporary)]
    command += _mounts(sys.executable, (*readable(), *(_CERTIFICATES if bounds.reach else ())))
    command += ["--dir", str(seen.package.parent)]
    command += ["--ro-bind", str(_CONFINE), "/swathmill/confine.py"]
    command += ["--ro-bind", str(places.package), str(seen.package)]
    command += ["--ro-bind", str(places.inputs), str(seen.inputs)]
    if places.environment is not None:
        command += ["--ro-bind", str(places.environment), str(seen.environment)]
    command += ["--bind", str(places.outputs), str(seen.outputs)]
    if places.checkpoint is not None:
        command += ["--bind", str(places.checkpoint), str(seen.checkpoint)]
    command += ["--remount-ro", "/dev", "--remount-ro", "/"]
    return [*command, "--chdir", str(seen.package)]


@cache
def _mounts(python: str, readable: tuple[str, ...]) -> tuple[str, ...]:
    """Return bubblewrap's arguments for what all programs may read, our Python among it."""
    links = _links_outside(Path(python), readable)
    # Made here, the folders above are open to all; bubblewrap would make them for root alone.
    above = (str(up) for path in (*readable, *links) for up in reversed(Path(path).parents[:-1]))
    arguments = [word for folder in dict.fromkeys(above) for word in ("--dir", folder)]
    for path in readable:
        arguments += ["--ro-bind-try", path, path]
    for link, target in links.items():
        arguments += ["--symlink", target, link]
    return tuple(arguments)


def _rlimits(bounds: SandboxLimits) -> dict[str, int]:
    """Return the limits of each process; the runner watches limits of the whole tree."""
    return {
        # The runner ends a program that exceeds its memory and says why; this stops sudden growth.
        "RLIMIT_DATA": 2 * bounds.memory,
        "RLIMIT_CPU": int(bounds.seconds * bounds.processes) + 1,
        "RLIMIT_FSIZE": bounds.output,
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_CORE": 0,
    }
