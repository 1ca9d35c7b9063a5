"""One machine in a test: a manager on the memory store and a worker that runs what it is sent."""

import hashlib
import string
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random

from service_manager.leader.manager import Manager
from service_manager.options import ManagerOptions
from service_manager.plans.plan_jobs import Job, MadePlan, Run, inline
from tasks.bag import protocol
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec, ReduceSpec
from tasks.request.document import Request, parse_request
from tasks.requests import request_operations
from tasks.requests.plan import Plan, PlannedTask
from tasks.requests.request_table import RequestRow
from tasks.service.memory_runtime import memory_runtime
from tasks.storage import blobs
from tasks.storage.clock import ManualClock

GRID = GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8)
Outcome = Category | None
Decide = Callable[[protocol.Claimed], Outcome]


def scribble(length: int) -> str:
    """A text that packing makes a quarter shorter, no more."""
    return "".join(Random(1).choices(string.ascii_letters + string.digits, k=length))


def collect(name: str) -> CollectSpec:
    """The collection of a granule."""
    return CollectSpec(product="MOD13A2", collection="6", granule=name, production="1", size=10)


def mosaic(name: str, *inputs: Spec) -> MosaicSpec:
    """A task over others."""
    return MosaicSpec(name=name, grid=GRID, inputs=tuple(Input(key=i.key) for i in inputs))


def reduction(number: int, given: Spec, package: str = "own") -> ReduceSpec:
    """One run of a reduction."""
    return ReduceSpec(
        inputs=(Input(key=given.key, name=f"group {number}"),),
        package=package,
        digest=package,
        outputs=("own.tif",),
        parameters={"number": str(number)},
    )


def plan_of(*tasks: Spec, outputs: Mapping[str, str] | None = None) -> Plan:
    """A plan; `outputs` by the mosaic's name."""
    named = outputs or {}
    return Plan(
        tasks=tuple(
            PlannedTask(
                spec=spec,
                output=named.get(spec.name, "") if isinstance(spec, MosaicSpec) else "",
            )
            for spec in tasks
        )
    )


def document(title: str, **more: object) -> Request:
    """A request document whose title tells the planner what to plan."""
    return parse_request(
        {
            "title": title,
            "products": [{"name": "MOD13A2", "collection": "6", "layers": ["x"]}],
            "region": {"tiles": ["h18v04"]},
            "time": {"start": "2012-01-01", "end": "2012-01-02"},
            "grid": {"modis": 1000},
            "notify": "scientist@example.org",
            **more,
        }
    )


@dataclass
class Beside:
    """Makes plans when it is told to."""

    jobs: list[tuple[Job, Future[MadePlan]]] = field(default_factory=list)

    def run(self, job: Job) -> Future[MadePlan]:
        self.jobs.append((job, Future()))
        return self.jobs[-1][1]

    def end(self, number: int = 0) -> None:
        job, future = self.jobs[number]
        done = inline(job)
        error = done.exception()
        if error is None:
            future.set_result(done.result())
        else:
            future.set_exception(error)


@dataclass
class Bench:
    """Manager, worker and clock of one test."""

    plans: Mapping[str, Plan]
    options: ManagerOptions = field(default_factory=ManagerOptions)
    decide: Decide = lambda _claimed: None
    say: Callable[[protocol.Claimed], str] = lambda _claimed: "test"
    runtime: Runtime = field(default_factory=lambda: memory_runtime(ManualClock()))
    run: Run = inline
    sent: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    manager: Manager = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, epoch: int = 1) -> None:
        """A new manager that knows nothing but the tables."""
        self.manager = Manager(
            self.runtime, self.options, self.plan_of_request, self.sent.extend, epoch, self.run
        )

    def plan_of_request(self, request: Request) -> Plan:
        return self.plans[request.title]

    def submit(self, title: str, owner: str = "owner", **more: object) -> str:
        return request_operations.submit(self.runtime, owner, document(title, **more))

    def row(self, request: str) -> RequestRow:
        return request_operations.load(self.runtime, request)

    def work(self) -> None:
        """Run everything that was sent."""
        sent, self.sent[:] = list(self.sent), []
        for key in sent:
            claimed = protocol.claim(self.runtime, key, "worker", self.options.retry)
            if claimed is None:
                continue
            self.ran.append(key)
            gone = self._gone(claimed)
            category = Category.SOURCE_BLOB_MISSING if gone else self.decide(claimed)
            now = self.runtime.clock.now()
            attempt = claimed.attempt(
                started=now,
                ended=now + 1,
                duration=1.0,
                category=category,
                message=self.say(claimed),
            )
            if category is None:
                protocol.commit(self.runtime, attempt, [self._store(claimed)], claimed.task)
            else:
                protocol.fail(self.runtime, attempt, self.options.retry, healing=gone)

    def _gone(self, claimed: protocol.Claimed) -> int:
        """Return the bits of inputs whose blobs are not there, as a worker finds them."""
        return sum(
            1 << i
            for i, files in claimed.input_files.items()
            if not all(self.runtime.blobs.exists(*blobs.split_blob(one.blob)) for one in files)
        )

    def _store(self, claimed: protocol.Claimed) -> ArtifactFile:
        data = hashlib.sha256(claimed.task.key.encode()).digest()
        name = blobs.artifact_name(claimed.task.key, claimed.claim, "cell.tif")
        stored = self.runtime.blobs.put_bytes(blobs.ARTIFACTS, name, data)
        return ArtifactFile(
            name="cell.tif",
            blob=f"{blobs.ARTIFACTS}/{name}",
            size=stored.size,
            sha256=stored.sha256,
        )

    def rounds(self, number: int, seconds: float = 1.0) -> None:
        for _ in range(number):
            self.manager.tick()
            self.work()
            self.runtime.clock.sleep(seconds)

    def until_ended(self, request: str, limit: int = 400, seconds: float = 1.0) -> RequestRow:
        """Rounds until the request has ended."""
        for _ in range(limit):
            self.rounds(1, seconds)
            row = self.row(request)
            if row.state.ended:
                return row
        raise AssertionError(f"request {request} did not end: {self.row(request)}")
