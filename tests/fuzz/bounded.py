"""Feed a parser damaged documents, in a process with bounds of memory and time."""

import faulthandler
import json
import multiprocessing
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from tests.fuzz.parsers import PARSERS, Parser

SECONDS = 5.0
"""Of the processor, in which each document is read or refused, so that a busy machine is none."""
MEMORY = 2**30
"""Bytes that reading all may take beyond what the process has when it begins."""
_EDITS = 6
_LONGEST = 400
_LARGEST = 200_000  # bytes of a document
_ROUND = 100  # documents between two looks at the time
_PATIENCE = 1800.0  # seconds until the last round ends, on a machine with much else on it

Json = Any


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """A seed with a few edits: cut, doubled, moved, overwritten, with words and bytes put in."""
    data = draw(st.sampled_from(seeds))
    new = st.binary(min_size=1, max_size=8)
    if words:
        new = st.sampled_from(words) | new
    for _ in range(draw(st.integers(0, _EDITS))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 8) | st.integers(0, max(0, len(data) - at)))
        match draw(st.sampled_from(("cut", "put", "write", "double", "end", "move", "bit"))):
            case "cut":
                data = data[:at] + data[at + size :]
            case "put":
                data = data[:at] + draw(new) + data[at:]
            case "write":
                some = draw(new)
                data = data[:at] + some + data[at + len(some) :]
            case "double":
                times = draw(st.sampled_from((2, 3, 70, 1000)))
                part = data[at : at + min(size, _LONGEST)]
                data = data[:at] + part * times + data[at + size :]
            case "end":
                data = data[:at]
            case "move":
                to = draw(st.integers(0, len(data)))
                part = data[at : at + size]
                rest = data[:at] + data[at + size :]
                data = rest[:to] + part + rest[to:]
            case _:
                if at < len(data):
                    flipped = data[at] ^ (1 << draw(st.integers(0, 7)))
                    data = data[:at] + bytes([flipped]) + data[at + 1 :]
    assume(len(data) <= _LARGEST)
    return data


SCALARS: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        (0, -1, 10**30, 1e308, float("inf"), float("nan"), 1e-320, "", "0", "\0", "é" * 300)
    ),
    st.integers(-5, 5000),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(("2012-02-30", "0001-01-01T00:00:00-14:00", "9999-12-31T23:59:59Z", "EPSG:0")),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def changed(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A seed of JSON in which a few values are others, are gone, or are there many times."""
    document: Json = json.loads(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(document))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        room = _LARGEST // len(json.dumps(document))  # the place may be there many times
        match draw(st.sampled_from(("other", "gone", "many", "deep", "key"))):
            case "other":
                holder[key] = draw(VALUES)
            case "gone":
                del holder[key]
            case "many":
                holder[key] = [holder[key]] * min(room, draw(st.sampled_from((0, 2, 70, 3000))))
            case "deep":
                for _level in range(min(room, draw(st.sampled_from((1, 2, 70, 300))))):
                    holder[key] = [holder[key]]
            case _ if isinstance(holder, dict):
                holder[draw(st.text(max_size=8))] = holder.pop(key)
    data = json.dumps(document).encode()
    assume(len(data) <= _LARGEST)
    return data


def _places(value: Json) -> Any:
    """Yield each holder of a value with its key or index."""
    if isinstance(value, dict | list):
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from _places(inner)


class HangError(Exception):
    """A document took too long."""


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise HangError(f"longer than {SECONDS:g} s")


def holds(parser: Parser, data: bytes) -> None:
    """Read a document: a value or an own error, in time. Anything else is raised."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    began = time.process_time()
    try:
        parser.parse(data)
    except parser.errors as error:
        if isinstance(error, HangError) or not str(error):
            raise AssertionError(f"{type(error).__name__} without a word") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    if time.process_time() - began > SECONDS:
        raise HangError(f"longer than {SECONDS:g} s, and nothing could break it off")


def _examples(name: str, examples: int, same: bool, last: Path, till: float) -> None:
    parser = PARSERS[name]
    seeds = list(parser.seeds())
    for data in seeds:
        holds(parser, data)
    strategy = changed(seeds) if parser.as_json else damaged(seeds, parser.words)

    @settings(
        max_examples=min(examples, _ROUND),
        deadline=None,
        database=None,
        derandomize=same,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(strategy)
    def one(data: bytes) -> None:
        last.write_bytes(data)
        holds(parser, data)

    done = 0
    while done < examples and time.monotonic() < till:
        one()
        done += _ROUND


def _child(name: str, examples: int, same: bool, last: Path, till: float, to: Connection) -> None:
    signal.signal(signal.SIGPROF, _hang)
    faulthandler.disable()
    warnings.simplefilter("ignore", HypothesisWarning)  # of what a large document looks like
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _examples(name, examples, same, last, till)
    except BaseException:  # noqa: BLE001 - the parent says it
        to.send(traceback.format_exc()[-6000:])
    else:
        to.send("")


def feed(name: str, last: Path, *, examples: int, seconds: float, same: bool = False) -> str:
    """Feed a parser; return what went wrong, "" if nothing did.

    `last` gets each document before it is read, for one that ends the process. It ends after so
    many examples or seconds. With `same` the examples are the same each time.
    """
    context = multiprocessing.get_context("fork")
    end, other = context.Pipe(duplex=False)
    till = time.monotonic() + seconds
    process = context.Process(target=_child, args=(name, examples, same, last, till, other))
    process.start()
    other.close()
    try:
        if not end.poll(seconds + _PATIENCE):
            return f"no end after {seconds + _PATIENCE:g} s, at {_begun(last)}"
        return str(end.recv())
    except EOFError:
        process.join()
        return f"the process ended with {process.exitcode}, at {_begun(last)}"
    finally:
        process.kill()
        process.join()


def _begun(last: Path) -> str:
    return repr(last.read_bytes()[:2000]) if last.exists() else "one of the whole documents"
