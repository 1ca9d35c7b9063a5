"""Fixed work costs as many storage calls, rows, bytes, Python calls and imports as were kept.

More is a change for the worse that somebody may want; less is worth keeping. Either way
`python -m tests.counts --note` keeps the new counts, and the commit says why they changed.
"""

import sys

import pytest

from tests.counts.counting import MEASURED, PYTHON, noted

MARGIN = 0.03
FEW = 2
"""Modules, which an installation may have more to find its own packages."""


@pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="counts are of the oldest Python")
@pytest.mark.parametrize("name", MEASURED)
def test_fixed_work_costs_what_it_did(name: str) -> None:
    found, kept = MEASURED[name](), noted()[name]
    assert found.keys() == kept.keys()
    beyond = {
        what: (kept[what], count)
        for what, count in found.items()
        if abs(count - kept[what]) > max(MARGIN * kept[what], FEW)
    }
    assert not beyond, f"{beyond}: kept, found; see `python -m tests.counts`"


def test_every_count_that_is_kept_is_measured() -> None:
    assert noted().keys() == MEASURED.keys()
