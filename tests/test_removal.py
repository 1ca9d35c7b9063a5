"""Features that can be taken out are named where they are registered, and nowhere else."""

import re
from collections.abc import Mapping
from functools import cache

import pytest

from tests.proofs import ROOT
from tests.removal import OF_ALL, REMOVALS, edited

TOPS = (
    *("portal", "service_manager", "worker", "tasks", "swathmill", "reprojection"),
    *("bench", "tests"),
)
_IMPORT = re.compile(r"^\s*(?:from ([\w.]+) import ([\w, ]*)|import ([\w.]+))", re.MULTILINE)


def imported(text: str) -> set[str]:
    """The modules that a text imports, and the names that it imports of them."""
    found = set()
    for origin, names, whole in _IMPORT.findall(text):
        found |= {f"{origin}.{one.split()[0]}" for one in names.split(",") if one.strip()}
        found.add(whole or origin)
    return found


@cache
def imports() -> Mapping[str, set[str]]:
    """What each file of Python imports."""
    return {
        path.relative_to(ROOT).as_posix(): imported(path.read_text("utf-8"))
        for top in TOPS
        for path in (ROOT / top).rglob("*.py")
    }


def is_code(name: str) -> bool:
    """Whether a removed file or folder is Python, of the product or of tests."""
    return name.endswith(".py") or (ROOT / name / "__init__.py").exists()


@pytest.mark.parametrize("name", REMOVALS)
def test_a_feature_is_imported_only_where_it_is_registered(name: str) -> None:
    removal = REMOVALS[name]
    assert [one for one in removal.folders if not (ROOT / one).exists()] == []
    gone = [one.removesuffix(".py").replace("/", ".") for one in removal.folders if is_code(one)]
    left = edited(removal, ROOT)
    for file, found in imports().items():
        if not file.startswith((*removal.folders, *OF_ALL)):
            names = imported(left[file]) if file in left else found
            assert [
                one for one in names if f"{one}.".startswith(tuple(f"{g}." for g in gone))
            ] == [], file
