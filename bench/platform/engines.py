"""Where the nodes of a study run: processes of this machine, engines of `swathmill fleet`, by hand.

A process of this machine may run in a copy of a role's environment (`local:worker`): the copy
stands for the image that a new machine fetches.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from bench.platform.fleet import BOOT
from swathmill.commands.fleet.engine import Engine, Started
from swathmill.commands.fleet.registry import FORMS, open_engine
from swathmill.errors import ArgumentError
from tests.infra import roles

LOCAL = "local"
OWN = "swathmill"
_ROOT = Path(__file__).parents[2]
_COPIED = 'mkdir "$1" && cp -R "$0/." "$1" && home=$1 && shift && PYTHONPATH=$home exec "$@"'


@dataclass
class Processes:
    """Nodes as processes of this machine.

    With a deployment, each first copies that folder, and then imports from the copy alone: the
    program of the role, as its image would, and what a node needs.
    """

    url: str
    study: str
    home: Path
    deployment: Path | None = None
    program: str = ""
    _started: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def there(self) -> list[Started]:
        """Implement `Engine.there`."""
        going = [name for name, one in self._started.items() if one.poll() is None]
        return [Started(name=name, running=True) for name in going]

    def start(self, count: int) -> None:
        """Implement `Engine.start`."""
        for _ in range(count):
            name = f"node-{len(self._started)}"
            self._started[name] = subprocess.Popen(
                self._command(self.home / name), start_new_session=True
            )

    def end(self, names: Sequence[str]) -> None:
        """Implement `Engine.end`: none waits."""

    def close(self) -> None:
        """Wait until the nodes have left; end those that do not."""
        for one in self._started.values():
            try:
                one.wait(10)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()

    def _command(self, copy: Path) -> list[str]:
        if self.deployment is None:
            return [sys.executable, "-c", BOOT, self.url, self.study]
        base = getattr(sys, "_base_executable", sys.executable)
        boot = f"import {self.program};{BOOT}" if self.program else BOOT
        # Nothing of the machine's own packages (-S) or of this folder (-P) is there.
        node = [base, "-S", "-P", "-c", boot, self.url, self.study]
        return ["sh", "-c", _COPIED, str(self.deployment), str(copy), *node]


@dataclass(frozen=True)
class ByHand:
    """Nodes that somebody starts on machines of their own."""

    study: str
    say: Callable[[str], None]

    def there(self) -> list[Started]:
        """Implement `Engine.there`: nobody knows."""
        return []

    def start(self, count: int) -> None:
        """Implement `Engine.start`: tell the command."""
        self.say(f"Start on {count} machines, where $REDIS is the URL of --meet:")
        self.say(f'python -c "{BOOT}" "$REDIS" {self.study}')

    def end(self, names: Sequence[str]) -> None:
        """Implement `Engine.end`: none waits."""


ENGINES = (LOCAL, f"{LOCAL}:ROLE", *FORMS)
"""How engines of nodes are named."""


@contextmanager
def opened(text: str, url: str, study: str, say: Callable[[str], None]) -> Iterator[Engine]:
    """Open the engine that a text names: empty (by hand), `local`, `local:ROLE`, or an engine.

    Raises ArgumentError.
    """
    kind, _, which = text.partition(":")
    if not text:
        yield ByHand(study, say)
        return
    if kind != LOCAL:
        yield open_engine(text, slots=1)
        return
    if which and which not in roles.PROGRAMS:
        raise ArgumentError(f"There is no role {which!r}.", f"Roles: {', '.join(roles.PROGRAMS)}.")
    with tempfile.TemporaryDirectory() as name:
        deployment = deployed(which, Path(name) / "deployment") if which else None
        processes = Processes(url, study, Path(name), deployment, roles.PROGRAMS.get(which, ""))
        try:
            yield processes
        finally:
            processes.close()


def deployed(role: str, folder: Path) -> Path:
    """Copy the packages of a role's image, and our own, from this environment into a folder."""
    folder.mkdir()
    kept = roles.locked().difference(roles.left_out(role)) | {OWN}
    for found in metadata.distributions():
        if roles.normal(found.metadata["Name"]) not in kept:
            continue
        own = found.metadata["Name"] == OWN
        for file in found.files or ():
            if own and not file.parts[0].endswith(".dist-info"):
                continue  # our packages come from the checkout
            if ".." not in file.parts and (source := Path(str(found.locate_file(file)))).is_file():
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    for package in sorted(roles.OURS):
        shutil.copytree(
            _ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder
