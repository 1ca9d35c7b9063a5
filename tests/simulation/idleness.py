"""No ready task waits longer than its class's mean while a slot of a live worker is idle.

A slot is idle while its worker beats, is to stay, and runs less than it has slots. A worker that
was drained for slowness counts, too; one that an operator has drained does not, nor one on whose
host everything fails. A task waits while it is ready, unless all requests that want it are paused
or being withdrawn, their owners or its phase are paused or at a limit, or all places of its
archive's host are taken. A request that was told an earlier end of it does not want it. Both are
looked at again and again: what is not so at one look begins anew. A task and a slot are held
against one another where the worker's place is that of the task's class.

Besides the mean there is time for the product to notice: the manager looks with each heartbeat, a
worker learns of an order with its next one, and a message that was meant for one host goes to all
after its patience.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tasks.bag.classes import archive_host
from tasks.bag.model import Phase, RequestState, State, Task
from tasks.bag.workers import Ask
from tasks.operators import restrictions
from tasks.operators.restrictions import Kind, Restrictions
from tasks.setting_values import WorkPlaces
from tests.simulation.actors import SimWorker
from tests.simulation.places import Places
from tests.simulation.watch import Watch

LOOK = 2.0
"""Seconds between two looks."""
NOTICED = 24.0
"""Seconds within which the product notices that a slot is idle, and that a worker is needed."""


@dataclass
class Idleness:
    """Holds ready tasks against idle slots. `mean` is what a task takes on a quiet host."""

    watch: Watch
    workers: Callable[[], Iterable[SimWorker]]
    places: Places
    mean: float
    work: WorkPlaces
    waits: dict[tuple[str, str], float] = field(default_factory=dict)  # since when: place, task
    idle: dict[tuple[str, str], float] = field(default_factory=dict)  # since when: place, process

    def look(self) -> None:
        """Look once, and again in a while; ViolationError where a task waits beside a slot."""
        now = self.watch.world.now
        self.idle = {one: self.idle.get(one, now) for one in self._idle()}
        self.waits = {one: self.waits.get(one, now) for one in self._waiting()}
        for place in ("", *self.work.names):
            self._compare(place, now)
        self.watch.world.at(LOOK, self.look)

    def _compare(self, place: str, now: float) -> None:
        slots = [(since, name) for (at, name), since in self.idle.items() if at == place]
        tasks = [(since, key) for (at, key), since in self.waits.items() if at == place]
        if not (slots and tasks):
            return
        idle, waits = min(slots), min(tasks)
        both = now - max(idle[0], waits[0])
        if both > self.mean + NOTICED:
            key = waits[1]
            self.watch.fail(
                f"task {key[:8]}..{key[-8:]} has waited for {both:.0f} s, usually done in "
                f"{self.mean:.0f} s, and {idle[1]} has an idle slot"
            )

    def _idle(self) -> Iterable[tuple[str, str]]:
        now = self.watch.world.now
        for worker in self.workers():
            process, row = worker.process, self.watch.rows.get(worker.name)
            if process.dead or process.stalled_until > now or row is None or worker.leaving:
                continue
            if row.unfit or row.failing:
                continue
            if row.asked is Ask.NONE and worker.lease.fresh and len(worker.batches) < worker.slots:
                yield worker.place, process.name

    def _waiting(self) -> Iterable[tuple[str, str]]:
        known = Restrictions.of(restrictions.load(self.watch.store))
        running = [t for t in self.watch.tasks.values() if t.state is State.RUNNING]
        phases = Counter(task.phase for task in running)
        free = self._free_requests(known, running)
        for task in self.watch.tasks.values():
            ready = task.state is State.READY and not task.not_before
            if ready and self._wanted(task, free) and self._passes(task, known, phases):
                yield self.work.of(task.task_class), task.key

    def _wanted(self, task: Task, free: set[str]) -> bool:
        """Whether one of these requests waits for the task's outcome: some were told an earlier."""
        return any(
            interest is not None and not interest.outcome
            for request in free.intersection(task.interests)
            for interest in [self.watch.interests[request].get(task.key)]
        )

    def _passes(self, task: Task, known: Restrictions, phases: Mapping[Phase, int]) -> bool:
        limit = known.phase_limits.get(task.phase)
        if task.phase in known.paused_phases or (limit is not None and phases[task.phase] >= limit):
            return False
        return not archive_host(task.task_class) or len(self.places.held) < self.places.number

    def _free_requests(self, known: Restrictions, running: Iterable[Task]) -> set[str]:
        """The requests of which tasks may be sent."""
        live = self.watch.requests
        owners = Counter(live[task.sponsor].owner for task in running if task.sponsor in live)
        found = restrictions.load(self.watch.store)
        if any(one.kind is Kind.QUOTA_ALL for one in found):  # it may be spent
            return set()
        quotas = {one.subject for one in found if one.kind is Kind.QUOTA_OWNER}
        return {
            name
            for name, row in live.items()
            if row.state in (RequestState.WRITING, RequestState.RUNNING)
            and not row.paused
            and not self.watch.fails(name)
            and row.owner not in known.paused_owners | quotas
            and owners[row.owner] < known.owner_limits.get(row.owner, len(self.watch.tasks) + 1)
        }
