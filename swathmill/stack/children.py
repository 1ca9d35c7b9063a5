"""Child processes of the stack: each in its own group, bound to the supervisor, stopped gently."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from processes import handed_over, ready
from processes.proctree import kill_group
from swathmill.errors import StackError
from swathmill.stack import forked
from swathmill.stack.forked import ForkedProcess
from tasks.secret_settings import is_secret

LEASH = Path(__file__).with_name("leash.py")
LOG_TAIL_BYTES = 2000
POLL_SECONDS = 0.02
REAP_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class ChildSpec:
    """How one child is started and stopped.

    `argv[0]` is an absolute path. `env` is added to the supervisor's environment without its
    `SECRETS`; a value of None removes a name. `orphan_signal` is the signal that the child gets
    when the supervisor dies. `says_ready` means that it says so itself (`processes/ready.py`). With
    `takes`, the secrets of its environment are handed over (`processes/handed_over.py`), with
    `handed`; as long as that is None, the child waits for it.
    `forks` is a module and its arguments: the module's `main()` does what `argv` does, in a fork of
    the supervisor.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str | None] = field(default_factory=dict)
    stdin: str = ""
    says_ready: bool = False
    takes: bool = False
    handed: Mapping[str, str] | None = None
    forks: tuple[str, ...] = ()
    grace_seconds: float = 10.0
    orphan_signal: signal.Signals = signal.SIGKILL


