"""Each call has an id and a line in the log, and is counted, without what is secret in it."""

import threading

import httpx
import structlog
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from portal.operations.metrics import PortalMetrics
from portal.serving.traffic import HEADER, TRACE, Call, Traffic
from tasks.bag.runtime import Runtime
from tasks.operators.manager_lease import ManagerWatch
from tasks.service import tracing
from tasks.service.memory_runtime import memory_runtime
from tasks.service.tracing import Link, Span, root_of, trace_of
from tasks.storage.clock import ManualClock
from tests.own_loop import run_on_own_loop
from tests.portal.scripted import LivePortal
from tests.portal.submissions import DOCUMENT
from tests.waiting import until


def test_an_answer_bears_the_callers_id_or_a_new_one(portal: LivePortal) -> None:
    with portal.client() as client:
        assert client.get("/livez", headers={HEADER: "trace-0123"}).headers[HEADER] == "trace-0123"
        made = client.get("/livez").headers[HEADER]
        assert len(made) == 32
        odd = client.get("/livez", headers={HEADER: 'x" onload="'}).headers[HEADER]
        assert len(odd) == 32


def test_the_log_names_routes_and_no_tokens(portal: LivePortal) -> None:
    with structlog.testing.capture_logs() as lines, portal.client() as client:
        client.get("/sign-in?token=secret-token")
        client.get("/requests/none")
        client.get("/nowhere/secret-token")
        # The line is written when the answer has gone. A browser of another test may still be
        # calling its own portal in this process.
        wanted = {("/requests/{request_id}", 404), ("none", 404)}
        until(lambda: wanted <= {(line.get("route"), line.get("status")) for line in lines})
    assert "/sign-in" in {line.get("route") for line in lines}
    assert "secret-token" not in str(lines)


def test_calls_are_counted_by_route_also_those_that_fail() -> None:
    counted: list[tuple[str, str, int]] = []

    def fails(_request: object) -> PlainTextResponse:
        raise ValueError("oh")

    app = Traffic(
        Starlette(routes=[Route("/things/{name}", fails)]),
        lambda method, route, status, _seconds: counted.append((method, route, status)),
    )
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)

    async def call() -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://portal") as client:
            await client.get("/things/one")
            await client.get("/static/x.css")

    run_on_own_loop(call())
    assert [(method, status) for method, _, status in counted] == [("GET", 500), ("GET", 404)]
    assert counted[1][1] == "/static"


def test_the_portal_tells_of_calls_and_of_the_manager() -> None:
    clock = ManualClock()
    runtime: Runtime = memory_runtime(clock)
    metrics, stopping = PortalMetrics(), threading.Event()
    answers = metrics.probe_answers(ManagerWatch(runtime, 30.0), stopping)
    metrics.count("GET", "/new", 200, 0.02)
    text = answers.metrics().decode()
    assert 'swathmill_portal_calls_total{method="GET",route="/new",status="200"} 1.0' in text
    assert "swathmill_portal_manager_acts 1.0" in text
    clock.sleep(50.0)
    assert "swathmill_portal_manager_acts 0.0" in answers.metrics().decode()
    assert answers.ready() == ""
    stopping.set()
    assert answers.ready() == "it stops"


def test_a_call_goes_on_with_the_callers_trace() -> None:
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    given = Headers({"traceparent": f"00-{trace}-{parent}-01"})
    assert Call.of(given) == Call(id=trace, trace=trace, parent=parent)
    with_name = Headers({"traceparent": f"00-{trace}-{parent}-01", HEADER: "my-own-id"})
    assert Call.of(with_name) == Call(id="my-own-id", trace=trace, parent=parent)
    for wrong in (f"00-{'0' * 32}-{parent}-01", "00-x-y-01", f"00-{trace}-{'0' * 16}-01"):
        made = Call.of(Headers({"traceparent": wrong}))
        assert made.id == made.trace
        assert made.trace != trace
        assert made.parent == ""


def test_a_call_and_its_submission_are_recorded(portal: LivePortal) -> None:
    spans: list[Span] = []
    tracing.tell(spans.append)
    try:
        with portal.client() as client:
            answer = client.post("/api/requests", json=DOCUMENT)
        until(lambda: {"submit"} <= {span.name for span in spans})
        call = next(span for span in spans if span.name == "POST /api/requests")
        submitted = next(span for span in spans if span.name == "submit")
    finally:
        tracing.forget(spans.append)
    request = answer.json()["id"]
    assert answer.headers[TRACE] == trace_of(request) == submitted.trace
    assert submitted.parent == root_of(request)
    assert submitted.link == Link(trace=call.trace, id=call.id)
    assert call.trace == answer.headers[HEADER]
    assert call.attributes["swathmill.request"] == request
    assert call.attributes["http.response.status_code"] == answer.status_code
