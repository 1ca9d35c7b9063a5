"""Workers as elements of Slurm's job arrays."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from swathmill.commands.fleet.engine import Started
from swathmill.errors import ArgumentError, StackError

JOB = "swathmill-worker"
"""The name of the jobs, by which they are found again; whatever the script calls itself.

Those of a place have its name behind it.
"""

_STATES = "PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED"
_SECONDS = 60
_USUAL = (["None"], ["Priority"], ["Resources"])  # it waits in turn


class Slurm:
    """Submits a batch script, one element of an array for each worker."""

    def __init__(self, script: str, slots: int, place: str = "") -> None:
        """Raise ArgumentError where there is no such script."""
        if not Path(script).is_file():
            raise ArgumentError(
                f"There is no batch script {script or '(none)'}.",
                "Name one: slurm:infra/slurm/worker.sbatch.",
            )
        self._script = script
        self._slots = slots
        self._job = f"{JOB}-{place}" if place else JOB
        self._export = (f"--export=ALL,SWATHMILL_WORKER_PLACE={place}",) if place else ()
        self._ids: dict[str, str] = {}  # by the names of workers, as scancel takes them

    def there(self) -> list[Started]:
        """Implement `Engine.there`, in the order in which they were submitted."""
        said = _run(
            "squeue", "--me", "--noheader", "--array", f"--name={self._job}", f"--states={_STATES}",
            "--sort=i", "--format=%F %K %T %r",
        )  # fmt: skip
        found = []
        for line in said.splitlines():
            job, element, state, *reason = line.split(maxsplit=3)
            alone = element == "N/A"  # submitted by hand, without an array
            name = f"slurm-{job}-{'0' if alone else element}"
            self._ids[name] = job if alone else f"{job}_{element}"
            running = state not in ("PENDING", "CONFIGURING")
            why = "" if running or reason in _USUAL else " ".join(reason)
            found.append(Started(name=name, running=running, why=why))
        return found

    def start(self, count: int) -> None:
        """Implement `Engine.start`."""
        _run(
            "sbatch", f"--job-name={self._job}", f"--array=1-{count}",
            f"--cpus-per-task={self._slots}", *self._export, self._script,
        )  # fmt: skip

    def end(self, names: Sequence[str]) -> None:
        """Implement `Engine.end`: Slurm looks at the state itself."""
        _run("scancel", "--state=PENDING", *(self._ids[name] for name in names))


def _run(*words: str) -> str:
    """Run a program of Slurm's and return what it prints."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(
            f"{words[0]} cannot be run: {error}.", "Run this where Slurm's programs are."
        ) from error
    if done.returncode:
        raise StackError(
            f"{words[0]} ended with {done.returncode}: {done.stderr.strip()[:300]}",
            "Try what it was given by hand.",
        )
    return done.stdout
