"""Run a reduction's executable in the sandbox, or a shipped one in a fork; watch what it uses."""

import codecs
import errno
import os
import re
import runpy
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, NoReturn

from processes import proctree
from processes.parents import become_subreaper, die_with_parent
from tasks.bag.categories import Category
from tasks.service.classify import AttemptError, host_failed
from tasks.shown_text import shown
from worker.sandbox.absent_modules import remedy
from worker.sandbox.accounts import Accounts
from worker.sandbox.plain_paths import PlainPaths
from worker.sandbox.proxy import proxy
from worker.sandbox.sandbox import (
    Places,
    SandboxLimits,
    Tier,
    command_line,
    environment,
    fault,
    give_folders,
    inside,
    variables_of,
)

POLL_SECONDS = 0.1
_LEAST_ROOM = 2**16  # bytes; a disk with less is full
# How the system names a full disk or a used-up quota (strerror of ENOSPC and EDQUOT), in any case.
_FULL = tuple(os.strerror(number).lower() for number in (errno.ENOSPC, errno.EDQUOT))
_REAP_SECONDS = 0.01  # between two looks for orphans that have ended
_TAIL = 4096
# GDAL says this where it could not write a part of a raster. At closing rasterio raises nothing.
_CUT_OFF = re.compile(r"_tiffWriteProc: ?(No space left|Disk quota exceeded)")


_Decoder = codecs.getincrementaldecoder("utf-8")


class _Fork:
    """A program that runs in a fork of this process, with the part of Popen that is needed.

    `held` is the memory in bytes that the fork got from this process: no memory of the program.
    """

    def __init__(self, program: Callable[[], None]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        read, write = os.pipe()
        begin, begun = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(begun)
            os.read(begin, 1)  # until the other end is closed
            _be_program(parent, write, program)
        self.held = proctree.memory(self.pid)
        for end in (write, begin, begun):
            os.close(end)
        self.stdout = os.fdopen(read, "rb")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reap(0)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


@dataclass(kw_only=True)
class _Run:
    process: "subprocess.Popen[bytes] | _Fork"
    stream: IO[bytes]
    paths: PlainPaths
    others: frozenset[int]  # children of this process that do not belong to the program
    cut_off: bool = False  # whether GDAL said in it that a raster does not fit on the disk
    outputs: Path
    tail: str = ""  # the end of what it printed, as it is shown
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _Decoder("replace"))
    room: int = sys.maxsize  # the least free bytes of the disk that were seen

    def look_at_room(self) -> None:
        """Note how much room the disk has."""
        disk = os.statvfs(self.outputs)
        self.room = min(self.room, disk.f_bavail * disk.f_frsize)

    def tree(self) -> list[int]:
        """List the program's processes."""
        return [pid for pid in proctree.descendants(os.getpid()) if pid not in self.others]

    def reap_orphan(self) -> bool:
        """Reap a process that was orphaned and has ended; return whether there was one.

        Left unreaped, orphans of a program that forks for ever use up the machine's process ids.
        """
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        if ended is None or ended.si_pid in (self.process.pid, *self.others):
            return False
        os.waitpid(ended.si_pid, 0)
        return True

    def pump(self) -> bool:
        """Pass on what the program has printed; return False at the end of its output."""
        data = os.read(self.stream.fileno(), 2**16)
        self._tell(self.paths.put(data))
        return bool(data)

    def _tell(self, data: bytes, *, last: bool = False) -> None:
        text = shown(self.decoder.decode(data, last))
        before = self.tail[-_TAIL:]
        self.tail = before + text
        self.cut_off = self.cut_off or _CUT_OFF.search(self.tail) is not None
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()

    def last_line(self) -> str:
        """Return the last line that the program printed; nothing more is read."""
        self._tell(self.paths.end(), last=True)
        lines = self.tail.strip().splitlines()
        return lines[-1].strip()[:300] if lines else "it printed nothing"


def run_confined(
    tier: Tier,
    command: tuple[str, ...],
    places: Places,
    bounds: SandboxLimits,
    *,
    called: str = "",
) -> None:
    """Run `command INPUT_DIR OUTPUT_DIR` to its end; none of its processes is left afterwards.

    Errors call the program by its command, or as it is `called`.

    Raises:
        AttemptError: user code failed, user code timed out, or out of memory; host failed, if the
            sandbox does not work.
    """

    def start() -> subprocess.Popen[bytes]:
        give_folders(tier, places)
        try:
            return begin()
        except OSError as error:
            raise host_failed("the sandbox cannot be started", error) from error

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command_line(tier, command, places, bounds, proxied),
            pass_fds=() if proxied is None else (proxied,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=places.package,
            env=environment(tier, places, bounds),
            start_new_session=True,
        )

    with proxy(bounds.reach) if bounds.reach else nullcontext() as proxied:
        try:
            _run(start, called or " ".join(command), places, inside(tier, places), bounds)
        except AttemptError as error:
            # A sandbox that cannot be set up ends like a program that fails at once.
            if error.category is Category.USER_CODE_FAILED and (why := fault(tier)):
                failed = f"the sandbox does not work: {why}"
                raise AttemptError(Category.HOST_FAILED, failed) from error
            raise


