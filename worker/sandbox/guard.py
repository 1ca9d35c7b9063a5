"""The guard of a slot: a small process between the supervisor and the slot's warm child.

It also forks the server of the child's makers (`makers.py`), before it has what the child gets, so
that no secret is in their memory. It is the subreaper of both, so that no process that they start
can leave the tree, not even a detached grandchild. It holds a pipe to the supervisor, whose end of
file means that the supervisor is dead. In that case, on an order to kill, and when the child ends,
it kills what is left of the tree. It passes jobs to the child, one after the other; for each it
measures the tree's memory and processor time, and keeps the tail of what the tree prints. A child
that left a process behind, or holds too much memory, ends with its attempt. The guard ends with its
child. It has one thread.
"""

import os
import pickle
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from processes import proctree
from processes.parents import become_subreaper, die_with_parent
from tasks.shown_text import shown
from tasks.storage.writable import is_full
from worker.sandbox.makers import Makers, start_server
from worker.sandbox.messages import POLL_SECONDS, PROGRESS, Ended, encode

KILL, JOB = b"kill", b"job"  # orders; the attempt's number follows, then the job
LOG_BYTES = 64 * 2**10
MOST_ATTEMPTS = 5000  # of one child
KEPT_SHARE = 8  # a child may keep an eighth of the memory limit beyond what it held at first

_DONE = b"done"  # the child's message after an attempt's last report
_EX_SOFTWARE = 70  # sysexits.h
_OOM_SCORE = "700"  # the kernel's own killer should take the child, not its guard

Work = Callable[[bytes, Connection], int]
"""Does one job: sends reports over the connection; unless it returns 0, the child ends with it.

A negative code is the signal by which the job's maker ended: the child ends by it, too.
"""
MakeWork = Callable[[Makers], Work]
"""Prepares a child for its jobs, with the makers that it may use; runs in the child."""


def guard(control: Connection, memory_limit: int, home: Path) -> None:
    """Run the jobs that come over `control` in a forked child; relay its reports to `control`.

    The first message from `control` is a pickled `MakeWork`, the others are orders; the last
    message of an attempt is an `Ended`. The child unpickles the `MakeWork`, and therefore imports
    its modules, so errors there appear in the first attempt's log. `memory_limit` is in bytes, over
    all processes of the tree. `home` is the folder of the child's makers.
    """
    try:
        ended = _guard(control, memory_limit, home)
    except Exception as error:  # noqa: BLE001 - every error is reported to the supervisor
        proctree.kill_descendants(os.getpid())
        text = "".join(traceback.format_exception(error))
        ended = Ended(exit_code=_EX_SOFTWARE, peak_memory=0, over_memory=False, log=text)
    with suppress(BrokenPipeError, ConnectionResetError):  # the supervisor is dead
        control.send_bytes(encode(ended))


def order(kind: bytes, attempt: int, job: bytes = b"") -> bytes:
    """Compose an order to the guard."""
    return b"%b %d %b" % (kind, attempt, job)


def _guard(control: Connection, memory_limit: int, home: Path) -> Ended:
    os.setsid()  # only the supervisor handles a terminal's Ctrl-C
    become_subreaper()
    log_read, log_write = os.pipe()
    server, orders = start_server(log_write, (control,))
    make_work = control.recv_bytes()
    reports, child_reports = _pipe()
    child_jobs, jobs = _pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        for ours in (control, reports, jobs):
            ours.close()
        os.close(log_read)
        makers = Makers(orders, home)
        _child(parent, log_write, child_jobs, child_reports, partial(_made, make_work, makers))
    orders.close()
    child_reports.close()
    child_jobs.close()
    os.close(log_write)
    os.set_blocking(log_read, False)
    watch = _Watch(
        control=control,
        jobs=jobs,
        reports=reports,
        log=log_read,
        child=child,
        server=server,
        memory_limit=memory_limit,
        home=home,
    )
    return watch.run()


def _made(make_work: bytes, makers: Makers) -> Work:
    make: MakeWork = pickle.loads(make_work)
    return make(makers)


