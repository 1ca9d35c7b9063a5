"""The guard of one attempt: a small process between the supervisor and the child.

It is the child's subreaper, so that no process that the child starts can leave the tree, not even a
detached grandchild. It holds a pipe to the supervisor, whose end of file means that the supervisor
is dead. In that case, on an order to kill, and when the child ends, it kills what is left of the
tree. It also measures the tree's memory and keeps the tail of what the tree prints. It has one
thread.
"""

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

from processes import proctree
from processes.parents import become_subreaper, die_with_parent
from worker.sandbox.messages import Ended, encode

KILL = b"kill"
LOG_BYTES = 64 * 2**10
POLL_SECONDS = 0.1

_EX_SOFTWARE = 70  # sysexits.h
_OOM_SCORE = "700"  # the kernel's own killer should take the child, not its guard

Work = Callable[[Connection], int]
"""The child's work: it sends reports over the connection and returns its exit code."""


def guard(control: Connection, work: bytes, memory_limit: int) -> None:
    """Run `work`, a pickled `Work`, in a forked child; relay its reports to `control`.

    The last message is an `Ended`. The child unpickles the work, and therefore imports its modules,
    so errors there appear in the attempt's log. `memory_limit` is in bytes, over all processes of
    the tree.
    """
    try:
        ended = _guard(control, work, memory_limit)
    except Exception as error:  # noqa: BLE001 - every error is reported to the supervisor
        proctree.kill_descendants(os.getpid())
        text = "".join(traceback.format_exception(error))
        ended = Ended(exit_code=_EX_SOFTWARE, peak_memory=0, over_memory=False, log=text)
    with suppress(BrokenPipeError, ConnectionResetError):  # the supervisor is dead
        control.send_bytes(encode(ended))


def _guard(control: Connection, work: bytes, memory_limit: int) -> Ended:
    os.setsid()  # only the supervisor handles a terminal's Ctrl-C
    become_subreaper()
    reports, child_reports = _pipe()
    log_read, log_write = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        control.close()
        reports.close()
        os.close(log_read)
        _child(parent, log_write, child_reports, work)
    child_reports.close()
    os.close(log_write)
    os.set_blocking(log_read, False)
    watch = _Watch(
        control=control, reports=reports, log=log_read, child=child, memory_limit=memory_limit
    )
    return watch.run()


@dataclass(kw_only=True)
class _Watch:
    control: Connection
    reports: Connection
    log: int
    child: int
    memory_limit: int
    peak: int = 0
    over: bool = False
    exit_code: int | None = None
    tail: bytearray = field(default_factory=bytearray)

    def run(self) -> Ended:
        pidfd = os.pidfd_open(self.child)
        killed = False
        sources: list[Connection | int] = [self.control, self.reports, self.log, pidfd]
        while not killed:
            ready = wait(sources, timeout=POLL_SECONDS)
            if pidfd in ready:
                break
            if self.control in ready:
                killed = self._ordered()
            if self.reports in ready and not self._relay():
                sources.remove(self.reports)
            if self.log in ready and not self._read_log():
                sources.remove(self.log)
            self._measure()
            killed = killed or self.over
        self._end_tree()
        while self.reports in sources and self.reports.poll(0) and self._relay():
            pass
        self._read_log()
        os.close(pidfd)
        return Ended(
            exit_code=None if killed else self.exit_code,
            peak_memory=self.peak,
            over_memory=self.over,
            log=self.tail.decode("utf-8", "replace"),
        )

    def _ordered(self) -> bool:
        """Tell whether the supervisor wants the tree killed: it says so, or it has died."""
        try:
            return self.control.recv_bytes() == KILL
        except (EOFError, ConnectionResetError):
            return True

    def _relay(self) -> bool:
        try:
            data = self.reports.recv_bytes()
        except (EOFError, OSError):
            return False
        with suppress(BrokenPipeError, ConnectionResetError):  # the next `_ordered` notices it
            self.control.send_bytes(data)
        return True

    def _read_log(self) -> bool:
        while True:
            try:
                data = os.read(self.log, 2**16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.tail += data
            del self.tail[:-LOG_BYTES]

    def _measure(self) -> None:
        self.peak = max(self.peak, proctree.tree_memory(os.getpid()))
        self.over = self.peak > self.memory_limit

    def _end_tree(self) -> None:
        """Kill and reap until no descendant is left; each round finds what was forked meanwhile."""
        while True:
            proctree.kill_descendants(os.getpid())
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == self.child:
                self.exit_code = os.waitstatus_to_exitcode(status)
            elif pid == 0:
                time.sleep(0.001)


def _child(parent: int, log: int, reports: Connection, work: bytes) -> None:
    """Become the attempt's process; never return."""
    code = _EX_SOFTWARE  # for failures that the work itself could not report
    try:
        os.setsid()
        if not die_with_parent(parent):
            os._exit(code)
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:  # noqa: PTH123
            score.write(_OOM_SCORE)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        run: Work = pickle.loads(work)
        code = run(reports)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the caller is only a forked copy of the guard
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


def _pipe() -> tuple[Connection, Connection]:
    read, write = os.pipe()
    return Connection(read, writable=False), Connection(write, readable=False)
