"""Notices of machines that are to be taken away: whose, which, and how long they leave."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from tasks.service.eviction import MARGIN, Event, EvictionWatch, grace_of
from tests.waiting import until

DATE = "Mon, 07 Sep 2026 10:00:00 GMT"


def event(kind: str = "Preempt", *, at: str = "10:00:30", machine: str = "vm_3") -> Event:
    not_before = f"Mon, 07 Sep 2026 {at} GMT" if at else ""
    return Event.model_validate(
        {"EventId": "1", "EventType": kind, "Resources": [machine], "NotBefore": not_before}
    )


def test_attempts_have_until_some_time_before_the_machine_goes() -> None:
    assert grace_of([event()], "vm_3", DATE) == 30 - MARGIN
    assert grace_of([event("Terminate", at="10:10:00")], "vm_3", DATE) == 600 - MARGIN
    assert grace_of([event(at="10:10:00"), event()], "vm_3", DATE) == 30 - MARGIN


@pytest.mark.parametrize("at", ["", "10:00:10", "09:59:00", "noon"])
def test_what_has_begun_or_is_about_to_leaves_no_time(at: str) -> None:
    assert grace_of([event(at=at)], "vm_3", DATE) == 0.0


def test_without_the_time_of_the_answer_no_time_is_left() -> None:
    """The clock of this machine may be wrong, so it is not asked."""
    assert grace_of([event()], "vm_3", "") == 0.0


def test_events_of_other_machines_and_other_events_end_nothing() -> None:
    some = [event(machine="vm_7"), event("Freeze"), event("Reboot")]
    assert grace_of(some, "vm_3", DATE) is None
    assert grace_of([], "vm_3", DATE) is None


class Azure:
    """Instance metadata: away at first, then strange, then it takes the machine."""

    def __init__(self) -> None:
        self.answers: Iterator[httpx.Response] = iter(
            [
                httpx.Response(500),
                httpx.Response(200, text="vm_3"),
                httpx.Response(200, text="what"),
                httpx.Response(200, json={"DocumentIncarnation": 1, "Events": []}),
            ]
        )
        self.last = {"EventType": "Preempt", "Resources": ["vm_3"], "NotBefore": ""}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["Metadata"] == "true"
        return next(self.answers, httpx.Response(200, json={"Events": [self.last]}))


def test_it_asks_until_it_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    own, transport = httpx.Client, httpx.MockTransport(Azure())
    monkeypatch.setattr(httpx, "Client", lambda **more: own(transport=transport, **more))
    told: list[float] = []
    watch = EvictionWatch("http://metadata.example/metadata", told.append, every=0.01)
    watch.start()
    watch.join(20)
    assert not watch.is_alive()
    assert told == [0.0]


def test_it_stops_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def never(_: httpx.Request) -> httpx.Response:
        asked.set()
        return httpx.Response(200, text='{"Events": []}')

    own, transport = httpx.Client, httpx.MockTransport(never)
    monkeypatch.setattr(httpx, "Client", lambda **more: own(transport=transport, **more))
    watch = EvictionWatch("http://metadata.example/metadata", lambda _: None)
    watch.start()
    until(asked.is_set, 10, "it asks")
    watch.stop()
    watch.join(10)
    assert not watch.is_alive()
