"""Each ceiling of the product (`MOST_...`) is named by a test of its module.

A fault of `tests/mutants/` that takes a ceiling away counts as a test of it.
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
_CEILING = re.compile(r"^(_?MOST_[A-Z_]+)\b[^\n]*?=", re.MULTILINE)
_WORD = re.compile(r"\b\w+\b")


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
    assert unnamed == set(), "test it at its edge"
