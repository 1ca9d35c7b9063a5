"""Each ceiling of the product is named by a test of its module.

A ceiling is a constant with `MOST`, `MAX`, `LONGEST` or the like in its name. A fault of
`tests/mutants/` that takes one away counts as a test of it. Ceilings within `Field(...)` are in the
published schemas and the description of the HTTP API, which other tests compare; those of a request
are in the tests of its document.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.mutants.faults import Fault, load_faults

ROOT = Path(__file__).parents[2]
_TOPS = (
    *("archives", "modis", "portal", "processes", "reprojection", "service_manager"),
    *("tasks", "worker", "swathmill"),
)
_WORDS = "MOST|MAX|LONGEST|LARGEST|WIDEST|DEEPEST|FARTHEST|LEVELS|LIMIT"
_CEILING = re.compile(
    rf"^(_?(?:[A-Z]+_)*(?:{_WORDS})(?:_[A-Z]+)*)\b[^\n]*?=(?! re\.compile)", re.MULTILINE
)
_WORD = re.compile(r"\b\w+\b")

OTHERS = {
    "archives/kinds/lookup.py _WIDEST": "of a plane: what does not fit is compared on the sphere",
    "archives/kinds/lookup.py _LARGEST": "of a plane: what does not fit is compared on the sphere",
    "archives/kinds/lookup.py _FARTHEST": "of a plane: what does not fit is compared on the sphere",
    "reprojection/read/geolocation.py MAX_SCANS": "of a granule: five minutes have no more",
    "reprojection/read/interpolation.py MAX_TAPS": "of a kernel",
    "swathmill/stack/redis_server.py MAX_MEMORY": "Redis heeds it",
    "worker/sandbox/makers.py _LONGEST_ORDER": "of messages of our own, which are short",
}
"""Constants with such names that bound nothing of a stranger's, and why."""


def ceilings() -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each ceiling."""
    for top in _TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            for found in _CEILING.finditer(path.read_text("utf-8")):
                yield path.relative_to(ROOT).as_posix(), found[1]


@cache
def words_of_tests() -> tuple[frozenset[str], ...]:
    """Return the words of each test file."""
    files = (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    return tuple(frozenset(_WORD.findall(path.read_text("utf-8"))) for path in files)


@cache
def faults() -> tuple[Fault, ...]:
    """Return the listed faults that a test sees."""
    return tuple(one for one in load_faults() if one.test)


def named(file: str, name: str) -> bool:
    """Tell whether a test names a ceiling and its module, or a fault takes it away."""
    stem = Path(file).stem
    if any({name, stem} <= words for words in words_of_tests()):
        return True
    return any(one.file == file and name in _WORD.findall(one.old) for one in faults())


def test_each_ceiling_is_named_by_a_test() -> None:
    unnamed = {f"{file} {name}" for file, name in ceilings() if not named(file, name)}
    assert unnamed - OTHERS.keys() == set(), "test it at its edge"
    assert OTHERS.keys() - unnamed == set(), "it is tested, or gone: take it off the list"
