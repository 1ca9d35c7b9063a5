"""Tasks written one by one, and the parts of a manager that see to what becomes of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import Live, ManagerCache
from service_manager.events.completion_events import CompletionEvents, Processed
from service_manager.events.dependents import Dependents
from tasks.bag import protocol, transitions, workers
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile, MissingPolicy, RequestState, Task
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Edge, Interest
from tasks.bag.transitions import Change, RetryPolicy
from tasks.bag.workers import RunningAttempt, WorkerRow
from tasks.errors import StoreError
from tasks.requests.request_table import RequestRow
from tasks.service.memory_runtime import memory_runtime
from tasks.storage import blobs
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Operation

ONCE = RetryPolicy(budget=1)


class Meddling(MemoryStore):
    """A store in which other things happen `before` a transaction, and whose answers get lost.

    `before` sees table and operations of each transaction; `lost` has the tables of transactions
    that take effect and are not answered, each once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[str, Sequence[Operation]], None] = lambda _table, _operations: None
        self.lost: list[str] = []

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        self.before(table, operations)
        etags = super().transact(table, partition, operations)
        if table in self.lost:
            self.lost.remove(table)
            raise StoreError("the answer was lost")
        return etags


def one_place(window: int = 8, resend: float = 30.0) -> FleetDispatch:
    """The dispatch of a fleet without places."""
    return FleetDispatch(lambda: Dispatch(window=window, resend=resend))


@dataclass
class Scene:
    """A manager's memory over a store, and what it does about completion events."""

    store: Meddling = field(default_factory=Meddling)
    cache: ManagerCache = field(default_factory=ManagerCache)
    epoch: int = 1

    def __post_init__(self) -> None:
        self.runtime: Runtime = replace(memory_runtime(ManualClock()), store=self.store)
        self.tasks = self.runtime.tasks
        self.dependents = Dependents(self.runtime, self.cache.requests.get)
        self.events = CompletionEvents(self.runtime, self.cache, self.dependents, self.epoch)

    def request(
        self,
        name: str,
        state: RequestState = RequestState.RUNNING,
        policy: MissingPolicy = MissingPolicy.SKIP,
    ) -> Live:
        """A request in the manager's memory."""
        row = RequestRow(id=name, owner="owner", state=state, submitted=1.0)
        live = self.cache.requests[name] = Live(row=row, policy=policy)
        return live

    def interest(self, request: str, spec: Spec, output: str = "") -> Interest:
        interest = Interest(request=request, key=spec.key, phase=spec.phase, output=output)
        if request in self.cache.requests:
            self.cache.requests[request].note(interest)
        return interest

    def write(self, spec: Spec, *requests: str, over: Sequence[Spec] = ()) -> str:
        """A task with an interest of each request, which waits for the inputs in `over`."""
        missing, edges = 0, dict[str, int]()
        for i, given in enumerate(spec.inputs):
            if given.key in {one.key for one in over}:
                missing |= 1 << i
                edges[given.key] = edges.get(given.key, 0) | 1 << i
        first, *others = requests or ("r",)
        change = transitions.create(spec, self.interest(first, spec), missing)
        self.tasks.transact(shard(spec.key), change.operations)
        for other in others:
            interest = self.interest(other, spec)
            self.change(spec, lambda t, w=interest: transitions.add_interest(t, w, missing))  # type: ignore[misc]
        for key, bits in edges.items():
            self.link(key, spec, bits)
        return spec.key

    def link(self, task: Spec | str, dependent: Spec, bits: int = 1) -> None:
        """Write the edge to a dependent, which may be yet to come."""
        key = task if isinstance(task, str) else task.key
        edge = Edge(key=key, dependent=dependent.key, bits=bits)
        self.change(key, lambda found: transitions.link(found, (edge,)))

    def change(self, task: Spec | str, decide: Callable[[Task], Change]) -> Task:
        key = task if isinstance(task, str) else task.key
        found = protocol.change_task(self.runtime, key, decide)
        assert found is not None
        return found

    def task(self, task: Spec | str) -> Task:
        key = task if isinstance(task, str) else task.key
        found = self.tasks.task(key)
        assert found is not None
        return found

    def beat(
        self,
        sequence: int,
        *listed: tuple[Spec, str],
        waiting: Sequence[str] = (),
        name: str = "w",
        ago: float = 0.0,
    ) -> None:
        """A worker of one slot beats, with attempts in hand by task and fencing token."""
        row = WorkerRow(
            name=name,
            host=name,
            slots=1,
            started=1.0,
            beat_at=1.0,
            sequence=sequence,
            waiting=tuple(waiting),
            attempts=tuple(
                RunningAttempt(
                    key=spec.key,
                    claim=claim,
                    started_ago=ago,
                    phase=spec.phase,
                    task_class=spec.task_class,
                )
                for spec, claim in listed
            ),
        )
        workers.beat(self.store, self.runtime.clock, row)

    def claim(self, spec: Spec) -> protocol.Claimed:
        claimed = protocol.claim(self.runtime, spec.key, "w", ONCE)
        assert claimed is not None
        return claimed

    def run(
        self, spec: Spec, category: Category | None = None, policy: RetryPolicy = ONCE
    ) -> protocol.Claimed:
        """Run a task that is ready, to its artifact or to a failure."""
        return self.end(self.claim(spec), category, policy)

    def end(
        self,
        claimed: protocol.Claimed,
        category: Category | None = None,
        policy: RetryPolicy = ONCE,
    ) -> protocol.Claimed:
        """End an attempt."""
        attempt = claimed.attempt(started=1.0, ended=2.0, duration=1.0, category=category)
        if category is None:
            assert protocol.commit(self.runtime, attempt, [self.artifact(claimed)])
        else:
            assert protocol.fail(self.runtime, attempt, policy)
        return claimed

    def artifact(self, claimed: protocol.Claimed) -> ArtifactFile:
        name = blobs.artifact_name(claimed.task.key, claimed.claim, "cell.tif")
        stored = self.runtime.blobs.put_bytes(blobs.ARTIFACTS, name, claimed.claim.encode())
        blob = f"{blobs.ARTIFACTS}/{name}"
        return ArtifactFile(name="cell.tif", blob=blob, size=stored.size, sha256=stored.sha256)

    def process(self) -> Processed:
        """Have the manager notice all events, and process what it reads at once."""
        self.events.notice("0123456789abcdef")
        return self.events.run()

    def left(self, spec: Spec) -> list[str]:
        """The completion events of a task."""
        return [one.row for one in self.tasks.events(shard(spec.key), 1000) if one.key == spec.key]

    def recorded(self, request: str, spec: Spec) -> Interest:
        found = self.tasks.interest(request, spec.key)
        assert found is not None
        return found
