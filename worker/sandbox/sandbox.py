"""The sandbox of a reduction: no network, no secrets, a read-only system, limited resources.

It has two tiers. `bubblewrap` has its own namespaces for files, processes and network. `limits`
runs where namespaces cannot be created (a container under the usual seccomp profile): resource
limits, no_new_privs, Landlock for files and seccomp against sockets, as far as the kernel supports
them. In this tier the program sees the machine's processes; the report names what is missing.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.errors import SwathmillError
from tasks.settings import Settings
from worker.sandbox import confine

Tier = Literal["bubblewrap", "limits"]

PROBE_SECONDS = 10.0
_CONFINE = Path(confine.__file__).resolve()
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
# The files of /etc that programs need to start and to write dates and numbers; no secrets.
_ETC = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/mime.types",
    "/etc/fonts",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_KERNEL = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu")
_SHARED_MEMORY = 256 * 2**20
_OPEN_FILES = 1024
_MOST_LINKS = 40  # the limit of Linux, path_resolution(7)


class SandboxError(SwathmillError):
    """The sandbox that the settings demand does not work on this machine."""


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """What a program may use, including its descendants, in bytes and seconds."""

    memory: int
    seconds: float
    processes: int
    output: int


@dataclass(frozen=True, kw_only=True)
class Places:
    """The folders of a program: its package, inputs (read-only), outputs and a temporary one."""

    package: Path
    inputs: Path
    outputs: Path
    temporary: Path


@dataclass(frozen=True, kw_only=True)
class SandboxReport:
    """The tier in which reductions run, what it prevents, and what it does not."""

    tier: Tier
    holds: tuple[str, ...]
    lacks: tuple[str, ...]
    remedy: str = ""

    @property
    def line(self) -> str:
        """The report in one line, for the worker's row."""
        lacks = f"; lacks {', '.join(self.lacks)}" if self.lacks else ""
        return f"{self.tier}: {', '.join(self.holds)}{lacks}"


def report(settings: Settings) -> SandboxReport:
    """Probe this machine for the tier that the settings demand, or for the strongest one.

    Raises:
        SandboxError: bubblewrap is demanded and does not work here.
    """
    problem = "not asked for" if settings.sandbox == "limits" else probe_bubblewrap()
    if not problem:
        return SandboxReport(
            tier="bubblewrap",
            holds=(
                "no network",
                "own process and file namespaces",
                "read-only system",
                "no capabilities",
                "resource limits",
            ),
            lacks=(),
        )
    if settings.sandbox == "bubblewrap":
        raise SandboxError(
            f"SWATHMILL_SANDBOX demands bubblewrap, which does not work here: {problem}. Install "
            "bubblewrap and allow user namespaces, or set SWATHMILL_SANDBOX=auto."
        )
    return _limits_report(problem)


def _limits_report(problem: str) -> SandboxReport:
    holds, lacks = ["resource limits", "no new privileges"], ["own process namespace"]
    abi = confine.landlock_abi()
    (holds if abi else lacks).append("only own files (Landlock)")
    (holds if abi >= 6 else lacks).append("no signals to other processes")
    (holds if confine.seccomp_known() else lacks).append("no sockets (seccomp)")
    remedy = "" if problem == "not asked for" else f"Bubblewrap: {problem}."
    return SandboxReport(tier="limits", holds=tuple(holds), lacks=tuple(lacks), remedy=remedy)


