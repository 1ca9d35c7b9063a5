"""Sends spans to an OpenTelemetry collector, by the SDK of OpenTelemetry (the extra `telemetry`).

It is off unless one of the standard variables names a collector. Those variables also say what
share of the traces is kept (`OTEL_TRACES_SAMPLER`) and which headers go along.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tasks.secret_settings import COLLECTOR_HEADERS
from tasks.service import tracing
from tasks.service.tracing import Span
from tasks.settings import WrongSettingError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SECOND = 10**9  # nanoseconds
_ENOUGH = 5000  # milliseconds in which the last spans are sent


@dataclass(frozen=True, kw_only=True)
class Collector:
    """Whether spans are sent, and the headers to send along, which may hold a secret."""

    named: bool
    headers: str = field(default="", repr=False)


def read_collector() -> Collector:
    """Read the environment, and take the headers out of it, which children would have otherwise."""
    named = any(os.environ.get(name) for name in ENDPOINTS)
    given = [os.environ.pop(name, "") for name in COLLECTOR_HEADERS]
    return Collector(named=named, headers=next(filter(None, given), ""))


def start(collector: Collector, process: str, instance: str = "") -> Callable[[], None]:
    """Send this process's spans from now on, if a collector is named; return how to end that.

    Call it after forking: it starts a thread.

    Raises:
        WrongSettingError: a collector is named and the extra `telemetry` is not installed.
    """
    if not collector.named:
        return lambda: None
    try:
        # Only where it is used: it takes a quarter of a second.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.util.re import parse_env_headers
    except ImportError:
        raise WrongSettingError(
            f"{ENDPOINTS[1]} names a collector, and the SDK of OpenTelemetry is not installed.",
            "Install swathmill[telemetry], or unset it.",
        ) from None

    headers = parse_env_headers(collector.headers, liberal=True)
    return send_to(OTLPSpanExporter(headers=headers), process, instance)


def send_to(exporter: "SpanExporter", process: str, instance: str = "") -> Callable[[], None]:
    """Give spans to an exporter, in batches; return how to end that, which sends the last ones."""
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.sdk.trace.sampling import Decision
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        SpanContext,
        StatusCode,
        TraceFlags,
        set_span_in_context,
    )

    class Given(IdGenerator):
        """Gives the ids of the span that this thread records."""

        def __init__(self) -> None:
            self.of = threading.local()

        def generate_trace_id(self) -> int:
            return int(self.of.span.trace, 16)

        def generate_span_id(self) -> int:
            return int(self.of.span.id, 16)

    ids = Given()
    names: Mapping[str, str] = {"service.name": f"swathmill-{process}"}
    if instance:
        names = {**names, "service.instance.id": instance}
    provider = TracerProvider(
        resource=Resource.create(names), id_generator=ids, shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("swathmill")

    def context(trace: str, span: str) -> SpanContext:
        # Each process asks the sampler the same: it decides by the trace's id.
        kept = provider.sampler.should_sample(None, int(trace, 16), "request").decision
        all_of_it = kept is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags.SAMPLED if all_of_it else TraceFlags.DEFAULT
        return SpanContext(int(trace, 16), int(span, 16), True, TraceFlags(flags))

    def record(span: Span) -> None:
        ids.of.span = span
        above = Context()
        if span.parent:
            above = set_span_in_context(NonRecordingSpan(context(span.trace, span.parent)), above)
        link = span.link
        made = tracer.start_span(
            span.name,
            context=above,
            start_time=int(span.began * _SECOND),
            attributes=span.attributes,
            links=[Link(context(link.trace, link.id))] if link else (),
        )
        if span.failure:
            made.set_status(StatusCode.ERROR, span.failure)
        made.end(int(max(span.began, span.ended) * _SECOND))

    tracing.tell(record)

    def stop() -> None:
        tracing.forget(record)
        provider.force_flush(_ENOUGH)
        provider.shutdown()

    return stop
