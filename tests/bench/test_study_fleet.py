"""Nodes of a study: what engines start meets at Redis, works together, and is timed by itself."""

import io
import os
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis import Redis

from bench.platform import fleet as fleet_module
from bench.platform.clients import Call as OneMachine
from bench.platform.engines import ByHand, Processes, opened
from bench.platform.fleet import Fleet, gathered
from bench.platform.instances import Kind, Nodes, ScaleSet, Step, lives, measure_instances
from bench.platform.node import Deployment
from bench.platform.rates import Point
from bench.platform.report import settings
from swathmill.commands.fleet.container_apps import ContainerAppsJob
from swathmill.commands.fleet.rest import Rest
from swathmill.errors import StackError
from tasks.bag.categories import Category
from tests.bench.waiting import Waiting
from tests.infra.roles import imported, left_out, tops_of
from tests.swathmill.commands.fleet.engine_server import TOKEN, Answer, Call, engine_server


def silent(said: str) -> None:
    raise AssertionError(said)


@pytest.mark.integration
@pytest.mark.slow
def test_clients_run_on_the_nodes_of_a_fleet(redis_server: str) -> None:
    """Each node is a process; all begin together; one that cannot connect calls the run off."""
    with (
        Redis.from_url(redis_server) as redis,
        opened("local", redis_server, "test", silent) as engine,
        gathered(redis, "test", 2, engine) as fleet,
    ):
        calls = fleet.run(Waiting(), 5, 60.0)
        assert sorted(call.client for call in calls) == [n for n in range(5) for _ in range(4)]
        assert len({call.size for call in calls if call.size}) == 2  # process ids
        assert os.getpid() not in {call.size for call in calls}
        assert all(0.0 <= call.began <= call.ended for call in calls)
        with pytest.raises(StackError, match="PermissionError: no right to connect"):
            fleet.run(Waiting(broken=2), 4, 60.0)
        counted = fleet.run(Waiting(), 2, 0.0, count=3)
        assert [call.client for call in sorted(counted, key=lambda one: one.client)] == [0] * 3 + [
            1
        ] * 3
        kept = [str(key) for key in redis.keys("swathmill-study:*") if redis.ttl(key) < 0]
        assert kept == []  # a study that is killed leaves nothing for ever
    with Redis.from_url(redis_server) as redis:
        assert redis.exists("swathmill-study:test") == 0


@pytest.mark.integration
def test_nodes_that_do_not_come_are_told(redis_server: str) -> None:
    """Their tickets are taken back: who comes later is in no study."""
    told: list[str] = []
    with Redis.from_url(redis_server) as redis:
        fleet = Fleet(redis=redis, study="nobody", engine=ByHand("nobody", told.append), patience=0)
        with pytest.raises(StackError, match="0 of 3 nodes have come within 0 s"):
            fleet.gather(3)
        assert redis.llen("swathmill-study:nobody") == 3
        fleet.leave()
        assert redis.exists("swathmill-study:nobody") == 0
    assert "Start on 3 machines" in told[0]
    assert redis_server not in told[1]  # it has a password


def test_a_node_needs_what_the_image_of_a_worker_has_alone() -> None:
    """The study sends its code to nodes. What they unpickle is in these modules."""
    absent = tops_of(left_out("worker"))
    folder = Path(fleet_module.__file__).parent
    ahead, seen = ["node", "azure_calls", "other_calls", "trials", "tcp"], set[str]()
    while ahead:
        name = ahead.pop()
        seen.add(name)
        named = imported(folder / f"{name}.py", f"bench.platform.{name}")
        tops = {one.partition(".")[0] for one in named}
        assert not tops & (absent | {"matplotlib"}), name
        ours = {one.split(".")[2] for one in named if one.startswith("bench.platform.")}
        ahead += [one for one in ours - seen if (folder / f"{one}.py").exists()]
    assert {"clients", "node"} <= seen
    packed = zipfile.ZipFile(io.BytesIO(fleet_module._packed())).namelist()
    assert {f"bench/platform/{name}.py" for name in seen} <= set(packed)