def run_shipped(command: tuple[str, ...], places: Places, bounds: SandboxLimits) -> None:
    """Run a shipped package's `python SCRIPT INPUT_DIR OUTPUT_DIR` in a fork of this process.

    It has imported what the script needs. The bounds are watched as for `run_confined`, which
    raises the same errors; there is no sandbox, because the code is our own.
    """
    _, script, *arguments = command

    def program() -> None:
        os.chdir(places.package)
        os.environ.update(variables_of(places, bounds))
        if bounds.processors:
            os.sched_setaffinity(0, bounds.processors)
        os.environ["TMPDIR"] = tempfile.tempdir = str(places.temporary)
        sys.argv = [script, *arguments, str(places.inputs), str(places.outputs)]
        runpy.run_path(script, run_name="__main__")

    _run(lambda: _Fork(program), " ".join(command), places, places, bounds)


def _be_program(parent: int, output: int, program: Callable[[], None]) -> NoReturn:
    """Run the program in the forked process, as Python runs a script; never return."""
    code = 1
    try:
        os.setsid()
        if die_with_parent(parent):
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.stdout = sys.stderr = os.fdopen(output, "w", encoding="utf-8")
            warnings.resetwarnings()
            program()
            code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            sys.stderr.write(error.code + "\n")
    except BaseException:  # noqa: BLE001 - the caller is only a forked copy of the child
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(
    start: "Callable[[], subprocess.Popen[bytes] | _Fork]",
    called: str,
    places: Places,
    seen: Places,
    bounds: SandboxLimits,
) -> None:
    # Processes that the program detaches become this process's children, and end with the program.
    others = frozenset(proctree.descendants(os.getpid()))
    become_subreaper()
    process = start()
    if isinstance(process, _Fork):
        bounds = replace(bounds, memory=bounds.memory + process.held)
    if process.stdout is None:
        raise ValueError("the program was started without a pipe for its output")
    run = _Run(
        process=process,
        stream=process.stdout,
        paths=PlainPaths(seen),
        others=others,
        outputs=places.outputs,
    )
    try:
        _watch(run, places, bounds)
    finally:
        _end(run)
        become_subreaper(False)
        last_line = run.last_line()
        run.look_at_room()
    code = process.returncode or 0
    if _met_a_full_disk(run, bounds, code, last_line):
        raise AttemptError(Category.OUT_OF_DISK, f"the disk is full; {called} said: {last_line}")
    if code != 0:
        how = f"exit code {code}"
        if code < 0:
            how = signal.Signals(-code).name
        what_to_do = f". {absent}" if (absent := remedy(run.tail)) else ""
        raise AttemptError(
            Category.USER_CODE_FAILED,
            f"{called} ended with {how}: {last_line}{what_to_do}",
        )


def _met_a_full_disk(run: _Run, bounds: SandboxLimits, code: int, last_line: str) -> bool:
    """Tell whether a program that has ended met a full disk.

    It did, however it ended, if the disk was seen full. A program that frees the room again may do
    that between two looks. So what it says counts, too, but only where the disk had less room than
    the program may write, for nothing else fills a disk. Of a program that ended well only GDAL's
    own report of a cut-off raster counts: the program may not know of that.
    """
    if run.room < _LEAST_ROOM:
        return True
    if run.room > bounds.output:
        return False
    return run.cut_off or (code != 0 and any(words in last_line.lower() for words in _FULL))


def _watch(run: _Run, places: Places, bounds: SandboxLimits) -> None:
    start = time.monotonic()
    end = os.pidfd_open(run.process.pid)
    ended, checked = False, 0.0  # not reaped before `_end`, which ends its group by its number
    uses = Accounts(places, bounds, foreign=not isinstance(run.process, _Fork))
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(end, selectors.EVENT_READ)
            selector.register(run.stream, selectors.EVENT_READ)
            while not ended:
                ready = [key.fileobj for key, _ in selector.select(_REAP_SECONDS)]
                ended = end in ready
                run.look_at_room()
                orphans = 0
                while orphans <= bounds.processes and run.reap_orphan():
                    orphans += 1
                if run.stream in ready and not run.pump():
                    selector.unregister(run.stream)
                if time.monotonic() - start > bounds.seconds:
                    raise AttemptError(
                        Category.USER_CODE_TIMED_OUT,
                        f"the package's time limit of {bounds.seconds:g} s is over: "
                        f"{run.last_line()}",
                    )
                if orphans:  # it may fork faster than processes can be reaped or counted
                    proctree.signal_group(run.process.pid, signal.SIGSTOP)
                    while run.reap_orphan():
                        pass
                    uses.check(run.tree())
                    proctree.signal_group(run.process.pid, signal.SIGCONT)
                elif ended or time.monotonic() - checked >= POLL_SECONDS:
                    checked = time.monotonic()
                    uses.check(run.tree())
            selector.unregister(end)
            while selector.select(0.0):  # what is still in the pipe
                if not run.pump():
                    selector.unregister(run.stream)
    finally:
        os.close(end)


def _end(run: _Run) -> None:
    """Kill what is left of the program, detached processes too, and reap it."""
    proctree.kill_group(run.process.pid)  # all at once, unless it may leave its group
    run.process.poll()
    while run.reap_orphan():
        pass
    while left := run.tree():
        for pid in left:
            if pid == run.process.pid:
                proctree.kill(pid)  # reaped by its Popen
            else:
                proctree.kill_and_reap(pid)
        run.process.poll()
        time.sleep(0.001)
    run.process.wait()
    run.stream.close()
