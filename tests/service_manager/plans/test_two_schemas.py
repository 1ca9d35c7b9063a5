"""A request whose rows two schemas have written ends as one of either alone does.

While an upgrade lasts processes write rows as the build before; then the same rows are changed by
processes that write their own.
"""

from collections.abc import Iterator

import pytest

from tasks.bag.categories import Category
from tasks.bag.model import RequestState, TaskOutcome
from tasks.requests import request_operations
from tasks.storage.schema import OLDEST, SCHEMA, write_as
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

SHARED, LOST = collect("shared"), collect("lost")
OWN = [collect(f"own {i}") for i in range(15)]  # more than a row has edges
CELLS = [mosaic(f"cell {i}", SHARED, *(LOST,) * (i < 3), own) for i, own in enumerate(OWN)]
WHOLE = mosaic("whole", *CELLS)
PLAN = plan_of(SHARED, LOST, *OWN, *CELLS, WHOLE, outputs={"whole": "out", "cell 4": "out"})


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    write_as(SCHEMA)


def outcomes(changed: int, before: int, after: int) -> list[dict[str, TaskOutcome | None]]:
    """Two requests of one plan, the second submitted when the schema changes, after some rounds."""
    write_as(before)
    b = Bench(
        plans={"p": PLAN},
        decide=lambda claimed: Category.SOURCE_BLOB_MISSING if claimed.spec == LOST else None,
    )
    first = b.submit("p")
    b.rounds(changed)
    write_as(after)
    b.restart()
    second = b.submit("p", owner="another")
    for request in (first, second):
        assert b.until_ended(request).state is RequestState.GAPS
    return [
        {one.key: one.outcome for one in request_operations.interests(b.runtime, request)}
        for request in (first, second)
    ]


@pytest.mark.parametrize(("before", "after"), [(OLDEST, SCHEMA), (SCHEMA, OLDEST)])
@pytest.mark.parametrize("changed", range(1, 8))
def test_rows_of_both_end_alike(changed: int, before: int, after: int) -> None:
    assert outcomes(changed, before, after) == outcomes(changed, SCHEMA, SCHEMA)
