"""Trying again what failed, by the API and by pages; who may, and what is refused."""

import datetime as dt

import pytest

from swathmill.client import Client
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.operators import audit
from tasks.request.document import parse_request
from tasks.requests import request_operations, retrying
from tasks.requests.request_table import PhaseCount
from tests.portal.requests.test_api import DOCUMENT
from tests.portal.scripted import LivePortal, put_executions, put_failed_task, set_row


def failed(runtime: Runtime, state: RequestState = RequestState.RUNNING) -> tuple[str, str]:
    """A request with one failure; its id and the task's key."""
    name = request_operations.submit(runtime, "ada@example.org", parse_request(DOCUMENT))
    key = put_failed_task(runtime, name, f"{name}.hdf", (Category.BAD_IMAGE_FORMAT,))
    phases = {Phase.COLLECTION: PhaseCount(total=1, failed=1)}
    set_row(runtime, name, state=state, phases=phases, ended=1e9 if state.ended else 0.0)
    return name, key


@pytest.mark.parametrize(
    ("asked", "order"),
    [
        ({}, "all"),
        ({"category": "bad image format"}, "category|bad image format"),
        ({"task": "KEY"}, "task|KEY"),
    ],
)
def test_a_running_request_is_given_the_order(
    portal: LivePortal, runtime: Runtime, asked: dict[str, str], order: str
) -> None:
    name, key = failed(runtime)
    asked = {what: value.replace("KEY", key) for what, value in asked.items()}
    with portal.client() as client, portal.client("bob@example.org") as other:
        assert other.post(f"/api/requests/{name}/retry", params=asked).status_code == 404
        assert request_operations.load(runtime, name).retry_orders == ()
        for _ in range(2):
            answer = client.post(f"/api/requests/{name}/retry", params=asked)
            assert (answer.status_code, answer.json()["id"]) == (202, name)
    assert request_operations.load(runtime, name).retry_orders == (order.replace("KEY", key),)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"category": "bad luck"}, "bad image format"),
        ({"task": "k"}, "64 hexadecimal"),
        ({"task": "0" * 64, "category": "unknown"}, "one of them"),
    ],
)
def test_a_scope_that_is_none_is_refused_with_what_to_do(
    portal: LivePortal, runtime: Runtime, asked: dict[str, str], said: str
) -> None:
    name, _ = failed(runtime)
    with portal.client() as client:
        answer = client.post(f"/api/requests/{name}/retry", params=asked)
    assert answer.status_code == 400
    assert said in answer.json()["detail"]
    assert not answer.json()["detail"][0].islower()
    assert request_operations.load(runtime, name).retry_orders == ()


def test_an_ended_request_is_tried_again_by_one_other(portal: LivePortal, runtime: Runtime) -> None:
    name, _ = failed(runtime, RequestState.GAPS)
    with portal.client() as client:
        first = client.post(f"/api/requests/{name}/retry").json()
        again = client.post(f"/api/requests/{name}/retry").json()
        old = client.get(f"/api/requests/{name}").json()
    assert first["id"] == again["id"] == old["retried_as"] != name
    assert first["retry_of"] == name
    assert old["state"] == "complete with gaps"
    assert len(list(request_operations.list_requests(runtime))) == 2
    with portal.browser() as browser:
        page = browser.get(f"/requests/{name}").text
        assert f'href="/requests/{first["id"]}"' in page
        assert f'href="/requests/{name}"' in browser.get(f"/requests/{first['id']}").text


def test_what_is_complete_is_not_tried_again(portal: LivePortal, runtime: Runtime) -> None:
    name, _ = failed(runtime, RequestState.COMPLETE)
    with portal.client() as client:
        answer = client.post(f"/api/requests/{name}/retry")
    assert answer.status_code == 400
    assert answer.json()["detail"] == f"Request {name} is complete: nothing failed."


def test_a_request_page_tries_all_a_category_or_a_task_again(
    portal: LivePortal, runtime: Runtime
) -> None:
    name, key = failed(runtime)
    with portal.browser() as client:
        page = client.get(f"/requests/{name}").text
        for action in ("", "?category=bad%20image%20format", f"?task={key}"):
            assert f'action="/requests/{name}/retry{action}"' in page
        shown = client.post(f"/requests/{name}/retry?category=bad%20image%20format")
        assert shown.url.path == f"/requests/{name}"
        assert "Being tried again" in shown.text
        assert "/retry" not in shown.text
    assert request_operations.load(runtime, name).retry_orders == ("category|bad image format",)


