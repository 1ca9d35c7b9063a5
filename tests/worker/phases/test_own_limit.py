"""What is told of a run while it runs."""

import pytest

from worker.phases.reduce import _at_most


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(60.0, "60 s at most"), (600.0, "10 min at most"), (5400.0, "90 min at most")],
)
def test_a_run_says_its_packages_own_time_limit(seconds: float, said: str) -> None:
    """Operators saw the hour of its class for a package that was killed after a minute."""
    assert _at_most(seconds) == said