class Child:
    """One running child and its log file.

    Start it from the supervisor's main thread: the signal at the supervisor's death depends on the
    thread that started the child.
    """

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._asked = False
        self._ready: int | None = None  # the pipe in which the child says that it is ready
        self._handing: handed_over.Pipe | None = None
        self._secrets: Mapping[str, str] = {}

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def given(self) -> Mapping[str, str | None]:
        """The variables added to its environment, with the secrets that it is handed."""
        return {**self.spec.env, **(self.spec.handed or {})}

    def start(self, *, fork: bool = False) -> None:
        """Start the child; its output is appended to its log.

        With `fork`, a child that can be forked is, if this process can.
        """
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        env = _environment(self.spec.env)
        theirs: list[int] = []
        if self.spec.says_ready:
            self._ready, told = os.pipe()
            env[ready.VARIABLE] = str(told)
            theirs.append(told)
        if self.spec.takes:
            self._handing = handed_over.Pipe()
            self._secrets = {name: env.pop(name) for name in [*env] if is_secret(name, env[name])}
            env[handed_over.VARIABLE] = str(self._handing.reading)
            theirs.append(self._handing.reading)
        try:
            with self.spec.log.open("ab") as log:
                if fork and self.spec.forks and forked.possible():
                    self._process = ForkedProcess(self.spec.forks, env, log.fileno(), theirs)
                else:
                    self._process = self._opened(env, log, theirs)
        finally:
            for number in theirs:
                os.close(number)
        if self.spec.handed is not None:
            self.hand_over(self.spec.handed)
        if self._process.stdin is not None:
            with self._process.stdin as pipe:
                pipe.write(self.spec.stdin.encode())

    def hand_over(self, secrets: Mapping[str, str]) -> None:
        """Let a child that `takes` secrets go on with these; also if it is started again."""
        self.spec = replace(self.spec, handed=secrets)
        if self._handing is not None:
            self._handing.write({**self._secrets, **secrets})
            self._handing = None

    def _opened(
        self, env: Mapping[str, str], log: BinaryIO, theirs: Sequence[int]
    ) -> subprocess.Popen[bytes]:
        """Start the child's program; `theirs` are its ends of pipes."""
        command = [
            sys.executable,
            "-I",
            "-S",
            str(LEASH),
            str(int(self.spec.orphan_signal)),
            str(os.getpid()),
            *self.spec.argv,
        ]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE if self.spec.stdin else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            process_group=0,
            pass_fds=tuple(theirs),
        )

    def exit_code(self) -> int | None:
        """Return the exit code if the child has ended (negative: a signal ended it), else None."""
        return None if self._process is None else self._process.poll()

    def wait_until(self, ready: Callable[[], bool], *, limit_seconds: float) -> None:
        """Poll `ready` until it holds; raise StackError if the child ends or time runs out."""
        deadline = time.monotonic() + limit_seconds
        while not ready():
            if self.exit_code() is not None:
                raise self._ended()
            if time.monotonic() > deadline:
                raise self._late(limit_seconds)
            time.sleep(POLL_SECONDS)

    def wait_ready(self, *, limit_seconds: float) -> None:
        """Wait until the child says that it is ready; raise StackError if it ends or is too late.

        Its pipe tells both: a child that has ended has closed it.
        """
        assert self._ready is not None
        assert self._process is not None
        try:
            if not select.select([self._ready], [], [], limit_seconds)[0]:
                raise self._late(limit_seconds)
            if not os.read(self._ready, 1):
                self._process.wait()
                raise self._ended()
        finally:
            self._close_ready()

    def _ended(self) -> StackError:
        return StackError(
            f"{self.spec.name} ended with exit code {self.exit_code()} while starting.",
            f"Its last words ({self.spec.log}):\n{self.log_tail()}",
        )

    def _late(self, limit_seconds: float) -> StackError:
        return StackError(
            f"{self.spec.name} was not ready within {limit_seconds:.0f} s.",
            f"Its last words ({self.spec.log}):\n{self.log_tail()}",
        )

    def _close_ready(self) -> None:
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None

    def _close_pipes(self) -> None:
        self._close_ready()
        if self._handing is not None:
            self._handing.close()
            self._handing = None

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the child if it runs, at most once.

        A second one would end Node (Azurite) at once, while it closes its files.
        """
        if self._process is not None and self._process.poll() is None and not self._asked:
            self._asked = True
            self._process.send_signal(signal.SIGTERM)

    def stop(self, *, waited: float = 0.0) -> None:
        """Send SIGTERM, after the grace SIGKILL to the whole group; return when it is reaped.

        `waited` seconds of the grace are over already.
        """
        if self._process is None:
            return
        self._close_pipes()
        self.ask_to_stop()
        try:
            _wait(self._process, max(0.0, self.spec.grace_seconds - waited))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._reap()
        kill_group(self._process.pid)

    def kill(self) -> None:
        """Send SIGKILL to the child and its group, without grace."""
        self._close_pipes()
        if self._process is not None:
            self._process.kill()
            self._reap()
            kill_group(self._process.pid)

    def _reap(self) -> None:
        """Wait for a child that was killed; one that the kernel does not let end is given up."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            _wait(self._process, REAP_SECONDS)

    def log_tail(self) -> str:
        """Return the end of the child's log, for messages."""
        if not self.spec.log.exists():
            return "(nothing)"
        with self.spec.log.open("rb") as log:
            log.seek(max(0, self.spec.log.stat().st_size - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip() or "(nothing)"

    def last_line(self) -> str:
        """Return the last line of the child's log."""
        return self.log_tail().splitlines()[-1]


def _wait(process: subprocess.Popen[bytes] | ForkedProcess, seconds: float) -> None:
    """Wait for a process's end; raise subprocess.TimeoutExpired if it takes longer.

    `Popen.wait` looks up to 50 ms later.
    """
    if sys.platform == "linux" and isinstance(process, subprocess.Popen):
        with suppress(ProcessLookupError):  # it has been reaped
            end = os.pidfd_open(process.pid)
            try:
                poll = select.poll()
                poll.register(end, select.POLLIN)
                poll.poll(seconds * 1000)
            finally:
                os.close(end)
            seconds = 0.0
    process.wait(seconds)


SECRETS = ("SWATHMILL_SECRET", "SWATHMILL_SMTP_PASSWORD", "SWATHMILL_EARTHDATA_TOKEN")
"""The settings that a child has only where its specification names them."""


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {name: value for name, value in os.environ.items() if name not in SECRETS}
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged
