"""What a worker tells Prometheus and whoever restarts it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tasks.bag.model import ArtifactFile
from tasks.bag.spec import CollectSpec
from tasks.bag.workers import WorkerRow
from tasks.messages.redis_watch import RedisWatch
from tasks.service.memory_runtime import memory_runtime
from tasks.service.probes import ProbeAnswers
from tasks.settings import Settings
from tasks.storage.clock import ManualClock
from tests.worker.world import World
from worker.files.scratch import Scratch
from worker.sandbox.children import AttemptProcess
from worker.sandbox.messages import Ended, Message, Succeeded
from worker.slots.heartbeat import Heartbeat
from worker.slots.metrics import WorkerMetrics
from worker.slots.supervisor import Supervisor

FILE = ArtifactFile(name="g.hdf", blob="granules/k/c/g.hdf", size=3, sha256="0" * 64)
SPEC = CollectSpec(product="MOD", collection="61", granule="g.hdf", production="1")


@dataclass(kw_only=True)
class Child(AttemptProcess):
    """A child that takes ten seconds of the test's clock, and says where seven of them went."""

    clock: ManualClock
    messages: Sequence[Message] = (Succeeded(files=(FILE,), fetching=5.0, storing=2.0),)

    def follow(self, heard: Callable[[Message], None]) -> Ended | None:
        self.clock.sleep(10.0)
        for message in self.messages:
            heard(message)
        return Ended(exit_code=0, peak_memory=7, over_memory=False, log="")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A worker in memory."""

    world: World
    clock: ManualClock
    supervisor: Supervisor
    heartbeat: Heartbeat
    redis: RedisWatch
    answers: ProbeAnswers

    def values(self) -> dict[tuple[str, ...], float]:
        """What a scrape finds: name, and values of the labels in the order of their names."""
        text = self.answers.metrics().decode()
        return {
            (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    clock = ManualClock()
    runtime = memory_runtime(clock)
    scratch, metrics = Scratch(tmp_path, "w"), WorkerMetrics()
    supervisor = Supervisor(
        runtime=runtime,
        settings=Settings(data_dir=tmp_path, slots=3),
        name="w",
        scratch=scratch,
        start=lambda _job: Child(clock=clock),
        heard=metrics.hears,
    )
    supervisor.lease.renew(clock.monotonic())
    redis = RedisWatch("redis://127.0.0.1:9", clock.monotonic)
    row = WorkerRow(name="w", host="h", slots=3, started=0.0, beat_at=0.0, sandbox="", version="1")
    heartbeat = Heartbeat(runtime=runtime, supervisor=supervisor, row=row, every=5.0)
    yield Bench(
        world=World(runtime=runtime),
        clock=clock,
        supervisor=supervisor,
        heartbeat=heartbeat,
        redis=redis,
        answers=metrics.probe_answers(supervisor, heartbeat, redis),
    )
    scratch.close()


def test_the_time_of_an_attempt_is_told_by_what_it_went_into(bench: Bench) -> None:
    bench.supervisor.execute([bench.world.plan(SPEC)])
    values = bench.values()
    spent = "swathmill_worker_attempt_seconds_total"
    parts = {part: values[spent, part, "collection"] for part in ("fetch", "compute", "store")}
    assert parts == {"fetch": 5.0, "compute": 3.0, "store": 2.0}
    assert values[spent, "wait", "collection"] == 0.0
    assert values["swathmill_worker_attempts_total", "success", "collection"] == 1.0


def test_slots_and_lease_are_read_at_the_scrape(bench: Bench) -> None:
    bench.clock.sleep(4.0)
    values = bench.values()
    assert values["swathmill_worker_slots",] == 3.0
    assert values["swathmill_worker_slots_busy",] == 0.0
    assert values["swathmill_worker_lease_age_seconds",] == pytest.approx(4.0)
    assert values["swathmill_worker_draining",] == 0.0


def test_without_storage_it_is_unready_and_alive(bench: Bench) -> None:
    assert bench.answers.ready() == ""
    bench.clock.sleep(29.0)
    bench.heartbeat.turned = bench.clock.monotonic()
    assert bench.answers.ready() == "no heartbeat has succeeded for 29 s"
    bench.supervisor.lease.missed = "certificate has expired"
    assert bench.answers.ready().endswith("for 29 s: certificate has expired")
    assert bench.answers.live() == ""
    bench.supervisor.lease.renew(bench.clock.monotonic())
    assert bench.answers.ready() == ""


def test_without_a_self_test_that_passes_it_is_unready_and_alive(bench: Bench) -> None:
    bench.supervisor.fitness.found("scratch cannot be written")
    bench.heartbeat.turned = bench.clock.monotonic()
    assert bench.answers.ready() == "scratch cannot be written"
    assert (bench.answers.live(), bench.values()["swathmill_worker_fit",]) == ("", 0.0)


def test_without_redis_it_is_unready_and_alive(bench: Bench) -> None:
    bench.redis.look()
    bench.clock.sleep(14.0)
    bench.supervisor.lease.renew(bench.clock.monotonic())
    assert bench.answers.ready() == ""
    bench.clock.sleep(26.0)
    bench.redis.look()
    bench.heartbeat.turned = bench.clock.monotonic()
    bench.supervisor.lease.renew(bench.clock.monotonic())
    assert bench.answers.ready().startswith("Redis has not answered for 40 s: Error ")
    assert bench.answers.live() == ""


def test_a_worker_that_tries_no_heartbeat_is_to_be_started_again(bench: Bench) -> None:
    bench.clock.sleep(121.0)
    assert bench.answers.live() == "no heartbeat was tried for 121 s"
