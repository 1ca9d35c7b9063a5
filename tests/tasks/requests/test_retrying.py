"""Whom an order to try again reaches, and which request carries it out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from tasks.bag import task_table, transitions
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.request.document import dump_request
from tasks.requests import request_operations, request_table, retrying
from tasks.requests.request_table import PhaseCount, RequestRow
from tasks.requests.retrying import NothingToRetryError, Scope
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tests.service_manager.workbench import collect, document

BAD, LOST = Category.BAD_IMAGE_FORMAT, Category.DOWNLOAD_FAILED
DONE, FAILED, GAP = TaskOutcome.DONE, TaskOutcome.FAILED, TaskOutcome.GAP
SUPERSEDED = TaskOutcome.SUPERSEDED
KEY = collect("a").key
ALL = Scope()


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({}, "all"),
        ({"category": BAD.value}, f"category|{BAD.value}"),
        ({"task": KEY}, f"task|{KEY}"),
        ({"task_class": "collection P|6"}, "class|collection P|6"),
    ],
)
def test_a_scope_is_stored_as_text(named: Mapping[str, str], text: str) -> None:
    scope = Scope.of(**named)
    assert str(scope) == text
    assert Scope.parse(text) == scope
    assert Scope(category=BAD).category is Scope.of(category=BAD.value).category


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ({"category": BAD.value, "task": KEY}, "^name a category, a class or a task, one of them$"),
        ({"category": BAD.value, "task_class": "c"}, "one of them"),
        ({"task": KEY, "task_class": "c"}, "one of them"),
        ({"task": "xyz"}, "^'xyz' is not a task key; a key has 64 hexadecimal digits$"),
        (
            {"category": "busy"},
            "^there is no category 'busy'; there are: bad image format, .*, worker lost$",
        ),
    ],
)
def test_what_is_no_scope_is_refused_with_what_to_name(
    named: Mapping[str, str], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Scope.of(**named)


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        (Scope(), {"failed", "failed of b"}),
        (Scope(category=BAD), {"failed", "gap"}),
        (Scope(category=LOST), set()),
        (Scope(task=KEY), {"failed", "gap", "superseded"}),
        (Scope(task_class="class"), {"failed", "failed of b"}),
    ],
)
def test_a_scope_covers_failures_alone(scope: Scope, covered: set[str]) -> None:
    """One task's gap, and what was made in its place, too."""

    def interest(outcome: TaskOutcome | None, key: str = KEY) -> Interest:
        return Interest(request="r", key=key, phase=Phase.COLLECTION, outcome=outcome, category=BAD)

    interests = {
        "none yet": interest(None),
        "done": interest(DONE),
        "failed": interest(FAILED),
        "failed of b": replace(interest(FAILED, "b"), category=None),
        "gap": interest(GAP),
        "superseded": interest(SUPERSEDED),
    }
    assert {name for name, one in interests.items() if scope.covers(one)} == covered


@dataclass
class Requests:
    """Requests in the tables, each as if its manager had written it."""

    runtime: Runtime = field(init=False)

    def __post_init__(self) -> None:
        self.runtime = memory_runtime(ManualClock())

    def put(self, name: str, state: RequestState, *failed: str, **more: object) -> RequestRow:
        """A request in which these granules failed."""
        missing = more.pop("on_missing", "skip")
        now = self.runtime.clock.now()
        row = RequestRow(
            **{  # type: ignore[arg-type]
                "id": name,
                "owner": "o",
                "state": state,
                "submitted": now,
                "ended": now if state.ended else 0.0,
                "title": name,
                "document": dump_request(document(name, on_missing=missing)),
                "phases": {Phase.COLLECTION: PhaseCount(total=3, failed=len(failed))},
                **more,
            }
        )
        operations = request_table.insert_request(row)
        self.runtime.store.transact(request_table.TABLE, request_table.PARTITION, operations)
        for granule in failed:
            spec = collect(granule)
            interest = Interest(
                request=name, key=spec.key, phase=spec.phase, outcome=FAILED, category=BAD
            )
            if self.runtime.tasks.task(spec.key) is None:
                change = transitions.create(spec, interest, 0)
                self.runtime.tasks.transact(spec.key[0], change.operations)
            self.runtime.tasks.transact(spec.key[0], [task_table.put_interest(interest)])
        self.runtime.clock.sleep(1.0)
        return request_operations.load(self.runtime, name)

    def retry(self, name: str, scope: Scope = ALL) -> RequestRow:
        return retrying.retry(self.runtime, name, scope)

    def row(self, name: str) -> RequestRow:
        return request_operations.load(self.runtime, name)

    def reach(self, scope: Scope = ALL, since: float = 0.0) -> tuple[list[str], list[str]]:
        found = retrying.reach(self.runtime, scope, since)
        return sorted(one.row.id for one in found.running), [one.row.id for one in found.ended]


