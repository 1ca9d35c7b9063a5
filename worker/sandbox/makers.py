"""Makers: confined processes that open what strangers made, without a secret and without a network.

An attempt's child fetches inputs and stores results, so it holds the keys of storage; it opens none
of these files. A maker does, and makes the attempt's files of them. It sees the inputs of its child
(read-only), a folder to work in, the system and our code; no other file can be opened. It has no
sockets, no capabilities, limits of resources, and the filter of system calls of a program in the
tier `limits`, by the same code. What it says and makes is a stranger's: the child checks it.

Makers are forks of a process that is forked before the child gets its settings, so no secret was
ever in their memory, and libraries are imported once for all. One maker makes the attempts of one
request, one after the other: nothing of another's is in its memory or its folder.
"""

import os
import pickle
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fcntl import F_GETFL, F_RDLCK, F_SETLEASE, F_UNLCK, fcntl
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Literal, NoReturn

import archives
import modis
import processes
import reprojection
import tasks
import worker
from processes import confine
from processes.folders import remove_folder
from processes.parents import die_with_parent
from processes.reading_rights import can_shut_in, shut_in
from worker.sandbox.sandbox import own_user

ReadingTier = Literal["limits", "none"]
"""`limits`, or `none` where this machine has no Landlock."""

INPUTS, WORK, OUT = "inputs", "work", "out"
"""Folders of a maker's home: for what it reads and writes, and for what its child took from it."""

_EX_SOFTWARE = 70  # sysexits.h
_OOM_SCORE = "700"
_LONGEST_ORDER = 2**18
_MOST_MESSAGE = 2**24  # bytes of what a maker says at once
_TASKS = 16  # processes and threads of a maker
_FIRST_OPEN = 3  # descriptors beyond standard input, output and error
_OURS = (archives, modis, processes, reprojection, tasks, worker)

Answer = Callable[[bytes, Connection], None]
"""Answers a question of the child over the connection; raises what ends the maker."""


class MakerEndedError(Exception):
    """A maker ended without an answer; `code` is its exit code, or negative the signal."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the maker ended with {code}")
        self.code = code


class BadAnswerError(Exception):
    """What a maker said or made cannot be taken."""


@dataclass(frozen=True, kw_only=True)
class MakerOrder:
    """What a maker gets at its start: `prepare` makes its `Answer`; sizes in bytes."""

    prepare: Callable[[], Answer]
    tier: ReadingTier
    home: Path
    memory: int
    file_size: int


def reading_tier() -> ReadingTier:
    """Return the tier in which granules are read on this machine."""
    return "limits" if can_shut_in() else "none"


def reading_line() -> str:
    """Say in one line in which tier granules are read on this machine, for the worker's row."""
    if reading_tier() == "limits":
        return "granules are read in the tier limits"
    return (
        "granules are read without a sandbox: it needs Landlock (Linux 5.13) and x86_64 or aarch64"
    )


