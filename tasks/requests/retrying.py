"""Asking for another try of what failed: of a whole request, of one category, of one task.

A request that goes on tries again itself: the manager obeys the order. One that has ended stays as
it is; its retry is a new request of the same document, linked both ways, which reuses what was made
and whose new interests revive what failed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tasks.bag.categories import Category
from tasks.bag.model import RequestState, TaskOutcome
from tasks.bag.runtime import Runtime, new_id
from tasks.bag.task_keys import is_key
from tasks.bag.task_rows import Interest
from tasks.bag.task_table import TaskTable
from tasks.errors import SwathmillError
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow, RequestTable

MOST_ORDERS = 50  # of one request, not obeyed yet
MOST_ENDED = 100  # requests that have ended and are tried again at once
LOOKED_AT = 1000  # requests, the latest, of which those are sought
_LONGEST_LINE = 1000  # retries of retries


class NothingToRetryError(SwathmillError):
    """A request has nothing that could be tried again, or not now."""


class CancellingError(NothingToRetryError):
    """A request is being cancelled: it can be tried again when that is over."""


class TooManyOrdersError(NothingToRetryError):
    """Orders to a request wait already: it can be tried again when they are obeyed."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is tried again: all that failed, what failed of one category or class, or one task."""

    category: Category | None = None
    task: str = ""
    task_class: str = ""

    def __str__(self) -> str:
        if self.task:
            return f"task|{self.task}"
        if self.task_class:
            return f"class|{self.task_class}"
        return f"category|{self.category.value}" if self.category else "all"

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """Parse the scope of a stored order."""
        kind, _, value = text.partition("|")
        if kind == "task":
            return cls(task=value)
        if kind == "class":
            return cls(task_class=value)
        return cls(category=Category(value)) if kind == "category" else cls()

    @classmethod
    def of(cls, category: str = "", task: str = "", task_class: str = "") -> "Scope":
        """Return the scope that people name.

        Raises ValueError, whose message says what to name instead.
        """
        if [bool(category), bool(task), bool(task_class)].count(True) > 1:
            raise ValueError("name a category, a class or a task, one of them")
        if task and not is_key(task):
            raise ValueError(f"{task!r} is not a task key; a key has 64 hexadecimal digits")
        if category and category not in set(Category):
            known = ", ".join(sorted(c.value for c in Category))
            raise ValueError(f"there is no category {category!r}; there are: {known}")
        named = Category(category) if category else None
        return cls(category=named, task=task, task_class=task_class)

    def covers(self, interest: Interest) -> bool:
        """Tell whether an interest with a failure is meant; of a class, `covered` tells which."""
        if interest.outcome not in (TaskOutcome.FAILED, TaskOutcome.GAP, TaskOutcome.SUPERSEDED):
            return False
        if self.task:
            return interest.key == self.task
        if self.category:
            return (
                interest.outcome is not TaskOutcome.SUPERSEDED
                and interest.category is self.category
            )
        return interest.outcome is TaskOutcome.FAILED


def covered(tasks: TaskTable, interests: Iterable[Interest], scope: Scope) -> list[str]:
    """Return the keys of the interests that a scope covers. Raises StoreError."""
    keys = [interest.key for interest in interests if scope.covers(interest)]
    if not scope.task_class:
        return keys
    found = tasks.tasks_of_all(keys)
    return [key for key in keys if key in found and found[key].task_class == scope.task_class]


