"""What operators do: asked before, done once, audited, and refused to everybody else."""

import datetime as dt
import re
from dataclasses import replace

import httpx
import pytest

from portal.operations import actions
from portal.operations.actions import Action, Order
from portal.serving.access import audited
from portal.serving.problems import BadCallError, NotFoundError
from tasks.bag import workers
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.bag.workers import Ask
from tasks.operators import audit, manager_rows, restrictions
from tasks.operators.manager_rows import ManagerRow, PhaseQueue
from tasks.operators.restrictions import Kind, Restriction
from tasks.requests import request_operations
from tasks.requests.request_table import PhaseCount
from tests.portal.requests.test_retries import failed
from tests.portal.scripted import (
    LivePortal,
    put_executions,
    put_running_task,
    put_worker,
    set_row,
)
from tests.portal.submissions import submitted

OPERATOR = ("op@example.org", "operator")


@pytest.fixture
def running(runtime: Runtime) -> str:
    """A task that runs on `worker-1`, as its worker says; returns its key."""
    key = put_running_task(runtime, submitted(runtime), "A.hdf", "worker-1")
    task = runtime.tasks.task(key)
    assert task is not None
    attempt = workers.RunningAttempt(
        key=key,
        claim=task.claim,
        started_ago=5.0,
        phase=task.phase,
        task_class=task.task_class,
    )
    now = runtime.clock.now()
    put_worker(
        runtime,
        workers.WorkerRow(
            name="worker-1", host="node", slots=2, started=1.0, beat_at=now, attempts=(attempt,)
        ),
    )
    return key


def act(client: httpx.Client, action: str, subject: str, value: str = "") -> httpx.Response:
    """Ask first, as the page does, and then confirm with what the page would send."""
    named = {"action": action, "subject": subject, "value": value}
    asked = client.get("/operations/act", params=named)
    if asked.status_code != 200:
        return asked
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked.text))
    assert fields == named
    return client.post("/operations/act", data={**fields, "reason": "to see"})


def worker(runtime: Runtime) -> workers.WorkerRow:
    (found,) = workers.list_workers(runtime.store)
    return found


@pytest.mark.usefixtures("running")
def test_a_worker_is_drained_and_released(portal: LivePortal, runtime: Runtime) -> None:
    with portal.browser(*OPERATOR) as client:
        asked = client.get("/operations/act?action=drain+worker&subject=worker-1").text
        assert "will finish: 1 now" in asked
        assert "No other worker takes attempts: all work stops." in asked
        assert worker(runtime).asked is Ask.NONE, "nothing happens before it is confirmed"
        assert list(audit.entries(runtime.store)) == []
        done = act(client, "drain worker", "worker-1").text
        assert worker(runtime).asked is Ask.DRAIN
        assert worker(runtime).asked_why == "Drained by op@example.org: to see."
        act(client, "release worker", "worker-1")
        assert worker(runtime).asked is Ask.RELEASE
        csv = client.get("/operations/actions.csv").text.splitlines()
    assert "drain worker" in done
    assert "to see" in done
    assert csv[0] == "at,who,action,subject,reason,result"
    assert [line.split(",")[1:5] for line in csv[1:]] == [
        ["op@example.org", "release worker", "worker-1", "to see"],
        ["op@example.org", "drain worker", "worker-1", "to see"],
    ]


def test_an_attempt_is_killed_and_its_task_handed_back(
    portal: LivePortal, runtime: Runtime, running: str
) -> None:
    with portal.browser(*OPERATOR) as client:
        assert f"subject={running}" in client.get("/operations").text
        assert act(client, "kill attempt", running).status_code == 200
        assert act(client, "kill attempt", "0" * 64).status_code == 404
        audited = client.get("/operations/actions").text
        assert f'<a class="mono" href="/tasks/{running}">{running[-12:]}</a>' in audited
    (claim,) = worker(runtime).moves
    (attempt,) = worker(runtime).attempts
    assert claim == attempt.claim
    assert worker(runtime).movers == ((claim, OPERATOR[0]),)
    assert worker(runtime).orders == ()