def test_an_ended_page_leads_to_the_request_that_tries_again(
    portal: LivePortal, runtime: Runtime
) -> None:
    name, _ = failed(runtime, RequestState.FAILED)
    with portal.browser() as client:
        assert "makes a new request" in client.get(f"/requests/{name}").text
        shown = client.post(f"/requests/{name}/retry")
    assert shown.url.path == f"/requests/{request_operations.load(runtime, name).retried_as}"


def test_operators_try_a_category_again_in_running_and_in_ended_requests(
    portal: LivePortal, runtime: Runtime
) -> None:
    now = runtime.clock.now()
    running = {failed(runtime)[0], failed(runtime)[0]}
    ended, _ = failed(runtime, RequestState.GAPS)
    long_ago, _ = failed(runtime, RequestState.GAPS)
    cancelled, _ = failed(runtime, RequestState.CANCELLED)
    for name, when in ((ended, now - 86_400), (long_ago, now - 30 * 86_400), (cancelled, now)):
        set_row(runtime, name, ended=when)
    path = "/operations/retry?category=bad%20image%20format"
    with portal.client() as client, portal.client(role="operator") as operator:
        assert client.get("/api" + path).status_code == 403
        assert client.post("/api" + path).status_code == 403
        reach = operator.get("/api" + path).json()
        with portal.browser() as scientist, portal.browser(role="operator") as browser:
            assert scientist.get(path).status_code == 403
            assert scientist.post(path).status_code == 403
            asked = browser.get(path).text
        assert request_operations.load(runtime, ended).retried_as == ""
        answer = operator.post("/api" + path)
        again = operator.post("/api" + path).json()
    assert (reach["tasks"], set(reach["running"]), reach["ended"]) == (3, running, [ended])
    for said in (
        "3 tasks failed this way",
        "2 running requests",
        "1 request that ended",
        "Try 3 tasks",
    ):
        assert said in asked
    assert answer.status_code == 202
    made = request_operations.load(runtime, ended).retried_as
    assert (answer.json()["tasks"], answer.json()["made"]) == (3, [made])
    assert set(answer.json()["requests"]) == {*running, made}
    assert request_operations.load(runtime, made).retry_of == ended
    for name in running:
        assert request_operations.load(runtime, name).retry_orders == ("category|bad image format",)
    for name in (long_ago, cancelled):
        assert request_operations.load(runtime, name).retried_as == ""
    assert (again["tasks"], again["requests"]) == (0, [])  # all of it is being tried again


def test_the_operators_page_says_how_many_are_tried_again_or_why_none(
    portal: LivePortal, runtime: Runtime
) -> None:
    name, _ = failed(runtime, RequestState.FAILED)
    set_row(runtime, name, ended=runtime.clock.now())
    with portal.browser(role="operator") as browser:
        none = browser.get("/operations/retry?category=server%20busy").text
        assert "There is nothing to try again" in none
        assert "<button" not in none[none.index("<main") :]
        none = browser.post("/operations/retry?category=server%20busy").text
        assert "Nothing was tried again" in none
        done = browser.post("/operations/retry?category=bad%20image%20format").text
        assert browser.get("/operations/retry?category=bad%20luck").status_code == 400
    made = request_operations.load(runtime, name).retried_as
    assert "1 failed task in 1 request is tried again; 1 of them is a new request" in done
    assert f'href="/requests/{made}"' in done


def test_the_command_line_asks_the_same(portal: LivePortal, runtime: Runtime) -> None:
    name, key = failed(runtime)
    with portal.client() as client:
        token = client.headers["Authorization"].removeprefix("Bearer ")
    assert Client(url=portal.url, token=token).retry(name, task=key).id == name
    assert request_operations.load(runtime, name).retry_orders == (f"task|{key}",)


def test_the_operators_page_has_a_button_for_each_category(
    portal: LivePortal, runtime: Runtime
) -> None:
    today = dt.datetime.fromtimestamp(runtime.clock.now(), dt.UTC)
    put_executions(runtime, today, {None: 2, Category.SERVER_BUSY: 1})
    with portal.browser(role="operator") as client:
        page = client.get("/operations").text
    assert 'href="/operations/retry?category=server%20busy"' in page


def test_a_refused_retry_of_somebody_else_s_request_is_audited_as_such(
    portal: LivePortal, runtime: Runtime
) -> None:
    full, _ = failed(runtime)
    waiting = tuple(f"task|{number:064x}" for number in range(retrying.MOST_ORDERS))
    set_row(runtime, full, retry_orders=waiting)
    with portal.client("op@example.org", "operator") as client:
        assert client.post(f"/api/requests/{full}/retry").status_code == 400
    (record,) = audit.entries(runtime.store)
    assert record.result.startswith("refused: 50 orders to request")
