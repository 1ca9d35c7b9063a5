"""What must hold when a history is over."""

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tasks.bag import history as executions
from tasks.bag import task_table
from tasks.bag.kinds import Spec
from tasks.bag.model import Attempt, RequestState, State, Task, TaskOutcome
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import Interest
from tasks.bag.task_table import MARKERS, RowKind, kind_of
from tasks.requests import outbox, request_operations, request_table
from tasks.requests.plan import Plan
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import split_blob
from tasks.storage.store import Row, Store
from tasks.storage.updates import prefix_range
from tests.simulation.actors import Client, content
from tests.simulation.mail import Mailboxes
from tests.simulation.scenario import Scenario
from tests.simulation.watch import Watch


def _counted(attempt: Attempt) -> tuple[object, ...]:
    day = dt.datetime.fromtimestamp(attempt.ended, dt.UTC).date()
    return day, attempt.phase, attempt.task_class, attempt.category


def task_rows(store: Store) -> list[Row]:
    """Everything in the table of tasks."""
    return [row for shard in SHARDS for row in store.scan(task_table.TABLE, shard, "", "\uffff")]


def passing_rows(store: Store) -> list[Row]:
    """The rows that are there only while something is under way."""
    ranges = [prefix_range(f"{kind}|") for kind in (RowKind.COMPLETION_EVENT, *MARKERS)]
    return [
        row
        for shard in SHARDS
        for start, end in ranges
        for row in store.scan(task_table.TABLE, shard, start, end)
    ]


