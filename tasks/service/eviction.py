"""Whether Azure is about to take this machine away, as its instance metadata says.

Machines at spot prices are told 30 seconds before, machines of a scale set as long before as the
set asks for (Azure, "Scheduled Events for Linux VMs", version 2020-07-01). Each machine of a group
hears of the events of all of them: those count that name this one.
"""

import threading
from collections.abc import Callable, Iterable
from email.utils import parsedate_to_datetime

import httpx
import structlog
from pydantic import BaseModel, Field, ValidationError

EVERY = 5.0
"""Seconds between two questions."""
MARGIN = 15.0
"""Seconds of the notice that are left for handing back, and for storing checkpoints."""

_ENDING = ("Preempt", "Terminate")
_VERSION, _NAME_VERSION = "2020-07-01", "2021-02-01"


class Event(BaseModel):
    """What is to happen to some machines; other fields are of no interest."""

    kind: str = Field(alias="EventType")
    machines: tuple[str, ...] = Field(alias="Resources")
    not_before: str = Field("", alias="NotBefore")


class _Events(BaseModel):
    events: tuple[Event, ...] = Field((), alias="Events")


def grace_of(events: Iterable[Event], machine: str, date: str) -> float | None:
    """Return the seconds that attempts have before a machine ends; None: it does not.

    `date` is the time of day of the answer. That of this machine may be wrong. Without it, or
    where the event has begun, there is no time left.
    """
    own = [one for one in events if one.kind in _ENDING and machine in one.machines]
    return min((_left(one.not_before, date) for one in own), default=None)


def _left(not_before: str, date: str) -> float:
    try:
        notice = parsedate_to_datetime(not_before) - parsedate_to_datetime(date)
    except (TypeError, ValueError):
        return 0.0
    return max(0.0, notice.total_seconds() - MARGIN)


class EvictionWatch(threading.Thread):
    """Asks until this machine is to end; tells it once, with the seconds that attempts have."""

    def __init__(self, metadata: str, told: Callable[[float], None], every: float = EVERY) -> None:
        super().__init__(name="eviction", daemon=True)
        self._metadata = metadata
        self._told = told
        self._every = every
        self._over = threading.Event()

    def run(self) -> None:
        log = structlog.get_logger("worker")
        machine, silent = "", False
        with httpx.Client(
            headers={"Metadata": "true"}, timeout=self._every, trust_env=False
        ) as client:
            while True:
                try:
                    machine = machine or self._machine(client)
                    grace = self._ask(client, machine)
                except (httpx.HTTPError, ValidationError) as error:
                    if not silent:  # once: it may be away for hours
                        log.warning("instance metadata does not answer", error=str(error)[:300])
                    silent, grace = True, None
                else:
                    silent = False
                if grace is not None:
                    log.info("this machine is to be taken away", seconds=grace)
                    self._told(grace)
                    return
                if self._over.wait(self._every):
                    return

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()

    def _machine(self, client: httpx.Client) -> str:
        given = {"api-version": _NAME_VERSION, "format": "text"}
        answer = client.get(f"{self._metadata}/instance/compute/name", params=given)
        return answer.raise_for_status().text.strip()

    def _ask(self, client: httpx.Client, machine: str) -> float | None:
        answer = client.get(f"{self._metadata}/scheduledevents", params={"api-version": _VERSION})
        found = _Events.model_validate_json(answer.raise_for_status().content)
        return grace_of(found.events, machine, answer.headers.get("Date", ""))