def test_the_bytes_of_a_deployment_are_those_that_its_python_imports_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages of another Python that lie within a folder count only where they are on the path."""
    library, packages = tmp_path / "lib", tmp_path / "lib" / "site-packages"
    (packages / "numpy").mkdir(parents=True)
    (library / "os.py").write_bytes(bytes(10))
    (packages / "numpy" / "core.py").write_bytes(bytes(100))

    def found(*folders: Path) -> int:
        monkeypatch.setattr("sys.path", ["/", *map(str, folders)])
        with Deployment().open(0) as steps:
            return next(steps)()

    assert (found(library), found(library, packages), found(library, library)) == (10, 110, 10)


def test_a_node_of_a_role_imports_from_its_copy_alone(tmp_path: Path) -> None:
    """Our packages are in the folder where the test runs, too, and numpy is in its environment."""
    (tmp_path / "image" / "tasks").mkdir(parents=True)
    (tmp_path / "image" / "tasks" / "__init__.py").write_text("numpy = 'numpy'")
    says = "sys,tasks,importlib.util as u;print(tasks.__file__,u.find_spec(tasks.numpy));sys.exit()"
    node = Processes("url", "study", tmp_path, tmp_path / "image", program=says)
    said = subprocess.check_output(node._command(tmp_path / "copy"), text=True)
    assert said.split() == [str(tmp_path / "copy" / "tasks" / "__init__.py"), "None"]


@pytest.mark.proof
@pytest.mark.integration
@pytest.mark.slow
def test_a_role_starts_from_a_copy_of_its_packages(redis_server: str) -> None:
    """Each node has copied the portal's packages and imports nothing else; its life is timed."""
    with (
        Redis.from_url(redis_server) as redis,
        opened("local:portal", redis_server, "role", silent) as engine,
    ):
        kind = Nodes(name="portal", new=lambda: Fleet(redis=redis, study="role", engine=engine))
        points = list(measure_instances([kind], 1, patience=300.0))
        assert engine.there() == []
    assert [one.operation for one in points] == ["run, portal", "add, portal", "delete, portal"]
    assert not any(call.failure for one in points for call in one.calls)
    assert points[0].size > 50e6


@dataclass
class Az:
    """Azure's command on a clock: machines run 60 s after the order, each a minute after another.

    One size has no quota; of another the second machine never comes.
    """

    now: float = 0.0
    asked: list[tuple[str, ...]] = field(default_factory=list)
    capacity: int = 0
    ordered: float = 0.0
    state: str = "running"
    size: str = ""

    def ask(self, *words: str) -> object:
        self.asked.append(words)
        if words[1] == "create":
            self.size = words[words.index("--vm-sku") + 1]
            self.capacity, self.state = 0, "running"
        if words[1] == "scale":
            if self.size == "None":
                raise StackError("no quota", "ask for more")
            self.capacity, self.ordered = int(words[-1]), self.now
        if words[1] == "deallocate":
            self.state, self.ordered = "deallocated", self.now - 60.0
        if words[1] == "list-instances":
            return [self._machine(n) for n in range(self.capacity)]
        return None

    def _machine(self, number: int) -> dict[str, object]:
        there = self.now >= self.ordered + 60.0 * (1 + number)
        there = there and not (self.size == "Lame" and number == 1)
        code = f"PowerState/{self.state}" if there else "ProvisioningState/creating"
        return {"instanceId": str(number), "instanceView": {"statuses": [{"code": code}]}}

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def points_of(*sizes: str, rounds: int = 1) -> tuple[Az, list[Point]]:
    az = Az()
    kinds = [ScaleSet(az=az, group="group", machine=size, sleep=az.sleep) for size in sizes]
    found = [
        one
        for _ in range(rounds)
        for one in measure_instances(kinds, 3, clock=az.clock, patience=1000.0)
    ]
    return az, found


def test_machines_go_through_their_life_and_each_is_timed() -> None:
    az, points = points_of("B1s")
    assert [one.operation for one in points] == [
        f"{step}, B1s" for step in ("create", "run", "add", "suspend", "delete")
    ]
    assert [words[-1] for words in az.asked if words[1] == "scale"] == ["3", "6"]
    run, add = lives(points)[1:3]
    assert (run.first, run.last, run.lag, run.failed) == (60.0, 180.0, 120.0, 0.0)
    assert (add.first, add.last, add.machines) == (240.0, 360.0, 3)  # of the new ones alone