@dataclass(kw_only=True)
class _Watch:
    control: Connection
    jobs: Connection
    reports: Connection
    log: int
    child: int
    server: int  # of the child's makers
    memory_limit: int
    home: Path  # of the makers, on the disk on which attempts write
    attempt: int = 0  # the number of the one in hand; 0: the child is idle
    served: int = 0
    first_memory: int = 0
    tree: list[int] = field(default_factory=list)  # all below, at the last look
    makers: tuple[int, ...] = ()  # at the last look
    shared: int = 0  # bytes that makers have in common with their server
    measured: float = 0.0  # monotonic
    peak: int = 0
    cpu: float = 0.0  # seconds of the tree at the end of the attempt before
    done: bool = False
    progress: bytes = b""  # the latest report of it, not passed on yet
    exit_code: int | None = None
    tail: bytearray = field(default_factory=bytearray)

    @property
    def over(self) -> bool:
        """True if the attempt in hand has used too much memory."""
        return self.peak > self.memory_limit

    def run(self) -> Ended:
        """Serve until the child has ended or must end; return the last attempt's end."""
        killed = self._serve()
        self._end_tree()
        while self.reports.poll(0) and self._relay():
            pass
        self._read_log()
        if killed:
            return self._ended(None)
        return self._ended(0 if self.done else self.exit_code)

    def _serve(self) -> bool:
        """Give the child its jobs; return whether it has to be killed in the midst of one."""
        pidfd = os.pidfd_open(self.child)
        with selectors.DefaultSelector() as selector:
            for source in (self.control, self.reports, self.log, pidfd):
                selector.register(source, selectors.EVENT_READ)
            while True:
                wait = None
                if self.attempt:
                    wait = max(0.0, self.measured + POLL_SECONDS - time.monotonic())
                ready = [key.fileobj for key, _ in selector.select(wait)]
                if self.control in ready and not self._obey():
                    return True
                if self.reports in ready and not self._relay():
                    selector.unregister(self.reports)
                if self.log in ready and not self._read_log():
                    selector.unregister(self.log)
                if pidfd in ready or (self.done and not self._next()):
                    os.close(pidfd)
                    return False
                if self.attempt and time.monotonic() - self.measured >= POLL_SECONDS:
                    self._measure()
                    self._pass_progress()
                if self.over:
                    return True

    def _obey(self) -> bool:
        """Follow an order; return False if the tree is to be killed, or the supervisor is dead.

        An order to kill names its attempt: one that comes late does not touch the next attempt.
        """
        try:
            text = self.control.recv_bytes()
        except (EOFError, ConnectionResetError):
            return False
        kind, number, job = text.split(b" ", 2)
        if kind == KILL:
            return int(number) != self.attempt
        if not self.first_memory:
            self.first_memory = proctree.memory(self.child)
            self.tree = proctree.descendants(os.getpid())
            self.cpu = self._cpu()  # getting ready is no attempt's
        self.attempt, self.measured = int(number), time.monotonic()
        with suppress(BrokenPipeError):  # the child has just ended
            self.jobs.send_bytes(job)
        return True

    def _next(self) -> bool:
        """End the attempt in hand; return whether the child is fit for another."""
        self._read_log()
        self._reap()
        self.served += 1
        held = self._measure()
        most = self.first_memory + self.memory_limit // KEPT_SHARE
        if self.over or self.served >= MOST_ATTEMPTS:
            return False
        if held.keys() - {self.child, *self.makers} or sum(held.values()) > most:
            return False
        self._send(encode(self._ended(0, kept=True)))
        self.attempt, self.peak, self.done = 0, 0, False
        self.tail.clear()
        return True

    def _ended(self, exit_code: int | None, *, kept: bool = False) -> Ended:
        self._pass_progress()
        before, self.cpu = self.cpu, self._cpu()
        return Ended(
            exit_code=exit_code,
            peak_memory=self.peak,
            over_memory=self.over,
            log=shown(self.tail.decode("utf-8", "replace")),
            kept=kept,
            no_room=exit_code == -signal.SIGBUS and is_full(self.home),
            cpu=round(max(0.0, self.cpu - before), 3),
        )

    def _relay(self) -> bool:
        try:
            data = self.reports.recv_bytes()
        except (EOFError, OSError):
            return False
        if data == _DONE:
            self.done = True
        elif data.startswith(PROGRESS):
            self.progress = data
        else:
            self.progress = b""  # no longer of interest
            self._send(data)
        return True

    def _pass_progress(self) -> None:
        """Pass on the latest progress; it is of no use to the supervisor more often."""
        if self.progress:
            self._send(self.progress)
            self.progress = b""

    def _send(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the next `_obey` notices it
            self.control.send_bytes(data)

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

    def _measure(self) -> dict[int, int]:
        """Measure the memory of each process of the tree, in bytes.

        The server of makers is not among them, and of a maker counts what it does not share with
        that.
        """
        tree = proctree.tree(os.getpid())
        self.makers = tuple(tree.get(self.server, ()))
        shared = self.shared = self.shared or proctree.memory(self.server)  # it never grows
        self.tree = [pid for children in tree.values() for pid in children]
        below = [pid for pid in self.tree if pid != self.server]
        held = {pid: proctree.memory(pid) for pid in below}
        for maker in self.makers:
            held[maker] = max(0, held[maker] - shared)
        self.peak = max(self.peak, sum(held.values()))
        self.measured = time.monotonic()
        return held

    def _cpu(self) -> float:
        """Return the processor seconds of the tree so far, with those of what it has reaped."""
        reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
        return reaped.ru_utime + reaped.ru_stime + proctree.cpu(self.tree)

    def _end_tree(self) -> None:
        """Kill and reap until no descendant is left; each round finds what was forked meanwhile."""
        while True:
            proctree.kill_descendants(os.getpid())
            if not self._reap():
                return
            time.sleep(0.001)

    def _reap(self) -> bool:
        """Reap what has ended; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == self.child:
                self.exit_code = os.waitstatus_to_exitcode(status)
            elif pid == 0:
                return True


def _child(
    parent: int,
    log: int,
    jobs: Connection,
    reports: Connection,
    make_work: Callable[[], Work],
) -> None:
    """Become the child; never return. A job whose code is negative ends it by that signal."""
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
        work = make_work()
        while True:
            job, code = jobs.recv_bytes(), _EX_SOFTWARE
            code = work(job, reports)
            sys.stdout.flush()
            sys.stderr.flush()
            if code:
                break
            reports.send_bytes(_DONE)
    except BaseException:  # noqa: BLE001 - the caller is only a forked copy of the guard
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code if code >= 0 else _EX_SOFTWARE)


def _pipe() -> tuple[Connection, Connection]:
    read, write = os.pipe()
    return Connection(read, writable=False), Connection(write, readable=False)
