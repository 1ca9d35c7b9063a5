"""Run a reduction's executable in the sandbox, and watch what it uses."""

import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from processes import proctree
from processes.parents import become_subreaper
from tasks.model.categories import Category
from tasks.run.classify import AttemptError
from worker.sandbox.plain_paths import PlainPaths
from worker.sandbox.sandbox import Places, SandboxLimits, Tier, command_line, environment, inside

POLL_SECONDS = 0.1
_TAIL = 4096
_OWN_PROCESSES = 3  # two of bubblewrap and the launcher
_DEPTH = 64  # levels of folders below OUTPUT_DIR that are counted


@dataclass(kw_only=True)
class _Run:
    process: subprocess.Popen[bytes]
    tail: bytearray
    paths: PlainPaths
    others: frozenset[int]  # children of this process that do not belong to the program

    def tree(self) -> list[int]:
        """List the program's processes."""
        return [pid for pid in proctree.descendants(os.getpid()) if pid not in self.others]

    def pump(self, wait: float) -> bool:
        """Pass on what the program prints; return False at the end of its output."""
        stream = self.process.stdout
        if stream is None:
            raise ValueError("the program was started without a pipe for its output")
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            if not selector.select(wait):
                return True
        data = os.read(stream.fileno(), 2**16)
        self._tell(self.paths.put(data))
        return bool(data)

    def _tell(self, text: bytes) -> None:
        self.tail += text
        del self.tail[:-_TAIL]
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()

    def last_line(self) -> str:
        """Return the last line that the program printed; nothing more is read."""
        self._tell(self.paths.end())
        lines = self.tail.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip()[:300] if lines else "it printed nothing"


def run_confined(
    tier: Tier, command: tuple[str, ...], places: Places, bounds: SandboxLimits
) -> None:
    """Run `command INPUT_DIR OUTPUT_DIR` to its end; none of its processes is left afterwards.

    Raises:
        AttemptError: user code failed, user code timed out, or out of memory.
    """
    # Processes that the program detaches become this process's children, and end with the program.
    others = frozenset(proctree.descendants(os.getpid()))
    become_subreaper()
    process = subprocess.Popen(
        command_line(tier, command, places, bounds),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=places.package,
        env=environment(tier, places),
        start_new_session=True,
    )
    paths = PlainPaths(inside(tier, places))
    run = _Run(process=process, tail=bytearray(), paths=paths, others=others)
    try:
        _watch(run, places, bounds)
    finally:
        _end(run)
        become_subreaper(False)
        last_line = run.last_line()
    code = process.returncode
    if code != 0:
        how = f"exit code {code}"
        if code < 0:
            how = signal.Signals(-code).name
        raise AttemptError(
            Category.USER_CODE_FAILED,
            f"{' '.join(command)} ended with {how}: {last_line}",
        )


def _watch(run: _Run, places: Places, bounds: SandboxLimits) -> None:
    start = time.monotonic()
    printing = True
    while run.process.poll() is None:
        if printing:
            printing = run.pump(POLL_SECONDS)
        else:
            time.sleep(POLL_SECONDS)
        if time.monotonic() - start > bounds.seconds:
            raise AttemptError(
                Category.USER_CODE_TIMED_OUT,
                f"the package's time limit of {bounds.seconds:g} s is over: {run.last_line()}",
            )
        _check(run.tree(), places, bounds)
    while printing:
        printing = run.pump(0.0) and _more(run)


def _more(run: _Run) -> bool:
    """Tell whether output is still in the pipe after the program has ended."""
    stream = run.process.stdout
    if stream is None:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(0.0))


def _check(tree: list[int], places: Places, bounds: SandboxLimits) -> None:
    if len(tree) > bounds.processes + _OWN_PROCESSES:
        raise AttemptError(
            Category.USER_CODE_FAILED,
            f"the package runs {len(tree)} processes, its limit is {bounds.processes}: raise "
            "`processes` under `resources`, or start fewer",
        )
    used = sum(proctree.memory(pid) for pid in tree)
    if used > bounds.memory:
        raise AttemptError(
            Category.OUT_OF_MEMORY,
            f"the package uses {used / 1e9:.2f} GB of memory, its limit is "
            f"{bounds.memory / 1e9:g} GB: raise `memory_gb` under `resources`",
        )
    written = _size(places.outputs) + _size(places.temporary)
    if written > bounds.output:
        raise AttemptError(
            Category.USER_CODE_FAILED,
            f"the package has written {written / 1e9:.2f} GB, its limit is "
            f"{bounds.output / 1e9:g} GB: raise `output_gb` under `resources`",
        )


def _size(folder: Path) -> int:
    total = 0
    for place, folders, files in os.walk(folder):
        if len(Path(place).parts) - len(folder.parts) > _DEPTH:
            folders.clear()
        for file in files:
            try:
                total += (Path(place) / file).lstat().st_size
            except FileNotFoundError:
                continue
    return total


def _end(run: _Run) -> None:
    """Kill what is left of the program, detached processes too, and reap it."""
    run.process.poll()
    while left := run.tree():
        for pid in left:
            if pid == run.process.pid:
                proctree.kill(pid)  # reaped by its Popen
            else:
                proctree.kill_and_reap(pid)
        run.process.poll()
        time.sleep(0.001)
    run.process.wait()
    if run.process.stdout is not None:
        run.process.stdout.close()
