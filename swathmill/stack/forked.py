"""A service forked from this process, which has imported what the services share.

A new interpreter would import the same once more, which takes up to a second of CPU time.
"""

import gc
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from processes.parents import die_with_parent, name_process

_FDS = Path("/proc/self/fd")
_STDERR = 2


def possible() -> bool:
    """Return whether this process can be forked: on Linux, while it has one thread."""
    return sys.platform == "linux" and threading.active_count() == 1


def load(module: str) -> None:
    """Import a module, of which a service is forked then.

    What is imported stays: looking for garbage in it takes a fifth of the time, and would make each
    fork copy it.
    """
    gc.disable()
    importlib.import_module(module)
    gc.freeze()
    gc.enable()


class ForkedProcess:
    """What `Child` uses of `subprocess.Popen`, of a forked process.

    It runs `main()` of a module in its own process group, with `environment` alone and its output
    in a file. It dies with the thread that forked it. Of the open files only `kept` stay open.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], log: int, kept: Sequence[int]
    ) -> None:
        """Fork; `words` are the module and its arguments."""
        others = {int(file.name) for file in _FDS.iterdir()} - {log, *kept}
        self.args = tuple(words)
        self.stdin = None
        self._process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(words, environment, log, others, os.getpid())
        )
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raise subprocess.TimeoutExpired if it takes longer."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def _serve(
    words: Sequence[str],
    environment: Mapping[str, str],
    log: int,
    others: Iterable[int],
    parent: int,
) -> None:
    """Become the service, in the forked process."""
    os.setpgid(0, 0)
    if not die_with_parent(parent):
        os._exit(1)
    name_process(words[0].removesuffix(".__main__").rpartition(".")[2])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_standard_files(log, others)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    sys.exit(importlib.import_module(words[0]).main())


def _open_standard_files(log: int, others: Iterable[int]) -> None:
    """Close the parent's files, and write into the log."""
    for number in others:
        if number > _STDERR:
            with suppress(OSError):  # the list itself was among them
                os.close(number)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, source in enumerate((nothing, log, log)):
        os.dup2(source, number)
    os.close(nothing)
    os.close(log)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a descriptor, open to the end
    for name, number in (("stdout", 1), ("stderr", _STDERR)):
        stream = open(number, "w", buffering=1, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
