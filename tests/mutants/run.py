"""`python -m tests.mutants.run`: put each listed fault into the code and see its test fail.

Each fault gets a forked process in which its file is compiled with the fault; no file is changed.
"""

import argparse
import importlib
import importlib.machinery
import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from multiprocessing import get_context
from types import CodeType

import pytest

from tests.mutants.faults import ROOT, Fault, load_faults

OWN = (
    "archives",
    "modis",
    "portal",
    "processes",
    "reprojection",
    "service_manager",
    "tasks",
    "worker",
)
LIMIT = 120  # seconds for one fault
_CAUGHT, _SURVIVED, _BROKEN = "caught", "SURVIVED", "BROKEN"


@contextmanager
def put_in(fault: Fault) -> Iterator[None]:
    """Compile the fault's file with the fault, whenever it is imported."""
    original = importlib.machinery.SourceFileLoader.get_code
    path = str(ROOT / fault.file)

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        if self.get_filename(name) != path:
            return original(self, name)
        return compile(fault.source(), path, "exec", dont_inherit=True)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        importlib.machinery.SourceFileLoader.get_code = original  # type: ignore[method-assign]


def try_one(fault: Fault) -> tuple[str, str]:
    """Return what came of a fault, in a process that has imported nothing of the product."""
    said = io.StringIO()
    with put_in(fault), redirect_stdout(said), redirect_stderr(said):
        try:
            code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", fault.test])
        except (pytest.PytestUnraisableExceptionWarning, ExceptionGroup) as error:
            # At its own end: what a test that failed has left behind.
            return (_CAUGHT if " failed" in said.getvalue() else _BROKEN), str(error)[-2000:]
    if code == pytest.ExitCode.TESTS_FAILED:
        return _CAUGHT, ""
    return (_BROKEN if code else _SURVIVED), said.getvalue()[-2000:] if code else ""


def _timed(number: int) -> tuple[int, str, str, float]:
    started = time.monotonic()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)
    verdict, said = try_one(load_faults()[number])
    return number, verdict, said, time.monotonic() - started


def _too_long(_number: int, _frame: object) -> None:
    """Fail the test: with this fault it does not end."""
    raise TimeoutError(f"longer than {LIMIT} s")


def preload() -> None:
    """Import what the product and its tests import, but for the product's own modules."""
    for name in ("service_manager.leader.manager", "worker.slots.service"):
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]


def main() -> int:
    """Try the faults; 1 when one is not caught or its entry is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="a sample: each so manyth fault")
    parser.add_argument("--only", default="", help="faults whose file or words contain this")
    parser.add_argument("--first", type=int, default=0, help="begin behind so many faults")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    os.chdir(ROOT)
    faults = load_faults()
    stale = [text for fault in faults if (text := fault.stale())]
    if stale:
        print("\n".join(stale))
        return 1
    chosen = [
        number
        for number, fault in enumerate(faults)
        if not fault.equivalent and arguments.only in f"{fault.file} {fault.what}"
    ][arguments.first :: arguments.every]
    passing = not arguments.only and arguments.every == 1 and not arguments.first
    if passing and not _passes(sorted({faults[n].test for n in chosen})):
        return 1
    preload()
    started, bad = time.monotonic(), 0
    with get_context("fork").Pool(arguments.processes, maxtasksperchild=1) as pool:
        for number, verdict, said, took in pool.imap_unordered(_timed, chosen, chunksize=1):
            bad += verdict != _CAUGHT
            what = f"{faults[number].file}: {faults[number].what}"
            print(f"{verdict:9}{took:5.1f} s  {what}", said, flush=True)
    equivalent = sum(bool(fault.equivalent) for fault in faults)
    print(
        f"{len(chosen) - bad} of {len(chosen)} faults caught, {equivalent} are equivalent, "
        f"{time.monotonic() - started:.0f} s"
    )
    return 1 if bad else 0


def _passes(tests: Sequence[str]) -> bool:
    """Whether the tests pass without a fault: one that fails anyway would see every fault."""
    with get_context("fork").Pool(1) as pool:
        code = pool.apply(pytest.main, (["-q", "-p", "no:cacheprovider", *tests],))
    return code == pytest.ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
