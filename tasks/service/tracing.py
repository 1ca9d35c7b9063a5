"""Spans: what was done for a request, from when to when. Nobody is told by default.

A span is recorded when it is over, so no context has to travel with messages: the trace's id is a
function of the request's, a span's id one of the request's and its name. Every process computes
them alike. `telemetry` sends spans to an OpenTelemetry collector.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NOTHING: Mapping[str, str | int | float] = MappingProxyType({})


def trace_of(request: str) -> str:
    """Return the id of a request's trace: 32 hexadecimal digits."""
    return hashlib.sha256(request.encode()).hexdigest()[:32]


def span_of(trace: str, *words: str) -> str:
    """Return the id of a span that has these words in its trace: 16 hexadecimal digits."""
    return hashlib.sha256("|".join((trace, *words)).encode()).hexdigest()[:16]


def root_of(request: str) -> str:
    """Return the id of the span of a whole request."""
    return span_of(trace_of(request), "request")


def attempt_of(request: str, key: str, number: int) -> str:
    """Return the id of an attempt's span."""
    return span_of(trace_of(request), "attempt", key, str(number))


@dataclass(frozen=True, kw_only=True)
class Link:
    """Another span that a span belongs with, by ids."""

    trace: str
    id: str


@dataclass(frozen=True, kw_only=True)
class Span:
    """What was done; times in POSIX seconds. `failure` says why it failed, "" that it did not.

    A span without `parent` begins its trace.
    """

    name: str
    trace: str
    id: str
    parent: str = ""
    began: float
    ended: float
    failure: str = ""
    attributes: Mapping[str, str | int | float] = field(default_factory=lambda: _NOTHING)
    link: Link | None = None


Recorder = Callable[[Span], None]
_recorders: list[Recorder] = []


def tell(recorder: Recorder) -> None:
    """Have this process's spans recorded."""
    _recorders.append(recorder)


def forget(recorder: Recorder) -> None:
    """Record no more spans there."""
    _recorders.remove(recorder)


def is_on() -> bool:
    """Return whether anybody is told of spans: else none need be made."""
    return bool(_recorders)


def record(span: Span) -> None:
    """Record a span that is over."""
    for recorder in _recorders:
        recorder(span)


def record_for(
    request: str,
    name: str,
    began: float,
    ended: float,
    *,
    words: tuple[str, ...] = (),
    failure: str = "",
    attributes: Mapping[str, str | int | float] = _NOTHING,
    link: Link | None = None,
) -> None:
    """Record what was done for a request as a whole; `words` tell spans of one name apart."""
    if not is_on():
        return
    trace = trace_of(request)
    record(
        Span(
            name=name,
            trace=trace,
            id=span_of(trace, name, *words),
            parent=root_of(request),
            began=began,
            ended=ended,
            failure=failure,
            attributes={"swathmill.request": request, **attributes},
            link=link,
        )
    )