def start_server(log: int, closing: Sequence[Connection]) -> tuple[int, socket.socket]:
    """Fork the process that forks makers; return its id, and the socket for its orders.

    It prints to `log`. `closing` are the caller's connections, which it must not keep.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        for one in closing:
            one.close()
        ours.close()
        _serve(parent, theirs, log)
    theirs.close()
    return pid, ours


def _serve(parent: int, orders: socket.socket, log: int) -> NoReturn:
    """Fork a maker for each order, one at a time; say its id, and how it ended."""
    try:
        if not die_with_parent(parent):
            os._exit(_EX_SOFTWARE)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout = sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        _let_go(null, but=orders.fileno())
        me = os.getpid()
        while True:
            order, given, _, _ = socket.recv_fds(orders, _LONGEST_ORDER, 1)
            if not order:
                os._exit(0)
            maker = os.fork()
            if maker == 0:
                orders.close()
                _become_maker(me, order, given[0])
            os.close(given[0])
            orders.send(str(maker).encode())
            _, status = os.waitpid(maker, 0)
            orders.send(str(os.waitstatus_to_exitcode(status)).encode())
    except BaseException:  # noqa: BLE001 - the caller is only a forked copy of the guard
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(_EX_SOFTWARE)


def _become_maker(parent: int, order: bytes, connection: int) -> NoReturn:
    """Confine this process and answer questions until nobody asks; never return."""
    code = _EX_SOFTWARE
    try:
        os.setsid()
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, "ascii")
        given: MakerOrder = pickle.loads(order)
        asked = Connection(connection)
        answer = given.prepare()
        confine_reader(given)
        # Afterwards: the kernel forgets it when a process takes another user id (prctl(2)).
        if not die_with_parent(parent):
            os._exit(code)
        while True:
            try:
                question = asked.recv_bytes()
            except EOFError:
                code = 0
                break
            answer(question, asked)
            sys.stdout.flush()
            sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the caller is only a forked copy
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


def confine_reader(given: MakerOrder) -> None:
    """Give up for good what a maker has no need of; raise OSError where that fails."""
    work = given.home / WORK
    # What was used before the fork has found out where temporary files lie.
    os.environ["TMPDIR"] = tempfile.tempdir = str(work)
    confine.limit("RLIMIT_CORE", 0)
    confine.limit("RLIMIT_DATA", given.memory)
    confine.limit("RLIMIT_FSIZE", given.file_size)
    if given.tier == "none":
        return
    user = own_user("limits")
    if user is None:
        confine.drop_capabilities()
    else:
        os.chown(work, user, user)
        confine.become(user, search=True)
    confine.limit_tasks(_TASKS, shared=user is None)
    ours = (str(Path(one.__file__ or "").parent) for one in _OURS)
    shut_in([*ours, str(given.home / INPUTS)], [str(work)], shared=user is None)


def _let_go(null: int, *, but: int) -> None:
    """Put /dev/null in place of each descriptor that this process got, save those of libraries.

    Their numbers stay taken: PROJ, say, closes in a fork the database that it had opened before,
    and would close another file of that number. Libraries' own files are read-only.
    """
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208
        if number >= _FIRST_OPEN and number not in (null, but):
            with suppress(OSError):  # of the listing itself
                plain = stat.S_ISREG(os.fstat(number).st_mode)
                if not plain or fcntl(number, F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                    os.dup2(null, number)


class Makers:
    """The makers of one child, at most one at a time, in a `home` that the child owns."""

    def __init__(self, server: socket.socket, home: Path) -> None:
        self._server = server
        self.home = home
        self._asking: Connection | None = None
        self._request = ""
        self._pid = 0

    def begin(self, request: str, order: Callable[[Path], MakerOrder]) -> None:
        """Have a maker that has made nothing for another request."""
        if self._asking is not None and request == self._request:
            return
        self.end()
        for name in (INPUTS, WORK, OUT):
            (self.home / name).mkdir(mode=0o755, exist_ok=True)
        self.clear()
        ours, theirs = _pair()
        with theirs:
            socket.send_fds(self._server, [pickle.dumps(order(self.home))], [theirs.fileno()])
        self._pid = int(self._said())
        self._asking, self._request = ours, request

    def clear(self) -> None:
        """Empty the home; its folders stay, for the maker is bound to them."""
        out = self.home / OUT
        for number, left in enumerate([*(self.home / WORK).iterdir()]):
            # Removed where the maker, which may be hostile, puts no link in the way.
            try:
                left.rename(out / f".left-{number}")
            except PermissionError:  # it may have closed a folder to all
                self.end()
                remove_folder(left)
        for left in (*(self.home / INPUTS).iterdir(), *out.iterdir()):
            remove_folder(left)

    def ask(self, question: bytes) -> None:
        """Send a question; `hear` has what is said to it."""
        if self._asking is None:
            raise MakerEndedError(_EX_SOFTWARE)
        with suppress(BrokenPipeError, ConnectionResetError):  # `hear` tells how it ended
            self._asking.send_bytes(question)

    def hear(self) -> bytes:
        """Return the next message; raise MakerEndedError if the maker has ended without one."""
        if self._asking is None:
            raise MakerEndedError(_EX_SOFTWARE)
        try:
            # A process that the maker left behind may hold its end of the connection. What the
            # maker said last is there when its server says that it has ended.
            if self._asking in wait([self._asking, self._server]) or self._asking.poll(0):
                return self._asking.recv_bytes(_MOST_MESSAGE)
        except (EOFError, ConnectionResetError):  # the latter where it left a question unread
            pass
        except OSError:  # too long, or half a message
            self.end()
            raise BadAnswerError("what was said is too long, or broke off") from None
        asking, self._asking = self._asking, None
        asking.close()
        raise MakerEndedError(int(self._said()))

    def end(self) -> None:
        """End the maker, whatever it does."""
        if self._asking is None:
            return
        asking, self._asking = self._asking, None
        asking.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        self._said()

    def take(self, name: str, folder: str) -> Path:
        """Move a file that the maker made, in a folder of its work, out of its reach.

        Raises:
            BadAnswerError: there is no such plain file, or it is being written.
        """
        if Path(name).name != name or not name.isprintable() or name.startswith("."):
            raise BadAnswerError(f"a file is called {name!r}")
        to = self.home / OUT / name
        try:
            # The maker may have put a link in the place of a folder or a file.
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            above = os.open(self.home / WORK / folder, flags)
            try:
                os.rename(name, to, src_dir_fd=above)
            finally:
                os.close(above)
            found = to.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise BadAnswerError(f"{name} is no plain file")
            if os.geteuid() == 0:
                os.chown(to, 0, 0, follow_symlinks=False)
            if is_being_written(to):
                raise BadAnswerError(f"{name} is still being written")
        except OSError as error:
            raise BadAnswerError(f"{name} is not there: {error.strerror}") from None
        return to

    def _said(self) -> str:
        said = self._server.recv(64)
        if not said:
            raise MakerEndedError(_EX_SOFTWARE)
        return said.decode("ascii")


def is_being_written(path: Path) -> bool:
    """Tell whether a process has a file open for writing, or maps it so (fcntl(2), leases).

    Where the file system has no leases, it cannot be told: no.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl(file, F_SETLEASE, F_RDLCK)
        fcntl(file, F_SETLEASE, F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


def _pair() -> tuple[Connection, Connection]:
    one, other = socket.socketpair()
    return Connection(one.detach()), Connection(other.detach())
