"""Spans have ids that every process computes alike, and reach a collector."""

import sys
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tasks.secret_settings import COLLECTOR_HEADERS
from tasks.service import telemetry, tracing
from tasks.service.tracing import Link, Span, root_of, trace_of
from tasks.settings import WrongSettingError

REQUEST = "261124-0123456789"
WHOLE = Span(name="request", trace=trace_of(REQUEST), id=root_of(REQUEST), began=100.0, ended=160.5)


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*telemetry.ENDPOINTS, *COLLECTOR_HEADERS):
        monkeypatch.delenv(name, raising=False)


def sent(record: Callable[[], None]) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    stop = telemetry.send_to(exporter, "worker", "w-1")
    try:
        record()
    finally:
        stop()
    return list(exporter.get_finished_spans())


def ids(span: ReadableSpan) -> tuple[str, str]:
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def test_spans_of_one_request_hang_together_though_nothing_travels() -> None:
    def record() -> None:
        tracing.record_for(
            REQUEST, "plan", 101.0, 102.0, attributes={"swathmill.tasks": 7}, failure="no granules"
        )
        tracing.record(WHOLE)

    part, whole = sent(record)
    assert ids(whole) == (trace_of(REQUEST), root_of(REQUEST))
    assert whole.parent is None
    assert ids(part)[0] == trace_of(REQUEST)
    assert part.parent is not None
    assert f"{part.parent.span_id:016x}" == root_of(REQUEST)
    assert (part.start_time, part.end_time) == (101 * 10**9, 102 * 10**9)
    assert part.attributes == {"swathmill.request": REQUEST, "swathmill.tasks": 7}
    assert (part.status.status_code, part.status.description) == (StatusCode.ERROR, "no granules")
    assert whole.status.status_code is StatusCode.UNSET
    assert part.resource.attributes["service.name"] == "swathmill-worker"
    assert part.resource.attributes["service.instance.id"] == "w-1"


def test_a_link_names_another_trace() -> None:
    link = Link(trace="0" * 31 + "7", id="0" * 15 + "9")
    (span,) = sent(lambda: tracing.record_for(REQUEST, "submit", 1.0, 2.0, link=link))
    (found,) = span.links
    assert (found.context.trace_id, found.context.span_id) == (7, 9)


def test_all_processes_keep_the_same_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    requests = [f"request-{n}" for n in range(40)]

    def root_process() -> None:
        for name in requests:
            tracing.record(
                Span(name="request", trace=trace_of(name), id=root_of(name), began=0.0, ended=1.0)
            )

    def other_process() -> None:
        for name in requests:
            tracing.record_for(name, "attempt", 0.0, 1.0)

    kept = [{ids(span)[0] for span in sent(each)} for each in (root_process, other_process)]
    assert kept[0] == kept[1]
    assert 5 < len(kept[0]) < 35


def test_nothing_is_recorded_after_the_end_or_without_a_collector() -> None:
    exporter = InMemorySpanExporter()
    telemetry.send_to(exporter, "portal")()
    tracing.record(WHOLE)
    assert not exporter.get_finished_spans()
    telemetry.start(telemetry.read_collector(), "portal")()
    assert not tracing.is_on()


def test_headers_of_the_collector_leave_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of others that a worker starts would have them otherwise."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer abc")
    found = telemetry.read_collector()
    assert (found.named, found.headers) == (True, "authorization=Bearer abc")
    assert "abc" not in repr(found)
    assert telemetry.read_collector().headers == ""


def test_without_the_sdk_the_process_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(WrongSettingError, match=r"Install swathmill\[telemetry\]"):
        telemetry.start(telemetry.Collector(named=True), "portal")


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    assert not tracing.is_on()
