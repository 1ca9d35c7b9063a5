"""Features that can be taken out are named where they are registered, and nowhere else."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proofs import ROOT
from tests.removal import REMOVALS, edited

TOPS = ("portal", "service_manager", "worker", "tasks", "swathmill", "bench", "tests")


def modules() -> Iterator[tuple[str, Path]]:
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            yield path.relative_to(ROOT).as_posix(), path


@pytest.mark.parametrize("name", REMOVALS)
def test_a_feature_is_imported_only_where_it_is_registered(name: str) -> None:
    removal = REMOVALS[name]
    assert [one for one in removal.folders if not (ROOT / one).exists()] == []
    package = removal.folders[0].replace("/", ".")
    imported = re.compile(rf"^\s*(from|import) {re.escape(package)}\b", re.MULTILINE)
    parent, _, last = package.rpartition(".")
    named = re.compile(rf"^\s*from {parent} import .*\b{last}\b", re.MULTILINE)
    left = edited(removal, ROOT)
    for file, path in modules():
        if not file.startswith(tuple(removal.folders)):
            text = left.get(file) or path.read_text("utf-8")
            assert not imported.search(text), file
            assert not named.search(text), file
