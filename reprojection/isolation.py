"""Reading in a process of its own, so that a crash, hang or memory hunger of HDF4 costs one call.

One child serves many calls and is replaced when it dies. It ends by itself when its parent does:
its input closes.
"""

import contextlib
import os
import pickle
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, ParamSpec, Self, TypeVar, cast

from reprojection.errors import ReprojectionError, UnreadableGranuleError
from reprojection.outline import Outline, read_outline

P = ParamSpec("P")
R = TypeVar("R")

_HEADER_BYTES = 8
_MAX_ANSWER = 1 << 30

_BOOTSTRAP = """
import sys
sys.path[:] = {path!r}
from reprojection.isolation import serve
serve({memory!r})
"""


class ReadingProcess:
    """A child process that runs module-level functions on granule files.

    `seconds` and `memory` (bytes of address space) bound each call and the child.
    """

    def __init__(self, *, seconds: float = 60.0, memory: int = 4 << 30) -> None:
        self._seconds = seconds
        self._memory = memory
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                # What could not be flushed to a dead child is of no use to anyone.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in the child; arguments and result are pickled.

        Raises what the function raised, and UnreadableGranuleError when the child died, took too
        long or ran out of memory.
        """
        child = self._started()
        try:
            _send(_pipe(child.stdin), (function, args, kwargs))
            answer = _receive(_pipe(child.stdout), time.monotonic() + self._seconds)
        except (OSError, EOFError, TimeoutError) as problem:
            late = isinstance(problem, TimeoutError)
            self.close()
            how = f"took over {self._seconds:g} s" if late else _cause_of_death(child)
            raise UnreadableGranuleError(
                f"reading {_subject(args)} {how}: the file is damaged, fetch it again"
            ) from None
        succeeded, result = cast("tuple[bool, R | Exception]", answer)
        if succeeded:
            return cast("R", result)
        raise cast("Exception", result)

    def read_outline(self, path: Path) -> Outline | None:
        """The outline of a granule file, or None when the file cannot be read."""
        try:
            return self.run(read_outline, path)
        except ReprojectionError:
            return None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    _BOOTSTRAP.format(path=sys.path, memory=self._memory),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._child


def serve(memory: int) -> None:
    """The child's side: answer calls from standard input until it closes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    source = sys.stdin.buffer
    # What C libraries print must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while header := source.read(_HEADER_BYTES):
        function, args, kwargs = pickle.loads(source.read(int.from_bytes(header, "big")))
        answer: tuple[bool, object]
        try:
            answer = True, function(*args, **kwargs)
        except MemoryError:
            answer = False, _out_of_memory(args)
        except Exception as problem:  # noqa: BLE001 - handed to the parent, which raises it
            answer = False, problem
        _send(answers, answer)


def _send(pipe: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    pipe.write(len(data).to_bytes(_HEADER_BYTES, "big") + data)
    pipe.flush()


def _receive(pipe: IO[bytes], deadline: float) -> object:
    header = _read_exactly(pipe, _HEADER_BYTES, deadline)
    size = int.from_bytes(header, "big")
    if size > _MAX_ANSWER:
        raise EOFError(f"an answer of {size} bytes is announced")
    return pickle.loads(_read_exactly(pipe, size, deadline))


def _read_exactly(pipe: IO[bytes], size: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while size:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            raise TimeoutError
        part = os.read(pipe.fileno(), min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise EOFError
    return pipe


def _cause_of_death(child: subprocess.Popen[bytes]) -> str:
    code = child.returncode
    return f"crashed (signal {-code})" if code is not None and code < 0 else "ended the reader"


def _out_of_memory(args: tuple[object, ...]) -> UnreadableGranuleError:
    return UnreadableGranuleError(
        f"reading {_subject(args)} ran out of memory: the file is damaged, fetch it again"
    )


def _subject(args: tuple[object, ...]) -> str:
    return next((item.name for item in args if isinstance(item, Path)), "a granule")
