"""A worker that is paid for ends when it has had no task for a while, and not before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.settings import Settings
from tasks.storage.clock import ManualClock
from tasks.tables.runtime import memory_runtime
from worker.files.scratch import Scratch
from worker.slots.service import end_when_idle
from worker.slots.supervisor import Supervisor

PATIENCE = 100.0


class Scripted(Supervisor):
    """Is busy until a time of the test's clock."""

    until = 0.0

    def busy(self) -> bool:
        return self.runtime.clock.monotonic() < self.until


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Scripted]:
    scratch = Scratch(tmp_path, "w")

    def start(_job: object) -> None:
        raise AssertionError("nothing is started")

    yield Scripted(
        runtime=memory_runtime(ManualClock()),
        settings=Settings(data_dir=tmp_path, idle_seconds=PATIENCE),
        name="w",
        scratch=scratch,
        start=start,  # type: ignore[arg-type]
    )
    scratch.close()


def test_it_ends_a_while_after_its_last_task(supervisor: Scripted) -> None:
    clock = supervisor.runtime.clock
    supervisor.until = clock.monotonic() + 500.0
    ended: list[float] = []
    begin = clock.monotonic()
    end_when_idle(supervisor, lambda: ended.append(clock.monotonic() - begin))
    assert ended == [pytest.approx(500.0 + PATIENCE, abs=2.0)]


def test_one_that_ends_anyhow_is_left_alone(supervisor: Scripted) -> None:
    supervisor.draining = True
    end_when_idle(supervisor, lambda: pytest.fail("it was ended"))