def test_the_task_s_own_attempt_is_killed_among_others(
    portal: LivePortal, runtime: Runtime, running: str
) -> None:
    (mine,) = worker(runtime).attempts
    other = replace(mine, key="0" * 64, claim="another")
    put_worker(runtime, replace(worker(runtime), attempts=(other, mine)))
    with portal.browser(*OPERATOR) as client:
        assert act(client, "kill attempt", running).status_code == 200
    assert worker(runtime).moves == (mine.claim,)


@pytest.mark.usefixtures("running")
def test_work_goes_on_where_another_worker_takes_attempts(
    portal: LivePortal, runtime: Runtime
) -> None:
    other = replace(worker(runtime), name="worker-2", attempts=())
    stops = "No other worker takes attempts: all work stops."
    with portal.browser(*OPERATOR) as client:
        for changes, alone in (
            ({}, False),
            ({"draining": True}, True),
            ({"hold": workers.Hold.DRAINED}, True),
        ):
            put_worker(runtime, replace(other, **changes))
            asked = client.get("/operations/act?action=drain+worker&subject=worker-1").text
            assert (stops in asked) == alone, changes


@pytest.mark.usefixtures("running")
def test_an_owner_s_running_attempts_are_counted(portal: LivePortal) -> None:
    with portal.browser(*OPERATOR) as client:
        for action, subject, count in (
            ("pause owner", "ada@example.org", 1),
            ("pause owner", "bob@example.org", 0),
            ("pause phase", "collection", 1),
            ("pause phase", "reduction", 0),
        ):
            named = {"action": action, "subject": subject}
            asked = client.get("/operations/act", params=named).text
            assert f"Running attempts will finish: {count} now." in asked, named
            assert f"No new attempt of {action.split()[1]} {subject} is started" in asked, named


def test_a_quota_that_is_used_up_already_says_so(portal: LivePortal, runtime: Runtime) -> None:
    now = dt.datetime.fromtimestamp(runtime.clock.now(), dt.UTC)
    put_executions(runtime, now, {None: 900}, duration=4.0, owner="ada@example.org")  # an hour
    more = "requests wait from now on."
    with portal.browser(*OPERATOR) as client:
        for hours, said in (("0.5", True), ("1", True), ("1.5", False)):
            named = {"action": "set quota of owner", "subject": "ada@example.org", "value": hours}
            asked = client.get("/operations/act", params=named).text
            assert "1.00 hours of one slot were used this month." in asked
            assert (more in asked) == said, hours