@dataclass
class Reckoning:
    """What must hold when all is over; results are `short_lived` where retention deletes them."""

    watch: Watch
    scenario: Scenario
    client: Client | None
    mailboxes: Mailboxes
    short_lived: bool

    def __post_init__(self) -> None:
        self.runtime = replace(memory_runtime(), store=self.watch.store, blobs=self.watch.blobs)

    def check(self) -> None:
        self.tasks()
        self.attempts()
        self.mails()
        self.lines()
        self.lists()
        for request in sorted(self.watch.ended):
            self.request(self.watch.ended[request])

    def tasks(self) -> None:
        """No task is live, and no row names a blob that is not there or has other bytes."""
        for task in self.watch.tasks.values():
            if task.state.live:
                self.watch.fail(f"task {task.key} is {task.state} when all is over")
            for file in task.files:
                if file.blob in self.watch.asked_blobs:
                    self.watch.fail(f"task {task.key} names {file.blob}, known to be lost")
                if file.blob in self.watch.lost_blobs:
                    continue
                if not self.runtime.blobs.exists(*split_blob(file.blob)):
                    self.watch.fail(f"task {task.key}: blob {file.blob} is gone")
                if self.runtime.blobs.get_bytes(*split_blob(file.blob)) != content(task.key):
                    self.watch.fail(f"task {task.key}: other bytes")

    def expired(self) -> None:
        """What only requests that ended wanted is gone."""
        for task in self.watch.tasks.values():
            if task.state is State.DONE:
                self.watch.fail(f"task {task.key} is kept, and nobody wants it any more")

    def attempts(self) -> None:
        """Every attempt is counted once."""
        found = [
            task_table.ATTEMPT.load(row)
            for row in task_rows(self.watch.store)
            if kind_of(row.row) is RowKind.ATTEMPT
        ]
        made = Counter(a.task_class for a in found if a.category is None)
        counted = {
            name: s.count for name, s in executions.class_statistics(self.watch.store).items()
        }
        if dict(made) != counted:
            self.watch.fail(f"successes {dict(made)} were counted as {counted}")
        whole = {_counted(a): 0 for a in found}
        for attempt in found:
            whole[_counted(attempt)] += 1
        self.compare("day", whole, self.counts())
        for worker in {a.worker for a in found}:
            its = Counter(_counted(a) for a in found if a.worker == worker)
            self.compare(worker, its, self.counts(worker=worker))
        owned = sum((self.counts(owner=f"owner{n}") for n in range(2)), start=Counter())
        self.compare("owner", whole, owned)

    def counts(self, *, owner: str = "", worker: str = "") -> Counter[tuple[object, ...]]:
        """The executions that the statistics have, of all or of one owner or worker."""
        first, last = dt.date(1970, 1, 1), dt.date(2200, 1, 1)
        found = executions.executions_between(
            self.watch.store, first, last, owner=owner, worker=worker
        )
        return Counter({(d.day, d.phase, d.task_class, d.category): d.count for d in found})

    def compare(
        self,
        what: str,
        made: Mapping[tuple[object, ...], int],
        counted: Mapping[tuple[object, ...], int],
    ) -> None:
        """The statistics have each attempt once."""
        for each in sorted({*made, *counted}, key=str):
            if made.get(each, 0) != counted.get(each, 0):
                told = f"{made.get(each, 0)} were counted as {counted.get(each, 0)}"
                self.watch.fail(f"attempts by {what}, {each}: {told}")

    def mails(self) -> None:
        """Each mail was taken by the server, and is the same each time it was sent."""
        for mail in outbox.mails(self.watch.store):
            taken = self.mailboxes.taken.get(mail.message_id, [])
            if not taken:
                self.watch.fail(f"the mail about {mail.request} counts as sent, and was not taken")
            if len(set(taken)) > 1:
                self.watch.fail(f"the mail about {mail.request} was sent with several texts")

    def lines(self) -> None:
        """Of a request comes at most one retry and one that goes on; a cancelled one stops."""
        ended = self.watch.ended
        after = Counter((row.retry_of, row.continues) for row in ended.values())
        for (retried, continued), number in after.items():
            if number > 1 and (retried or continued):
                self.watch.fail(f"request {retried or continued} is followed by {number}")
        for row in ended.values():
            if row.state is RequestState.CANCELLED and row.continued_as:
                self.watch.fail(f"request {row.id} was cancelled and goes on")

    def lists(self) -> None:
        """A request is in the lists that its row names, and in no other."""
        table = request_table.RequestTable(self.watch.store)
        rows = [request_table.REQUEST.load(row) for row in table.request_rows()]
        named = {name for row in rows for name in request_table.list_rows(row)}
        start, end = prefix_range("i|")
        found = self.watch.store.scan(request_table.TABLE, request_table.PARTITION, start, end)
        if unlike := named ^ {row.row for row in found}:
            self.watch.fail(f"the lists of requests have {sorted(unlike)} too much or too little")
        standing = {row.id for row in rows if row.standing}
        if standing != {*table.standing()}:
            self.watch.fail(f"{sorted(standing)} stand, and the list has {table.standing()}")

    def request(self, row: request_table.RequestRow) -> None:
        """A request says exactly what it has and lacks."""
        interests = {w.key: w for w in request_operations.interests(self.runtime, row.id)}
        client = self.client
        if row.state is RequestState.CANCELLED:
            if client is None or row.id not in client.cancelled:
                self.watch.fail(f"request {row.id} was not cancelled by anybody")
            self.cancelled(row, interests)
            return
        if self.watch.mails(row.id) != 1:
            self.watch.fail(f"request {row.id} has {self.watch.mails(row.id)} mails")
        if row.state is RequestState.REFUSED:
            return
        if row.state is RequestState.FAILED and row.message.startswith("planning was tried"):
            return  # as many managers died or were cut off while it was planned
        told = {**self.watch.released.get(row.id, {}), **interests}
        title = row.title
        plan = self.scenario.plans[title]
        if self.scenario.policies[title] == "fail" and row.state is RequestState.FAILED:
            if not any(w.outcome in ("failed", "gap", "superseded") for w in told.values()):
                self.watch.fail(f"request {row.id} failed and nothing is missing")
            return
        self.delivered(row, plan, told)

    def cancelled(self, row: request_table.RequestRow, interests: dict[str, Interest]) -> None:
        """A cancelled request keeps every result that it had, and counts truly."""
        told = {**self.watch.released.get(row.id, {}), **interests}
        had = told if self.short_lived else interests
        for key in self.watch.finished.get(row.id, set()) - self.watch.lost_tasks:
            if key not in had or had[key].outcome != "done":
                self.watch.fail(f"request {row.id} is cancelled and has lost its result {key}")
        if any(not interest.outcome for interest in told.values()):
            self.watch.fail(f"request {row.id} is cancelled and has unfinished tasks")
        if self.watch.mails(row.id) != 1:
            self.watch.fail(f"request {row.id} was cancelled with {self.watch.mails(row.id)} mails")
        for phase, count in row.phases.items():
            outcomes = Counter(
                interest.outcome for interest in told.values() if interest.phase is phase
            )
            if (count.done, count.failed) != (
                outcomes[TaskOutcome.DONE],
                outcomes[TaskOutcome.FAILED] + outcomes[TaskOutcome.GAP],
            ):
                self.watch.fail(f"request {row.id}: {phase} counts {count}, told {outcomes}")
            if count.left or count.running or count.cancelled < 0:
                self.watch.fail(f"request {row.id} is cancelled and {phase} counts {count}")
        self.counted(row, told)
        planned = self.scenario.plans.get(row.title)
        total = sum(count.total for count in row.phases.values())
        plain = all(interest.outcome == "done" for interest in told.values())
        if row.phases and plain and planned is not None:
            own = {task.spec.key for task in planned.tasks}
            # A fallback task counts beside the task that it replaces, until that one is told.
            if not len(own) <= total <= len(own | self.watch.asked.get(row.id, set())):
                self.watch.fail(f"request {row.id} had {len(own)} tasks and counts {total}")

    def counted(self, row: request_table.RequestRow, told: Mapping[str, Interest]) -> None:
        """Its row counts the results that readers see."""
        made = request_operations.results_in(told.values())
        if row.delivered != len(made):
            self.watch.fail(f"request {row.id}: {len(made)} results, {row.delivered} counted")

    def delivered(
        self, row: request_table.RequestRow, plan: Plan, interests: dict[str, Interest]
    ) -> None:
        for planned in plan:
            interest = interests.get(planned.spec.key)
            if interest is None or not interest.outcome:
                self.watch.fail(f"request {row.id} ended {row.state} without an outcome of a task")
                return
            self.told(row, interest, planned.spec, interests)
        lacks = any(w.outcome in ("failed", "gap", "superseded") for w in interests.values())
        if (row.state is RequestState.COMPLETE) == lacks:
            self.watch.fail(f"request {row.id} ended {row.state}, lacking something: {lacks}")
        if lacks and not row.gap_count:
            self.watch.fail(f"request {row.id} ended {row.state} and names no gap")
        self.counted(row, interests)

    def told(
        self,
        row: request_table.RequestRow,
        interest: Interest,
        spec: Spec,
        interests: dict[str, Interest],
    ) -> None:
        """One interest agrees with its task and with what its inputs came to."""
        task = self.watch.tasks[interest.key]
        if interest.outcome == "done":
            self.done(row, interest, task)
        elif interest.outcome == "superseded":
            fallback = interests.get(interest.fallback)
            if fallback is None or not fallback.outcome:
                self.watch.fail(
                    f"request {row.id}: the fallback task of {interest.key} has no outcome"
                )
        elif interest.outcome == "gap":
            there = [i.key for i in spec.inputs if interests[i.key].outcome == "done"]
            if any(not self.lost(key) and (row.id, key) not in self.watch.failed for key in there):
                self.watch.fail(f"request {row.id}: {interest.key} is a gap with inputs there")
        elif interest.outcome != "failed":
            self.watch.fail(f"request {row.id}: outcome {interest.outcome!r}")

    def lost(self, key: str) -> bool:
        """An input whose artifact was there, was lost, and could not be made again. One that failed
        and that another request had made after all is told done beside a gap, too."""
        return key in self.watch.lost_tasks and self.watch.tasks[key].state is not State.DONE

    def done(self, row: request_table.RequestRow, interest: Interest, task: Task) -> None:
        if task.key not in self.watch.was_done:
            self.watch.fail(f"request {row.id}: {interest.key} is told done and never was")
        released = interest.key in self.watch.released.get(row.id, {})
        heard = row.id in task.interests  # until another took back what it had begun again
        if task.state is State.DONE and interest.files != task.files and heard and not released:
            self.watch.fail(f"request {row.id}: {interest.key} names other files than its task")