def test_machines_are_deleted_where_a_step_failed_and_other_kinds_go_on() -> None:
    az, points = points_of("None", "B1s")
    assert [(one.operation, bool(one.calls[0].failure)) for one in points[:4]] == [
        ("create, None", False),
        ("run, None", True),
        ("delete, None", False),
        ("create, B1s", False),
    ]
    assert [words[1] for words in az.asked].count("delete") == 2


def test_a_machine_that_never_comes_is_a_failure_with_the_others_timed() -> None:
    _, points = points_of("Lame")
    run = lives(points)[1]
    assert (run.first, run.last) == (60.0, 180.0)
    assert run.failed == pytest.approx(1 / 3)
    assert {call.failure for call in points[1].calls} == {"", Category.OPERATION_TIMEOUT}


def test_a_target_of_scaling_needs_as_many_starts_as_confidence_takes() -> None:
    """Four slow starts of machines are no reason for a setting; six that took as long are."""
    _, few = points_of("B1s", rounds=4)
    assert settings(few) == []
    _, often = points_of("B1s", rounds=6)
    assert settings(often)[-1] == "SWATHMILL_SCALE_SECONDS=720"
    assert "360 s, 95% sure to be 360 to 360, by 6 starts" in settings(often)[0]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ((160.0, 165.0, 170.0, 160.0, 165.0), True),
        ((60.0, 500.0, 90.0, 400.0, 200.0), False),  # slow in the mean, by chance
        ((140.0, 141.0, 142.0, 140.0, 141.0), False),  # surely, and not too slow
    ],
)
def test_a_target_of_scaling_is_sure_to_be_too_short(
    seconds: tuple[float, ...], said: bool
) -> None:
    points = [
        Point(
            experiment="instances", operation="add, x", size=0, clients=1, apart=True,
            calls=(OneMachine(client=0, began=float(n), ended=n + took),),
        )
        for n, took in enumerate(seconds)
    ]  # fmt: skip
    assert bool(settings(points)) == said


JOB = "/subscriptions/s/resourceGroups/g/providers/Microsoft.App/jobs/study"


@pytest.mark.integration
def test_nodes_of_an_engine_are_timed_from_the_order_to_their_first_word(redis_server: str) -> None:
    """The engine is a server of Azure's calls on loopback; a thread of it stands for each node."""
    executions: list[str] = []

    def answer(call: Call) -> Answer:
        if call.method == "POST":
            executions.append(f"study-{len(executions)}")
            take_a_ticket()
            return 200, {"name": executions[-1]}
        going = [
            {"name": one, "properties": {"status": "Running"}}
            for number, one in enumerate(executions)
            if redis.llen(orders[number]) == 0
        ]
        return 200, {"value": going}

    orders: list[str] = []

    def take_a_ticket() -> None:
        """Say the first word as a ticket's lines would; what it is ordered then ends it."""
        ticket = str(redis.rpop("swathmill-study:engine"))
        session, node = (ticket.partition("serve(r, '")[2].split("'")[0], len(orders))
        orders.append(f"swathmill-study:{session}:orders:{node}")
        redis.lpush(f"swathmill-study:{session}:came", str(node))

    with Redis.from_url(redis_server) as redis, engine_server(answer) as engine:
        job = ContainerAppsJob(JOB, Rest(base=engine.url, permission=lambda: TOKEN))
        kind = Unsized(Nodes(
            name="job", new=lambda: Fleet(redis=redis, study="engine", engine=job)
        ))  # fmt: skip
        points = list(measure_instances([kind], 2, patience=60.0))
        starts = [call for call in engine.calls if call.method == "POST"]
    assert [(one.operation, len(one.calls)) for one in points] == [
        ("run, job", 2), ("add, job", 2), ("delete, job", 4),
    ]  # fmt: skip
    assert not any(call.failure for one in points for call in one.calls)
    assert len(starts) == 4
    assert {call.path.partition("?")[0] for call in starts} == {f"{JOB}/start"}


@dataclass(frozen=True)
class Unsized:
    """A kind whose nodes do not tell their size: these ones carry out no order."""

    kind: Kind

    @property
    def name(self) -> str:
        return self.kind.name

    def life(self, number: int) -> Iterator[Step]:
        return self.kind.life(number)

    def size(self) -> int:
        return 0
