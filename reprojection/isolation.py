"""Read in a separate process, so that a crash, hang or memory excess of HDF4 costs one call.

A child process that has imported everything forks, and the fork answers calls until one fails. So a
call starts in milliseconds, and whatever state a damaged file leaves in the C library (HDF4 refuses
good files after some bad ones) ends with it. All these processes end with their parent, because
their input closes.

Where the kernel has Landlock, such a fork can open no file but those that its calls name, the
system's and our code, and has no sockets. It has no setting of Swathmill's in its environment. Its
answers are plain values (`processes.plain_answers`): whoever takes it over says nothing that runs.
"""

import contextlib
import gc
import importlib
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn, ParamSpec, Self, TypeVar, cast

from processes import handed_over, plain_answers, proctree
from processes.parents import die_with_parent, name_process
from processes.reading_rights import reader_environment, shut_in_reader
from reprojection.errors import ReprojectionError, UnreadableGranuleError
from reprojection.read.outline import Outline, read_outline, read_outlines_until

P = ParamSpec("P")
R = TypeVar("R")

_HEADER_BYTES = 8
_MORE, _LAST = b"+", b"-"  # before an answer: whether its fork takes another call
_CALLS_OF_A_FORK = 200  # so that what a library leaks is bounded
_FILES_OF_A_FORK = 32  # whose outlines are read by one: a fork takes longer than a file
_MAX_ANSWER = 1 << 27
_PIPE_BYTES = 1 << 16
_REMEDY = "a file is damaged: fetch it again (of several, `swathmill inspect` says which)"
_WORDS = 3  # of a granule's name: product, date, collection, time of production, more
_PATIENCE = 60.0  # seconds that a fork may give no sign of life

_BOOTSTRAP = """
import sys
sys.path[:] = {path!r}
from reprojection.isolation import serve
serve({memory!r}, {modules!r})
"""


@dataclass(frozen=True)
class Rights:
    """What a process may open besides the system and our code: files to read, folders to write.

    `most` is the bytes that a file may get, None for no limit.
    """

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    most: int | None = None


