"""What must hold when a history is over."""

import datetime as dt
from collections import Counter
from dataclasses import replace

from tasks.model.model import RequestState, State, Task, TaskOutcome
from tasks.model.plan import Plan
from tasks.model.spec import Spec
from tasks.model.task_keys import SHARDS
from tasks.storage.blobs import split_blob
from tasks.storage.store import Row, Store
from tasks.tables import history as executions
from tasks.tables import request_operations, request_table, task_table
from tasks.tables.runtime import memory_runtime
from tasks.tables.task_rows import Interest
from tasks.tables.task_table import RowKind, kind_of
from tests.simulation.actors import Client, content
from tests.simulation.scenario import Scenario
from tests.simulation.watch import Watch


def task_rows(store: Store) -> list[Row]:
    """Everything in the table of tasks."""
    return [row for shard in SHARDS for row in store.scan(task_table.TABLE, shard, "", "\uffff")]


class Reckoning:
    """What must hold when all is over."""

    def __init__(self, watch: Watch, scenario: Scenario, client: Client | None) -> None:
        self.watch = watch
        self.scenario = scenario
        self.client = client
        self.runtime = replace(memory_runtime(), store=watch.store, blobs=watch.blobs)

    def check(self) -> None:
        self.tasks()
        self.attempts()
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
        days = executions.executions(self.watch.store, 10_000, dt.date(2040, 1, 1))
        number = sum(day.count for day in days)
        if number != len(found):
            self.watch.fail(f"{len(found)} attempts were counted as {number}")

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
        title = client.submitted[row.id] if client else ""
        plan = self.scenario.plans[title]
        if self.scenario.policies[title] == "fail" and row.state is RequestState.FAILED:
            if not any(w.outcome in ("failed", "gap", "superseded") for w in told.values()):
                self.watch.fail(f"request {row.id} failed and nothing is missing")
            return
        self.delivered(row, plan, told)

    def cancelled(self, row: request_table.RequestRow, interests: dict[str, Interest]) -> None:
        """A cancelled request keeps every result that it had, and counts truly."""
        for key in self.watch.finished.get(row.id, set()) - self.watch.lost_tasks:
            if key not in interests or interests[key].outcome != "done":
                self.watch.fail(f"request {row.id} is cancelled and has lost its result {key}")
        told = {**self.watch.released.get(row.id, {}), **interests}
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
        made = [
            interest for interest in told.values() if interest.output and interest.outcome == "done"
        ]
        if row.delivered != len(made):
            self.watch.fail(f"request {row.id}: {len(made)} results, {row.delivered} counted")
        planned = self.scenario.plans.get(self.client.submitted[row.id]) if self.client else None
        total = sum(count.total for count in row.phases.values())
        plain = all(interest.outcome == "done" for interest in told.values())
        if row.phases and plain and planned is not None:
            own = {task.spec.key for task in planned.tasks}
            # A fallback task counts beside the task that it replaces, until that one is told.
            if not len(own) <= total <= len(own | self.watch.asked.get(row.id, set())):
                self.watch.fail(f"request {row.id} had {len(own)} tasks and counts {total}")

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
