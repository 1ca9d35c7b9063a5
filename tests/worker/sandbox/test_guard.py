"""When a child has served enough."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from worker.sandbox.guard import MOST_ATTEMPTS, _Watch


def test_a_child_serves_so_many_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What attempts leave in its memory ends with it."""
    for name in ("_read_log", "_reap", "_send", "_ended"):
        monkeypatch.setattr(_Watch, name, Mock())
    monkeypatch.setattr("worker.sandbox.guard.encode", Mock())
    monkeypatch.setattr(_Watch, "_measure", lambda watch: {watch.child: 1})
    watch = _Watch(
        control=Mock(),
        jobs=Mock(),
        reports=Mock(),
        log=0,
        child=7,
        server=8,
        memory_limit=1000,
        home=Path(),
        served=MOST_ATTEMPTS - 2,
    )
    assert [watch._next(), watch._next()] == [True, False]