class ReadingProcess:
    """A child process that runs module-level functions on granule files.

    A call can read the files and folders that its arguments name, and write below `writing`, a
    folder, files of at most `most_written` bytes. `seconds` limits its duration, `memory` its
    address space in bytes. `modules` are imported once, besides the readers, instead of by each
    call that needs them. Calls run one at a time: threads that share a ReadingProcess wait for one
    another.
    """

    def __init__(
        self,
        *,
        seconds: float = 60.0,
        memory: int = 4 << 30,
        modules: Sequence[str] = (),
        writing: Path | None = None,
        most_written: int | None = None,
    ) -> None:
        self._seconds = seconds
        self._memory = memory
        self._modules = tuple(modules)
        self._writing = () if writing is None else (writing,)
        self._most_written = most_written
        self._child: subprocess.Popen[bytes] | _ForkedChild | None = None
        self._turn = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def begin(self, *, fork: bool = False) -> None:
        """Start the child, which imports its modules meanwhile; the first call waits for less.

        With `fork` it is a fork of this process, and has what this has imported. The process must
        have one thread then, no file or connection open, and never have had a secret in memory.
        """
        with self._turn:
            if fork and self._child is None:
                self._child = _ForkedChild(self._memory, self._modules)
            self._started()

    def close(self) -> None:
        """End the child and the call it may be running."""
        child, self._child = self._child, None
        if child is None:
            return
        # The child leads a group of its own, which holds the running call too.
        proctree.kill_group(child.pid)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                # Data that could not be flushed to a dead child is no longer needed.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in the child; its result is of what `processes.plain_answers` writes.

        Raises what the function raised, and UnreadableGranuleError if the call died, took too long
        or ran out of memory.
        """
        rights = Rights(tuple(_named((args, kwargs))), self._writing, self._most_written)
        with self._turn:
            answer = self._answer_to(pickle.dumps((rights, function, args, kwargs)), args)
        try:
            return cast("R", _result(answer))
        except MemoryError:
            raise _damaged(args, "ran out of memory") from None
        except plain_answers.BadAnswerError:
            raise _damaged(args, "gave an answer that cannot be taken") from None

    def _answer_to(self, call: bytes, args: tuple[object, ...]) -> bytes:
        child = self._started()
        try:
            _send(_pipe(child.stdin), call)
            return _receive(_pipe(child.stdout).fileno(), time.monotonic() + self._seconds)
        except (OSError, EOFError, TimeoutError) as problem:
            self.close()
            late = isinstance(problem, TimeoutError)
            how = f"took over {self._seconds:g} s" if late else "ended the reading process"
            raise _damaged(args, how) from None

    def read_outlines(self, paths: Sequence[Path]) -> list[Outline | None]:
        """Read the outlines of granule files, some by one fork; None for what cannot be read.

        A file at which the fork ends has each of those beside it read by a fork of its own.
        """
        found: list[Outline | None] = []
        while len(found) < len(paths):
            some = tuple(paths[len(found) : len(found) + _FILES_OF_A_FORK])
            try:
                read = self.run(read_outlines_until, some)
                found += read if len(read) == len(some) else [*read, None]
            except ReprojectionError:
                found += map(self.read_outline, some)
        return found

    def read_outline(self, path: Path) -> Outline | None:
        """Read the outline of a granule file; return None if the file cannot be read."""
        try:
            return self.run(read_outline, path)
        except ReprojectionError:
            return None

    def _started(self) -> "subprocess.Popen[bytes] | _ForkedChild":
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    _BOOTSTRAP.format(path=sys.path, memory=self._memory, modules=self._modules),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=reader_environment(),
            )
        return self._child


class _ForkedChild:
    """A child that is a fork of this process, with what is used of `subprocess.Popen`."""

    def __init__(self, memory: int, modules: Sequence[str]) -> None:
        calls, asking = os.pipe()
        hearing, answers = os.pipe()
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _become_child((calls, answers), (asking, hearing), memory, modules)
        with contextlib.suppress(OSError):  # the child has done it
            os.setpgid(self.pid, self.pid)
        os.close(calls)
        os.close(answers)
        self.stdin, self.stdout = os.fdopen(asking, "wb"), os.fdopen(hearing, "rb")

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        """Wait for its end."""
        return self._wait(0)

    def kill(self) -> None:
        """Kill it."""
        proctree.kill(self.pid)

    def _wait(self, options: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def _become_child(
    own: Sequence[int], others: Sequence[int], memory: int, modules: Sequence[str]
) -> NoReturn:
    """Serve in a fork as the program does; `own` are its input and output, `others` their ends."""
    code = 1
    try:
        os.setpgid(0, 0)
        for order in (signal.SIGTERM, signal.SIGINT):
            signal.signal(order, signal.SIG_DFL)
        handed_over.forgo()
        null = os.open(os.devnull, os.O_RDWR)
        for number, file in enumerate((*own, null)):
            os.dup2(file, number)
        for file in (*own, *others, null):
            os.close(file)
        environment = reader_environment()
        os.environ.clear()
        os.environ.update(environment)
        name_process("reader")
        serve(memory, modules)
        code = 0
    finally:
        os._exit(code)


def _named(value: object) -> Iterator[Path]:
    """Yield the paths in an argument, those in its collections and records, too."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, Mapping):
        yield from _named([*value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _named(one)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _named([getattr(value, one.name) for one in fields(value)])


def serve(memory: int, modules: Sequence[str] = ()) -> None:
    """Serve as the child: have forks answer the calls from standard input until it closes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    calls = sys.stdin.fileno()
    # Keep what C libraries print out of the stream of answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _import_readers()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # a fork shares what it does not have to count
    fork: _Fork | None = None
    while True:
        try:
            call = _receive(calls, None)
        except EOFError:
            return
        rights = pickle.loads(call)[0]  # imports what the call needs, once for all forks
        if fork is not None and fork.rights != rights:
            fork.end()
            fork = None
        if fork is None:
            _read_catalogue(rights)
            fork = _Fork(calls, answers.fileno(), rights)
        answer = fork.answer(call)
        if answer is None:
            return
        if not fork.goes_on:
            fork = None
        _send(answers, answer)


def _import_readers() -> None:
    """Import once what every fork would otherwise import itself."""
    import numpy.ma  # noqa: F401 - which numpy imports when it is first asked for

    import reprojection.formats.hdf4
    import reprojection.formats.hdf5
    import reprojection.inspect.inspect  # noqa: F401


def _read_catalogue(rights: Rights) -> None:
    """Read what the catalogue has of granules, by their names, once for all forks."""
    from reprojection.catalogue import product

    for path in rights.read:
        words = path.name.split(".")
        entry = product(words[0], words[-3]) if len(words) > _WORDS else None
        if entry is not None:
            entry.layer("")  # compiles its patterns


class _Fork:
    """A fork of the child that answers calls of the same rights until one fails.

    The fork has neither `calls`, what the child reads the calls from, nor `answers`, what it
    writes the answers to.
    """

    def __init__(self, calls: int, answers: int, rights: Rights) -> None:
        self._calls = calls
        self.rights = rights
        asked, self._asking = os.pipe()
        self._reading, writing = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._asking)
            os.close(self._reading)
            null = os.open(os.devnull, os.O_RDWR)
            for number in (calls, answers):
                os.dup2(null, number)
            _answer_calls(parent, asked, writing, rights)
        os.close(asked)
        os.close(writing)
        self.goes_on = True

    def answer(self, call: bytes) -> bytes | None:
        """Return the answer to a call; None if nobody waits for it any more."""
        try:
            with os.fdopen(self._asking, "wb", closefd=False) as pipe:
                _send(pipe, call)
            answer = bytearray()
            while len(answer) < _HEADER_BYTES or len(answer) < _HEADER_BYTES + _announced(answer):
                ready, _, _ = select.select([self._reading, self._calls], [], [])
                if self._calls in ready:  # no call is sent before the last is answered: it closed
                    self.end()
                    return None
                part = os.read(self._reading, _PIPE_BYTES)
                if not part:
                    raise EOFError
                answer += part
        except (BrokenPipeError, EOFError):
            _, _, args, _ = pickle.loads(call)
            return plain_answers.dump((False, _damaged(args, _manner(self._end()))))
        if answer[_HEADER_BYTES : _HEADER_BYTES + 1] == _LAST:
            self._end()
        return bytes(answer[_HEADER_BYTES + 1 :])

    def end(self) -> None:
        """End the process, whatever it does."""
        proctree.kill(self._pid)
        self._end()

    def _end(self) -> int:
        """Wait for the end of the process; return its wait status."""
        self.goes_on = False
        os.close(self._asking)
        os.close(self._reading)
        return os.waitpid(self._pid, 0)[1]


def _answer_calls(parent: int, asked: int, writing: int, rights: Rights) -> NoReturn:
    """Answer calls in the fork until one fails, and end without any clean-up.

    Whatever state a bad file left in the C library ends with the process.
    """
    code = 1
    try:
        _confine(rights)
        if not die_with_parent(parent):  # a call may never return
            os._exit(code)
        with os.fdopen(writing, "wb") as pipe:
            for left in reversed(range(_CALLS_OF_A_FORK)):
                _, function, args, kwargs = pickle.loads(_receive(asked, None))
                succeeded, answer = _outcome(lambda: function(*args, **kwargs))  # noqa: B023
                last = not succeeded or not left
                _send(pipe, (_LAST if last else _MORE) + answer)
                if last:
                    break
        code = 0
    finally:
        os._exit(code)


def _confine(rights: Rights) -> None:
    """Keep this process from all files but those, as far as the kernel can."""
    most = rights.most if rights.write else 0
    if most is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    shut_in_reader(rights.read, rights.write)


def _outcome(work: Callable[[], object]) -> tuple[bool, bytes]:
    """Do some work; return whether it succeeded, and that with its result or error, as text."""
    try:
        return True, plain_answers.dump((True, work()))
    except Exception as problem:  # noqa: BLE001 - passed to the caller, which raises it
        return False, plain_answers.dump((False, problem))


def _deliver(work: Callable[[], object], writing: int) -> NoReturn:
    """Write the result or exception of some work; end without any clean-up."""
    code = 1
    try:
        _, answer = _outcome(work)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        code = 0
    finally:
        os._exit(code)


def run_in_fork(
    files: Sequence[Path] | Rights,
    function: Callable[P, R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Call a function in a fork of this process, for a program that reads these files only once.

    The fork starts in milliseconds, shares all imports, and has no limits of time or memory of its
    own. With `Rights` in place of files it is confined to them as far as the kernel can; a maker
    of a worker is already. Raises what the function raised, and UnreadableGranuleError if the fork
    died or hung: a call into HDF4 that did not return for a minute.
    """
    rights = files if isinstance(files, Rights) else None
    named = files.read if isinstance(files, Rights) else files
    subject = ", ".join(file.name for file in named)
    reading, writing = os.pipe()
    listening, beating = os.pipe()
    parent = os.getpid()
    fork = os.fork()
    if fork == 0:
        os.close(reading)
        os.close(listening)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not die_with_parent(parent):
            os._exit(1)
        if rights is not None:
            _confine(rights)  # before a thread begins, which would stay as it is
        threading.Thread(target=_beat, args=(beating,), daemon=True).start()
        _deliver(lambda: function(*args, **kwargs), writing)
    os.close(writing)
    os.close(beating)
    try:
        with os.fdopen(reading, "rb", buffering=0), os.fdopen(listening, "rb", buffering=0):
            answer = _answer_of_living(reading, listening)
    except BaseException as problem:
        proctree.kill(fork)
        os.waitpid(fork, 0)
        if isinstance(problem, TimeoutError):
            how = f"hung for {_PATIENCE:g} s"
            raise UnreadableGranuleError(f"reading {subject} {how}: {_REMEDY}") from None
        raise
    _, status = os.waitpid(fork, 0)
    if status != 0:
        raise UnreadableGranuleError(f"reading {subject} {_manner(status)}: {_REMEDY}")
    try:
        return cast("R", _result(answer))
    except MemoryError:
        too_large = "a smaller region or coarser pixels take less, if the file is not damaged"
        raise ReprojectionError(f"reading {subject} ran out of memory: {too_large}") from None
    except plain_answers.BadAnswerError:
        how = "gave an answer that cannot be taken"
        raise UnreadableGranuleError(f"reading {subject} {how}: {_REMEDY}") from None


def _beat(pipe: int) -> None:
    """Signal repeatedly that this process lives: no call holds the interpreter's lock."""
    with contextlib.suppress(BrokenPipeError):
        while True:
            os.write(pipe, b".")
            time.sleep(_PATIENCE / 20)


def _answer_of_living(reading: int, listening: int) -> bytes:
    """Read one pipe to its end; raise TimeoutError if both pipes are silent for too long."""
    parts: list[bytes] = []
    pipes, silent = [reading, listening], 0
    while True:
        ready, _, _ = select.select(pipes, [], [], _PATIENCE / 2)
        # The first time, both processes may have been stopped from the keyboard and now continue.
        silent = 0 if ready else silent + 1
        if silent == 2:
            raise TimeoutError
        if listening in ready and not os.read(listening, _PIPE_BYTES):
            pipes.remove(listening)  # the process has ended, so its answer will end, too
        if reading in ready:
            part = os.read(reading, _PIPE_BYTES)
            if not part:
                return b"".join(parts)
            parts.append(part)


def _result(answer: bytes) -> object:
    match plain_answers.load(answer):
        case (True, result):
            return result
        case (False, Exception() as problem):
            raise problem
    raise plain_answers.BadAnswerError("neither a result nor an error")


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(_HEADER_BYTES, "big") + data)
    pipe.flush()


def _announced(start: bytes | bytearray) -> int:
    """Return how many bytes follow the first eight."""
    return int.from_bytes(start[:_HEADER_BYTES], "big")


def _receive(pipe: int, deadline: float | None) -> bytes:
    size = _announced(_read_exactly(pipe, _HEADER_BYTES, deadline))
    if size > _MAX_ANSWER:
        raise EOFError(f"an answer of {size} bytes is announced")
    return _read_exactly(pipe, size, deadline)


def _read_exactly(pipe: int, size: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and (left <= 0 or not select.select([pipe], [], [], left)[0]):
            raise TimeoutError
        part = os.read(pipe, min(size, _PIPE_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise EOFError
    return pipe


def _manner(status: int) -> str:
    """Describe, from its wait status, how a fork ended that gave no answer."""
    died = os.WIFSIGNALED(status)
    return f"crashed (signal {os.WTERMSIG(status)})" if died else "ended the reading process"


def _damaged(args: tuple[object, ...], how: str) -> UnreadableGranuleError:
    subject = next((item.name for item in args if isinstance(item, Path)), "a granule")
    return UnreadableGranuleError(f"reading {subject} {how}: the file is damaged, fetch it again")