@pytest.fixture
def requests() -> Requests:
    return Requests()


def test_a_running_request_is_ordered_once_and_its_manager_is_woken(requests: Requests) -> None:
    requests.put("r", RequestState.RUNNING, "a")
    for _ in range(2):
        row = requests.retry("r", Scope(category=BAD))
        assert row == requests.row("r")
        assert row.retry_orders == (f"category|{BAD.value}",)
        assert row.retried
        assert [name for name, _ in requests.runtime.queue.receive()] == ["r"]
        assert requests.runtime.wakeups.drain()
    assert requests.retry("r").retry_orders == (f"category|{BAD.value}", "all")


def test_as_many_orders_wait_as_may_and_no_more(requests: Requests) -> None:
    orders = tuple(f"task|{number:064x}" for number in range(retrying.MOST_ORDERS - 1))
    requests.put("r", RequestState.RUNNING, "a", retry_orders=orders)
    assert requests.retry("r").retry_orders == (*orders, "all")
    with pytest.raises(
        retrying.TooManyOrdersError,
        match="50 orders to request r wait already",
    ):
        requests.retry("r", Scope(task=KEY))
    assert requests.retry("r").retry_orders == (*orders, "all")  # that one waits already


def test_a_request_that_is_being_cancelled_is_not_tried_again(requests: Requests) -> None:
    requests.put("r", RequestState.CANCELLING, "a")
    with pytest.raises(retrying.CancellingError, match="request r is being cancelled"):
        requests.retry("r")


@pytest.mark.parametrize("state", [RequestState.COMPLETE, RequestState.PREVIEWED])
def test_what_did_not_fail_is_not_tried_again(requests: Requests, state: RequestState) -> None:
    requests.put("r", state)
    with pytest.raises(NothingToRetryError, match=f"^request r is {state.value}: nothing failed$"):
        requests.retry("r")


@pytest.mark.parametrize("state", [RequestState.GAPS, RequestState.CANCELLED])
def test_an_ended_request_is_tried_again_by_one_that_is_linked_with_it(
    requests: Requests, state: RequestState
) -> None:
    requests.put("r", state, "a", labels=("of now",))
    again = requests.retry("r")
    assert (again.state, again.owner, again.retry_of) == (RequestState.SUBMITTED, "o", "r")
    assert (again.title, again.labels) == ("r", ("of now",))
    assert requests.row("r").retried_as == again.id
    assert again.id.startswith("r-")
    assert requests.retry("r").id == again.id


