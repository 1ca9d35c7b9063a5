"""What a manager tells Prometheus and whoever restarts it."""

import threading
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service_manager.leader.leadership import Leadership
from service_manager.leader.manager import Manager
from service_manager.leader.metrics import ManagerMetrics
from service_manager.leader.service import serve
from service_manager.leader.watch import Watch
from tasks.bag.categories import Category
from tasks.bag.model import Phase
from tasks.messages.redis_watch import RedisWatch
from tasks.operators.manager_rows import RefusedMails
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

G = [collect(f"g{i}") for i in range(3)]
PLAN = plan_of(*G, mosaic("a", *G), outputs={"a": "out"})
LEASE = 30.0


@dataclass
class Scene:
    """A manager whose rounds are done by the test."""

    bench: Bench
    metrics: ManagerMetrics = field(init=False)
    leadership: Leadership = field(init=False)
    redis: RedisWatch = field(init=False)
    refused: RefusedMails = field(default_factory=RefusedMails)

    def __post_init__(self) -> None:
        clock = self.bench.runtime.clock
        self.redis = RedisWatch("redis://127.0.0.1:9", clock.monotonic)
        self.metrics = ManagerMetrics(clock, LEASE, self.redis, lambda: self.refused)
        self.leadership = Leadership(self.bench.runtime, LEASE)
        assert self.leadership.acquire()
        self.bench.manager = Manager(
            self.bench.runtime,
            self.bench.options,
            self.bench.plan_of_request,
            self.bench.sent.extend,
            1,
            heard=self.metrics.hears,
        )

    def round(self) -> None:
        self.bench.manager.tick()
        self.metrics.acts(self.leadership, self.bench.manager, 0.25)

    def values(self) -> dict[tuple[str, ...], float]:
        text = self.metrics.probe_answers().metrics().decode()
        return {
            (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture
def scene() -> Scene:
    failing = G[2].key

    def decide(claimed: object) -> Category | None:
        return Category.SOURCE_NOT_PUBLISHED if claimed.task.key == failing else None  # type: ignore[attr-defined]

    return Scene(Bench(plans={"p": PLAN}, decide=decide))


def test_attempts_are_counted_by_phase_and_outcome(scene: Scene) -> None:
    scene.bench.until_ended(scene.bench.submit("p"))
    values = scene.values()
    assert values["swathmill_attempts_total", "success", "collection"] == 2.0
    assert values["swathmill_attempts_total", "source not published", "collection"] == 1.0
    assert values["swathmill_attempt_seconds_count", "collection"] == 3.0


def test_every_outcome_is_counted_from_zero_on(scene: Scene) -> None:
    """A series that is born at 1 has no increase, so that no rule sees a first failure."""
    values = scene.values()
    for phase in Phase:
        for outcome in ("success", *(category.value for category in Category)):
            assert values["swathmill_attempts_total", outcome, phase.value] == 0.0


def test_what_the_manager_has_in_hand_is_told_while_it_acts(scene: Scene) -> None:
    scene.bench.submit("p")
    for _ in range(3):
        scene.round()
        scene.bench.runtime.clock.sleep(6.0)
    values = scene.values()
    assert values["swathmill_manager_acting",] == 1.0
    assert values["swathmill_requests", "running"] == 1.0
    assert values["swathmill_tasks_ready",] == 3.0
    assert values["swathmill_slots_wanted",] >= 1.0
    assert values["swathmill_manager_round_seconds_sum",] == 0.75
    scene.metrics.stands_by(scene.leadership)
    values = scene.values()
    assert values["swathmill_manager_acting",] == 0.0
    assert values["swathmill_tasks_ready",] == 0.0
    assert ("swathmill_requests", "running") not in values


def test_without_storage_it_is_unready_and_alive(scene: Scene) -> None:
    answers = scene.metrics.probe_answers()
    assert answers.ready() == "it starts"
    scene.round()
    assert answers.ready() == ""
    scene.bench.runtime.clock.sleep(50.0)
    scene.metrics.acts(scene.leadership, scene.bench.manager, 0.1)
    assert answers.ready() == "storage has not answered for 50 s"
    assert answers.live() == ""
    scene.leadership.renew()
    assert answers.ready() == ""


def test_without_redis_it_is_unready_and_alive(scene: Scene) -> None:
    scene.round()
    scene.redis.look()
    scene.bench.runtime.clock.sleep(20.0)
    scene.leadership.renew()
    answers = scene.metrics.probe_answers()
    assert answers.ready().startswith("Redis has not answered for 20 s: Error ")
    assert answers.live() == ""
    assert scene.values()["swathmill_manager_redis_silent_seconds",] == 20.0


def test_mails_that_the_mail_server_does_not_take_are_counted_while_it_acts(scene: Scene) -> None:
    scene.refused = RefusedMails(count=3, error="no")
    scene.round()
    assert scene.values()["swathmill_mails_waiting",] == 3.0
    scene.metrics.stands_by(scene.leadership)
    assert scene.values()["swathmill_mails_waiting",] == 0.0


def test_a_manager_without_rounds_is_to_be_started_again(scene: Scene) -> None:
    scene.round()
    scene.bench.runtime.clock.sleep(20 * LEASE + 1)
    assert scene.metrics.probe_answers().live() == "no round has ended for 601 s"


def test_a_process_tells_of_its_rounds_and_of_its_standing_by(scene: Scene) -> None:
    seen: list[str] = []
    stop = threading.Event()

    class Seen(Watch):
        def stands_by(self, _leadership: Leadership) -> None:
            seen.append("stands by")
            scene.leadership.release()

        def acts(self, _leadership: Leadership, _manager: Manager, _seconds: float) -> None:
            seen.append("acts")
            stop.set()

    b = scene.bench
    serve(b.runtime, b.options, lambda _epoch: b.manager, stop, watch=Seen())
    assert seen == ["stands by", "acts"]