def retry(runtime: Runtime, request: str, scope: Scope) -> RequestRow:
    """Retry what failed, and return the row of the request that does it.

    That request is this one while it runs, else the latest of its line of retries. A second call
    has no further effect.

    Raises:
        NoSuchRequestError: there is no request of this id.
        CancellingError: the request is being cancelled.
        NothingToRetryError: the request ended with nothing failed or missing, or was only counted.
        TooManyOrdersError: too many orders wait.
        StoreError: storage failed; call again.
    """
    row = _ordered(runtime, request, scope)
    for _ in range(_LONGEST_LINE):
        if not row.state.ended:
            request_operations.wake(runtime, row.id)
            return row
        if row.state in (RequestState.COMPLETE, RequestState.PREVIEWED):
            if row.retry_of:
                return row  # the line has come to its end
            raise NothingToRetryError(f"request {row.id} is {row.state.value}: nothing failed")
        if not row.retried_as:
            row = _named(runtime, row)
        try:
            row = request_operations.load(runtime, row.retried_as)
        except request_operations.NoSuchRequestError:
            return _again(runtime, row)
    raise NothingToRetryError(f"request {request} was tried again too often; submit it again")


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A request that has failures of a scope, and which tasks they are."""

    row: RequestRow
    tasks: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Hold all requests that a scope reaches.

    The `running` ones try again themselves; for each that has `ended` another request is made.
    `more` is set when further requests have ended with such failures.
    """

    running: tuple[Reached, ...] = ()
    ended: tuple[Reached, ...] = ()
    more: bool = False

    @property
    def tasks(self) -> int:
        """The number of tasks that have failed so, each counted once."""
        return len(frozenset().union(*(one.tasks for one in (*self.running, *self.ended))))


def reach(runtime: Runtime, scope: Scope, since: float) -> Reach:
    """Find the requests that have failures of a scope.

    These are the running ones, and of the latest `LOOKED_AT` requests those that have ended after
    `since`, at most `MOST_ENDED`. Requests are left out if somebody cancelled them, if they are
    already being tried again, or if they run and are to fail when anything is missing. Raises
    StoreError.
    """
    running: list[Reached] = []
    for name in RequestTable(runtime.store).live():
        row = request_operations.load(runtime, name)
        goes_on = row.state is RequestState.RUNNING and not row.retry_orders
        if goes_on and request_operations.document_of(row).on_missing != "fail":
            running += _reached(runtime, row, scope)
    ended: list[Reached] = []
    for row in request_operations.list_requests(runtime, limit=LOOKED_AT):
        lacks = row.state in (RequestState.GAPS, RequestState.FAILED)
        if lacks and row.ended >= since and not row.retried_as:
            ended += _reached(runtime, row, scope)
            if len(ended) > MOST_ENDED:
                break
    return Reach(
        running=tuple(running), ended=tuple(ended[:MOST_ENDED]), more=len(ended) > MOST_ENDED
    )


def _reached(runtime: Runtime, row: RequestRow, scope: Scope) -> Iterator[Reached]:
    if not any(count.failed for count in row.phases.values()):
        return
    interests = request_operations.interests(runtime, row.id)
    tasks = frozenset(covered(runtime.tasks, interests, scope))
    if tasks:
        yield Reached(row=row, tasks=tasks)


def _ordered(runtime: Runtime, request: str, scope: Scope) -> RequestRow:
    def change(row: RequestRow) -> RequestRow:
        if row.state is RequestState.CANCELLING:
            raise CancellingError(
                f"request {row.id} is being cancelled; when that is over, another request can make "
                "what is left"
            )
        if row.state.ended or str(scope) in row.retry_orders:
            return row
        if len(row.retry_orders) >= MOST_ORDERS:
            raise TooManyOrdersError(
                f"{MOST_ORDERS} orders to request {row.id} wait already; retry all of it instead"
            )
        return replace(row, retry_orders=(*row.retry_orders, str(scope)), retried=True)

    return request_operations.change_request(runtime, request, change)


def _named(runtime: Runtime, row: RequestRow) -> RequestRow:
    """Name the request that tries an ended one again, before that request is made.

    Two calls at the same time, or a second call after a crash, so lead to one request.
    """
    name = f"{row.id[:23]}-{new_id(runtime.random)}"

    def change(found: RequestRow) -> RequestRow:
        return found if found.retried_as else replace(found, retried_as=name)

    return request_operations.change_request(runtime, row.id, change)


def _again(runtime: Runtime, row: RequestRow) -> RequestRow:
    found = request_operations.load(runtime, row.id)
    document = request_operations.repeated(found, request_operations.document_of(found))
    request_operations.submit(
        runtime,
        row.owner,
        document,
        request_id=row.retried_as,
        retry_of=row.id,
        group=found.group,
    )
    return request_operations.load(runtime, row.retried_as)