def test_two_calls_at_the_same_moment_lead_to_one_request(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call runs between the first one's reading of the row and its write."""
    requests.put("r", RequestState.GAPS, "a")
    change_request, second = request_operations.change_request, list[str]()

    def late(runtime: Runtime, name: str, change: Callable[[RequestRow], RequestRow]) -> RequestRow:
        found = requests.row(name)
        if found.retry_of == "" and not found.retried_as and change(found).retried_as:
            monkeypatch.undo()
            second.append(requests.retry("r").id)
        return change_request(runtime, name, change)

    monkeypatch.setattr(request_operations, "change_request", late)
    first = requests.retry("r").id
    assert second == [first]
    made = request_operations.list_requests(requests.runtime, limit=9)
    assert sorted(row.id for row in made) == sorted(["r", first])


def test_a_long_id_leaves_room_for_the_name_of_its_retry(requests: Requests) -> None:
    requests.put("r" * 40, RequestState.FAILED, "a")
    again = requests.retry("r" * 40).id
    assert again.startswith("r" * 23 + "-")
    assert len(again) <= 40


def test_of_a_line_of_retries_the_latest_is_tried_again(requests: Requests) -> None:
    requests.put("1", RequestState.GAPS, "a", retried_as="2")
    requests.put("2", RequestState.GAPS, "a", retry_of="1", retried_as="3")
    last = requests.put("3", RequestState.COMPLETE, retry_of="2")
    assert requests.retry("1") == last


def test_a_line_of_retries_has_an_end(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "_LONGEST_LINE", 3)
    for number in range(1, 5):
        requests.put(str(number), RequestState.GAPS, "a", retried_as=str(number + 1))
    with pytest.raises(NothingToRetryError, match="request 1 was tried again too often"):
        requests.retry("1")
    assert requests.retry("3").retry_of == "4"


# --- all requests that a scope reaches ---


def test_all_that_run_and_the_latest_that_ended_with_such_failures_are_reached(
    requests: Requests,
) -> None:
    requests.put("early", RequestState.GAPS, "a")
    since = requests.runtime.clock.now()
    requests.put("gaps", RequestState.GAPS, "a", "b")
    requests.put("failed", RequestState.FAILED, "b")
    requests.put("cancelled", RequestState.CANCELLED, "b")
    requests.put("complete", RequestState.COMPLETE)
    requests.put("retried", RequestState.GAPS, "b", retried_as="x")
    requests.put("runs", RequestState.RUNNING, "a", "c")
    requests.put("runs well", RequestState.RUNNING)
    requests.put("planned", RequestState.PLANNING)
    requests.put("ordered", RequestState.RUNNING, "a", retry_orders=("all",))
    requests.put("fails", RequestState.RUNNING, "a", on_missing="fail")
    assert requests.reach(since=since) == (["runs"], ["failed", "gaps"])
    assert requests.reach(Scope(task=KEY), since) == (["runs"], ["gaps"])
    assert requests.reach(Scope(category=LOST), since) == ([], [])
    assert requests.reach() == (["runs"], ["failed", "gaps", "early"])
    found = retrying.reach(requests.runtime, Scope(), since)
    assert found.tasks == 3
    assert not found.more
    (runs,) = found.running
    assert runs.tasks == {collect("a").key, collect("c").key}


def test_a_task_class_reaches_the_tasks_of_that_class(requests: Requests) -> None:
    requests.put("r", RequestState.RUNNING, "a", "b")
    interest = Interest(
        request="r", key=collect("gone").key, phase=Phase.COLLECTION, outcome=FAILED
    )
    requests.runtime.tasks.transact(interest.key[0], [task_table.put_interest(interest)])
    task = requests.runtime.tasks.task(KEY)
    assert task is not None
    other = task_table.replace_task(replace(task, task_class="another"), task.etag)
    requests.runtime.tasks.transact(KEY[0], [other])

    def tasks(name: str) -> set[str]:
        reached = retrying.reach(requests.runtime, Scope(task_class=name), 0.0)
        return {key for one in reached.running for key in one.tasks}

    assert tasks("another") == {KEY}
    assert tasks(task.task_class) == {collect("b").key}
    assert tasks("of none") == set()


def test_of_very_many_ended_requests_the_latest_are_reached(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "MOST_ENDED", 2)
    for number in range(3):
        requests.put(str(number), RequestState.GAPS, "a")
    found = retrying.reach(requests.runtime, Scope(), 0.0)
    assert ([one.row.id for one in found.ended], found.more) == (["2", "1"], True)
    monkeypatch.setattr(retrying, "LOOKED_AT", 2)
    found = retrying.reach(requests.runtime, Scope(), 0.0)
    assert ([one.row.id for one in found.ended], found.more) == (["2", "1"], False)
    monkeypatch.setattr(retrying, "LOOKED_AT", 1)
    assert requests.reach() == ([], ["2"])
