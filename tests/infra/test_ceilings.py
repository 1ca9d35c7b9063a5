"""Each ceiling of the product (`MOST_...`) is named by a test of its module, or listed here.

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

LISTED = """
archives/formats/granule_file.py _MOST_ITEMS
archives/kinds/coverage.py MOST_PLACED
portal/accounts/group_pages.py MOST_GROUPS
portal/elsewhere/state.py MOST_COPYING
portal/elsewhere/zarr_store.py _MOST_KEYS
portal/operations/overview.py _MOST_RUNNING
portal/operations/overview.py _MOST_LATER
portal/requests/state.py MOST_WAITING
portal/requests/task_page.py _MOST_WANTING
portal/results/explanations.py MOST_BYTES
portal/results/explanations.py _MOST_NAMED
portal/results/explanations.py _MOST_TASKS
portal/results/map_page.py _MOST_VALUES
portal/results/map_page.py _MOST_DATES
portal/results/state.py MOST_EXPLAINING
portal/serving/documents.py _MOST_FIELDS
portal/submit/catalogue.py _MOST_BANDS
portal/submit/catalogue.py _MOST_GROUPS
portal/submit/catalogue.py _MOST_SOUGHT
portal/submit/estimates.py _MOST_TILES
portal/submit/state.py MOST_READING
portal/uploads/rasters.py MOST_FILES
portal/views/drawing.py _MOST_CLASSES
portal/views/tiles_api.py _MOST_OF_A_SURVEY
reprojection/formats/own_values.py _MOST_ENTRIES
reprojection/user_rasters/conversion.py MOST_LAYERS
reprojection/user_rasters/conversion.py MOST_DEGREE_PIXELS
reprojection/user_rasters/conversion.py MOST_SWELLING
reprojection/user_rasters/source.py MOST_DAYS
reprojection/write/meanings.py _MOST_CATEGORIES
service_manager/mail/mail_picture.py _MOST_BYTES
service_manager/planner/plan_stream.py MOST_CELLS
service_manager/planner/sites.py MOST_DATES
tasks/accounts/token_table.py MOST_DAYS
worker/sandbox/accounts.py MOST_FILES
worker/sandbox/accounts.py MOST_LEVELS
worker/sandbox/accounts.py _MOST_HIDDEN
worker/sandbox/guard.py MOST_ATTEMPTS
worker/sandbox/proxy.py MOST_CONNECTIONS
worker/sandbox/proxy.py _MOST_LINES
worker/sandbox/reading/read_rasters.py MOST_BANDS
worker/sandbox/sandbox.py _MOST_LINKS
swathmill/commands/remake/materials.py _MOST_NAMED
swathmill/xarray/requesting.py _MOST_POINTS
"""
"""Ceilings that no test names: seen by their values alone, of what a page shows, or untested."""


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


def test_each_ceiling_is_named_by_a_test_or_listed() -> None:
    unnamed = {f"{file} {name}" for file, name in ceilings() if not named(file, name)}
    listed = set(LISTED.strip().splitlines())
    assert unnamed - listed == set(), "test it at its edge"
    assert listed - unnamed == set(), "it is tested, or gone: take it off the list"