def probe_bubblewrap() -> str:
    """Explain why bubblewrap does not work here; return "" if it works."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    bounds = SandboxLimits(memory=2**30, seconds=PROBE_SECONDS, processes=16, output=2**20)
    try:
        with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
            here = Path(name)
            places = Places(package=here, inputs=here, outputs=here, temporary=here)
            command = command_line("bubblewrap", ("python", "-c", "pass"), places, bounds)
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"exit code {done.returncode}")


def environment(tier: Tier, places: Places) -> dict[str, str]:
    """Build the program's whole environment, which has nothing of ours but the path to Python."""
    seen = inside(tier, places)
    path = (sysconfig.get_path("scripts"), "/usr/local/bin", "/usr/bin", "/bin")
    return {
        "PATH": ":".join(path),
        "HOME": str(seen.temporary),
        "TMPDIR": str(seen.temporary),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def command_line(
    tier: Tier, command: tuple[str, ...], places: Places, bounds: SandboxLimits
) -> list[str]:
    """Build the command that runs `command INPUT_DIR OUTPUT_DIR` within the sandbox."""
    seen = inside(tier, places)
    program = [*command, str(seen.inputs), str(seen.outputs)]
    policy: dict[str, object] = {"limits": _rlimits(bounds)}
    if tier == "limits":
        policy["sockets"] = not confine.seccomp_known()
        if confine.landlock_abi():
            read = [*_readable(), str(places.package), str(places.inputs), *_KERNEL]
            policy["read"] = read
            policy["write"] = [str(places.outputs), str(places.temporary), *_DEVICES]
        return [sys.executable, "-I", "-S", str(_CONFINE), json.dumps(policy), *program]
    confined = [sys.executable, "-I", "-S", "/swathmill/confine.py", json.dumps(policy)]
    return [*_bubblewrap(places), "--", *confined, *program]


def inside(tier: Tier, places: Places) -> Places:
    """Return the folders as the program sees them."""
    if tier == "limits":
        return places
    root = Path("/swathmill")
    return Places(
        package=root / "package",
        inputs=root / "input",
        outputs=root / "output",
        temporary=Path("/tmp"),  # the attempt's own temporary folder is mounted there
    )


def _readable() -> list[str]:
    """List the folders of the system and of our Python, which a program may read and run."""
    python = (sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1]))
    return list(dict.fromkeys((*_SYSTEM, *_ETC, *python)))


def links_to(path: Path) -> dict[str, str]:
    """List the symbolic links on the way to a file, each with its target."""
    found: dict[str, str] = {}
    at, ahead = Path("/"), list(path.absolute().parts[1:])
    while ahead and len(found) < _MOST_LINKS:
        name = ahead.pop(0)
        if name == "..":
            at = at.parent
            continue
        step = at / name
        if not step.is_symlink():
            at = step
            continue
        target = found[str(step)] = os.readlink(step)  # noqa: PTH115 - keeps the target as written
        ahead[:0] = Path(target).parts
        if Path(target).is_absolute():
            ahead.pop(0)
            at = Path("/")
    return found


def _links_outside(mounted: list[str]) -> dict[str, str]:
    """Find links on the way to our Python that lie neither in nor above a mounted folder."""
    folders = [Path(folder) for folder in mounted]
    return {
        link: target
        for link, target in links_to(Path(sys.executable)).items()
        if not any(Path(link).is_relative_to(f) or f.is_relative_to(link) for f in folders)
    }


def _bubblewrap(places: Places) -> list[str]:
    seen = inside("bubblewrap", places)
    # Own namespaces of every kind, no capability, an own terminal, and an end with this process.
    command = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
    ]
    command += ["--uid", "65534", "--gid", "65534", "--hostname", "swathmill", "--clearenv"]
    for name, value in environment("bubblewrap", places).items():
        command += ["--setenv", name, value]
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--size", str(_SHARED_MEMORY), "--tmpfs", "/dev/shm"]
    command += ["--bind", str(places.temporary), str(seen.temporary)]
    readable = _readable()
    for path in readable:
        command += ["--ro-bind-try", path, path]
    for link, target in _links_outside(readable).items():
        command += ["--symlink", target, link]
    command += ["--ro-bind", str(_CONFINE), "/swathmill/confine.py"]
    command += ["--ro-bind", str(places.package), str(seen.package)]
    command += ["--ro-bind", str(places.inputs), str(seen.inputs)]
    command += ["--bind", str(places.outputs), str(seen.outputs)]
    return [*command, "--remount-ro", "/", "--chdir", str(seen.package)]


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
