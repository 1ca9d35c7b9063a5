"""Parsers of strangers' bytes return a value or raise an error of their own, in bounds, always.

`make proofs ONLY=fuzz` feeds each for a minute, or `SWATHMILL_FUZZ_SECONDS`, with other documents
each time.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from archives.formats.geometa import read_geometa
from tests.fuzz.bounded import feed, holds
from tests.fuzz.parsers import GEOMETA, PARSERS, Parser, granule_items

SECONDS = float(os.environ.get("SWATHMILL_FUZZ_SECONDS", "60"))


@pytest.mark.parametrize("name", PARSERS)
def test_a_short_fuzz_of(name: str, tmp_path: Path) -> None:
    wrong = feed(name, tmp_path / "last", examples=15, seconds=20.0, same=True)
    assert not wrong, wrong


def as_json(path: Sequence[str | int], value: object, document: bytes) -> bytes:
    """A JSON document with another value at a place."""
    whole: Any = json.loads(document)
    *above, last = path
    inner = whole
    for step in above:
        inner = inner[step]
    inner[last] = value
    return json.dumps(whole).encode()


EARLY, LATE = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"
SIZE = ("umm", "DataGranule", "ArchiveAndDistributionInformation", 0, "SizeInBytes")
TIMES = ("umm", "TemporalExtent")
LONG = b'"' + b"a" * 140_000 + b'"'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("geometa", GEOMETA + LONG + b"\n"),
        ("listing", b"name,size\n" + LONG + b",1\n"),
        ("datetime", EARLY.encode()),
        ("datetime", f"../{LATE}".encode()),
        ("umm-granule", as_json(SIZE, float("inf"), granule_items()[0])),
        ("umm-granule", as_json(TIMES, {"SingleDateTime": EARLY}, granule_items()[0])),
        (
            "umm-granule",
            as_json(TIMES, {"SingleDateTime": "9999-12-31T23:59:59Z"}, granule_items()[0]),
        ),
        (
            "umm-granule",
            as_json(TIMES, {"RangeDateTime": {"BeginningDateTime": LATE}}, granule_items()[0]),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_neither_read_nor_refused(name: str, data: bytes) -> None:
    holds(PARSERS[name], data)


def test_a_line_that_cannot_be_read_costs_a_list_of_positions_no_other() -> None:
    whole = read_geometa(GEOMETA.decode())
    assert whole
    head, rest = GEOMETA.decode().rsplit("MOD03", 1)
    assert read_geometa(f"{head}{LONG.decode()}\nMOD03{rest}") == whole


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (KeyError("x"), "KeyError"),
        (MemoryError(), "MemoryError"),
        (None, "the process ended with 3, at one of the whole documents"),
    ],
)
def test_what_is_no_own_error_is_told(
    fault: BaseException | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parse(data: bytes) -> object:
        if fault is None:
            os._exit(3)
        if data == b"seed":
            return None
        raise fault

    parser = Parser(parse=parse, seeds=lambda: [b"seed"], errors=(ValueError,))
    monkeypatch.setitem(cast(dict[str, Parser], PARSERS), "bad", parser)
    assert said in feed("bad", tmp_path / "last", examples=40, seconds=60.0, same=True)


@pytest.mark.proof
@pytest.mark.parametrize("name", PARSERS)
def test_a_long_fuzz_of(name: str, tmp_path: Path) -> None:
    wrong = feed(name, tmp_path / "last", examples=10**9, seconds=SECONDS)
    assert not wrong, wrong