def test_a_request_is_cancelled_once(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with portal.browser(*OPERATOR) as client:
        assert (
            "ada@example.org"
            in client.get(f"/operations/act?action=cancel+request&subject={name}").text
        )
        assert act(client, "cancel request", name).status_code == 200
        assert act(client, "cancel request", name).status_code == 409
    assert request_operations.load(runtime, name).state is RequestState.CANCELLED


@pytest.mark.usefixtures("running")
def test_phases_and_owners_are_paused_limited_and_resumed(
    portal: LivePortal, runtime: Runtime
) -> None:
    with portal.browser(*OPERATOR) as client:
        asked = client.get("/operations/act?action=pause+phase&subject=collection").text
        assert "will finish: 1 now" in asked
        act(client, "pause phase", "collection")
        act(client, "limit phase", "reduction", "3")
        act(client, "pause owner", "ada@example.org")
        act(client, "set quota of owner", "bob@example.org", "1.5")
        page = client.get("/operations/actions").text
        found = {(one.kind, one.subject): one for one in restrictions.load(runtime.store)}
        assert found[Kind.LIMIT_PHASE, "reduction"].value == 3
        assert found[Kind.QUOTA_OWNER, "bob@example.org"].value == 1.5
        assert found[Kind.PAUSE_OWNER, "ada@example.org"].by == "op@example.org"
        assert "1.5 h, 0.00 used" in page
        for action, subject in (
            ("resume phase", "collection"),
            ("limit phase", "reduction"),
            ("resume owner", "ada@example.org"),
            ("set quota of owner", "bob@example.org"),
        ):
            act(client, action, subject)
    assert restrictions.load(runtime.store) == []
    assert {one.result for one in audit.entries(runtime.store)} == {"set", "lifted"}


def test_a_request_that_operators_keep_waiting_says_so(
    portal: LivePortal, runtime: Runtime
) -> None:
    name, _ = failed(runtime)
    waiting = {Phase.REPROJECTION: PhaseCount(total=2)}
    set_row(runtime, name, phases=waiting)

    def shown(kind: Kind, subject: str, value: float = 1.0) -> str:
        restrictions.put(runtime.store, Restriction(kind=kind, subject=subject, value=value))
        with portal.browser() as client:
            page = client.get(f"/requests/{name}").text
        assert restrictions.lift(runtime.store, runtime.clock, kind, subject)
        return page

    assert "paused the requests of this owner" in shown(Kind.PAUSE_OWNER, "ada@example.org")
    assert "paused the requests of this owner" not in shown(Kind.PAUSE_OWNER, "bob@example.org")
    assert "paused the phase reprojection" in shown(Kind.PAUSE_PHASE, "reprojection")
    assert "paused the phase" not in shown(Kind.PAUSE_PHASE, "collection")
    assert "quota of 0 hours" in shown(Kind.QUOTA_OWNER, "ada@example.org", 0.0)
    assert "quota of" not in shown(Kind.QUOTA_OWNER, "ada@example.org")
    running = {Phase.REPROJECTION: PhaseCount(total=2, running=1)}
    set_row(runtime, name, phases=running)
    assert "paused the requests of this owner" not in shown(Kind.PAUSE_OWNER, "ada@example.org")


@pytest.mark.parametrize(
    ("action", "subject", "value"),
    [
        ("limit owner", "a", "0"),
        ("limit owner", "a", "x"),
        ("limit phase", "a", "1"),
        ("pause phase", "", ""),
        ("pause owner", "", ""),
        ("set quota of owner", "a", "nan"),
        ("set quota of owner", "a", "-1"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    portal: LivePortal, runtime: Runtime, action: str, subject: str, value: str
) -> None:
    named = {"action": action, "subject": subject, "value": value}
    with portal.browser(*OPERATOR) as client:
        assert client.get("/operations/act", params=named).status_code == 400
        answered = client.post("/operations/act", data=named).status_code
    assert answered in (400, 422)
    assert restrictions.load(runtime.store) == []
    results = [one.result for one in audit.entries(runtime.store)]
    assert len(results) == (answered == 400)
    assert all(one.startswith("refused") for one in results)


def test_an_action_that_fails_says_so_in_the_audit(runtime: Runtime) -> None:
    order = Order(action=Action.DRAIN, subject="nobody")
    with pytest.raises(NotFoundError):
        actions.act(runtime, "op", order, "why")
    (entry,) = audit.entries(runtime.store)
    assert (entry.action, entry.subject, entry.reason) == ("drain worker", "nobody", "why")
    assert entry.result == "refused: There is no worker 'nobody'."


def test_an_action_that_was_interrupted_has_no_result(runtime: Runtime) -> None:
    with pytest.raises(KeyboardInterrupt), audited(runtime, "op", "drain", "w", ""):
        raise KeyboardInterrupt
    (entry,) = audit.entries(runtime.store)
    assert entry.result == ""


@pytest.mark.usefixtures("running")
def test_only_operators_act(portal: LivePortal, runtime: Runtime) -> None:
    data = {"action": "drain worker", "subject": "worker-1"}
    pages = (
        "/operations/actions",
        "/operations/actions.csv",
        "/operations/act?action=drain+worker",
    )
    with portal.browser() as client:
        for status in (403, 401):
            assert client.post("/operations/act", data=data).status_code == status
            assert client.post("/operations/retry?category=unknown").status_code == status
            assert [client.get(page).status_code for page in pages] == [status] * 3
            client.cookies.clear()
    assert worker(runtime).asked is Ask.NONE
    assert list(audit.entries(runtime.store)) == []


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("origin", ["https://evil.example", "null", ""])
def test_a_form_of_another_site_does_nothing(
    portal: LivePortal, runtime: Runtime, origin: str
) -> None:
    with portal.browser(*OPERATOR) as client:
        client.headers["Origin"] = origin
        data = {"action": "drain worker", "subject": "worker-1"}
        assert client.post("/operations/act", data=data).status_code == 403
        assert client.post("/operations/retry?category=unknown").status_code == 403
    assert worker(runtime).asked is Ask.NONE
    assert list(audit.entries(runtime.store)) == []


def test_a_retry_of_a_class_touches_that_class_alone(portal: LivePortal, runtime: Runtime) -> None:
    name, key = failed(runtime)
    task = runtime.tasks.task(key)
    assert task is not None
    named = {"class": task.task_class}
    with portal.browser(*OPERATOR) as client:
        asked = client.get("/operations/retry", params=named).text
        other = client.get("/operations/retry?class=reduction+other").text
        done = client.post("/operations/retry", params=named, data={"reason": "mended"}).text
    assert "1 task failed this way" in asked
    assert "There is nothing to try again" in other
    assert "1 failed task in 1 request is tried again" in done
    assert request_operations.load(runtime, name).retry_orders == (f"class|{task.task_class}",)
    (entry,) = audit.entries(runtime.store)
    assert (entry.action, entry.subject, entry.reason) == ("retry class", task.task_class, "mended")
    assert entry.result == f"1 tasks tried again by 1 requests: {name}"


@pytest.mark.parametrize(
    ("method", "path", "body", "action"),
    [
        ("POST", "/cancel", None, "cancel request"),
        ("PATCH", "", {"labels": ["thesis"]}, "change request"),
        ("DELETE", "/links", None, "end links to request"),
    ],
)
def test_what_operators_do_with_others_requests_is_audited(
    portal: LivePortal,
    runtime: Runtime,
    method: str,
    path: str,
    body: dict[str, object] | None,
    action: str,
) -> None:
    mine, theirs = submitted(runtime), submitted(runtime)
    with portal.client() as client:
        assert client.request(method, f"/api/requests/{mine}{path}", json=body).is_success
    with portal.client(*OPERATOR) as client:
        assert client.request(method, f"/api/requests/{theirs}{path}", json=body).is_success
    (entry,) = audit.entries(runtime.store)
    assert (entry.who, entry.action) == ("op@example.org", action)
    assert entry.subject.startswith(theirs)


def test_programs_act_as_pages_do(portal: LivePortal, runtime: Runtime) -> None:
    order = {"action": "pause phase", "subject": "reduction", "reason": "a program's"}
    with portal.client() as scientist, portal.client(*OPERATOR) as client:
        assert scientist.post("/api/operations/actions", json=order).status_code == 403
        assert scientist.get("/api/operations/actions").status_code == 403
        answer = client.post("/api/operations/actions", json=order)
        assert (answer.status_code, answer.json()["result"]) == (202, "set")
        wrong = client.post("/api/operations/actions", json={**order, "action": "explode"})
        assert wrong.status_code == 422
        unknown = client.post("/api/operations/actions", json={**order, "subject": "warping"})
        assert unknown.status_code == 400
        listed = client.get("/api/operations/actions").json()
    assert [(one["who"], one["subject"], one["result"]) for one in listed] == [
        ("op@example.org", "warping", "refused: There is no phase 'warping'."),
        ("op@example.org", "reduction", "set"),
    ]
    (found,) = restrictions.load(runtime.store)
    assert (found.kind, found.reason) == (Kind.PAUSE_PHASE, "a program's")


def test_a_program_is_told_what_an_action_takes(portal: LivePortal) -> None:
    def told(**call: object) -> str:
        answer = client.post("/api/operations/actions", json=call)
        assert answer.status_code == 422
        return str(answer.json()["detail"])

    with portal.client(role="operator") as client:
        assert told(action="limit owners", subject="ada") == (
            "'limit owners' is not a choice here. Did you mean limit owner? Choose drain worker, "
            "release worker, kill attempt, cancel request, pause phase, resume phase, pause owner, "
            "resume owner, limit phase, limit owner, set quota of owner, set quota of package, "
            "set quota of all, end sessions of owner or end operator rights of owner."
        )
        assert told(action="limit owner", subject="ada", value=1) == (
            '1 is not a text that fits here. Write it in quotes: "1".'
        )


def test_an_owner_of_another_spelling_is_refused_with_the_right_one(
    portal: LivePortal, runtime: Runtime
) -> None:
    submitted(runtime, "Ada@example.org")
    with portal.browser(*OPERATOR) as client:
        wrong = client.get("/operations/act?action=pause+owner&subject=ADA@example.org")
        assert (wrong.status_code, act(client, "pause owner", "ADA@example.org").status_code) == (
            400,
            400,
        )
        new = client.get("/operations/act?action=set+quota+of+owner&subject=bob@example.org").text
        assert act(client, "pause owner", "Ada@example.org").status_code == 200
    assert "Name Ada@example.org." in wrong.text
    assert "This owner has no request yet." in new
    (found,) = restrictions.load(runtime.store)
    assert found.subject == "Ada@example.org"


@pytest.mark.usefixtures("running")
def test_each_action_says_how_many_tasks_it_touches(portal: LivePortal, runtime: Runtime) -> None:
    name, _ = failed(runtime)
    counts = {Phase.REPROJECTION: PhaseCount(total=2000, done=500, failed=1)}
    set_row(runtime, name, phases=counts)
    queue = PhaseQueue(phase=Phase.REDUCTION, ready=1234)
    row = ManagerRow(
        name="manager",
        host="a",
        version="1",
        started=1.0,
        beat_at=runtime.clock.now(),
        acts=True,
        queues=(queue,),
    )
    manager_rows.put(runtime.store, row)

    def asked(action: str, subject: str, value: str = "") -> str:
        named = {"action": action, "subject": subject, "value": value}
        return client.get("/operations/act", params=named).text

    (attempt,) = worker(runtime).attempts
    with portal.browser(*OPERATOR) as client:
        for action in ("pause phase", "resume phase", "limit phase"):
            assert "ready and wait: 1,234" in asked(action, "reduction", "3" * (action[0] == "l"))
        for action, what in (("limit owner", "limit"), ("set quota of owner", "quota")):
            removes = asked(action, "ada@example.org")
            assert f"No number is given: the {what} of owner ada@example.org is removed." in removes
            assert f">Remove {what}</button>" in removes
            assert f">{action.capitalize()}</button>" in asked(action, "ada@example.org", "3")
        for action in ("pause owner", "resume owner", "limit owner", "set quota of owner"):
            assert "2 requests have not ended, with 1,499 unfinished tasks" in asked(
                action, "ada@example.org"
            )
        assert "1,499 unfinished tasks are withdrawn" in asked("cancel request", name)
        assert "One attempt is killed" in asked("kill attempt", attempt.key)
        assert "in all its 2 slots" in asked("release worker", "worker-1")


@pytest.mark.parametrize("action", [Action.LIMIT_OWNER, Action.QUOTA_OWNER])
def test_a_limit_and_a_quota_have_bounds(action: Action) -> None:
    most = actions._LARGEST
    assert Order(action=action, subject="x", value=str(most)).number == 1_000_000
    with pytest.raises(BadCallError, match=f"The value is '{most + 1}'") as said:
        _ = Order(action=action, subject="x", value=str(most + 1)).number
    assert "to 1,000,000, or nothing to lift it" in said.value.remedy
