"""A manager's row, in which operators see that it lives and what it has in hand."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version

import structlog

from service_manager.leader.leadership import Leadership
from service_manager.leader.manager import Manager
from service_manager.leader.watch import Watch
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import CompletionEvent
from tasks.errors import StoreError
from tasks.operators import manager_rows
from tasks.operators.manager_rows import ManagerRow, RefusedMails

log = structlog.get_logger("manager.presence")


class Presence(Watch):
    """Writes the row every `period` seconds, and tells `also` all that it is told.

    `refused` tells which mails the mail server has not taken.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        period: float,
        also: Watch,
        refused: Callable[[], RefusedMails] = RefusedMails,
    ) -> None:
        self._refused = refused
        self._runtime = runtime
        self._period = period
        self._also = also
        self._due = 0.0
        self._longest = 0.0
        self._put_once = False
        self._row = ManagerRow(
            name=name,
            host=socket.gethostname(),
            version=version("swathmill"),
            started=runtime.clock.now(),
            beat_at=0.0,
        )

    def stands_by(self, leadership: Leadership) -> None:
        """Write that it stands by."""
        self._also.stands_by(leadership)
        if self._is_due():
            self._put(replace(self._row, epoch=leadership.epoch))

    def acts(self, leadership: Leadership, manager: Manager, seconds: float) -> None:
        """Write what it has in hand."""
        self._also.acts(leadership, manager, seconds)
        self._longest = max(self._longest, seconds)
        if not self._is_due():
            return
        stored, shards = manager.stored
        self._put(
            replace(
                self._row,
                acts=True,
                epoch=leadership.epoch,
                rounds=self._longest,
                requests=len(manager.cache.requests),
                queues=manager.queues(),
                hosts=manager.waiting_for_places(),
                places=manager.places(),
                stored=stored,
                shards=shards,
                refused=self._refused(),
            )
        )
        self._longest = 0.0

    def hears(self, events: Sequence[CompletionEvent]) -> None:
        """Pass it on."""
        self._also.hears(events)

    def close(self) -> None:
        """Delete the row: the manager ends."""
        try:
            manager_rows.leave(self._runtime.store, self._row.name, self._row.host)
        except StoreError as error:
            log.warning("the manager's row stays for a day", error=str(error))

    def _is_due(self) -> bool:
        return self._runtime.clock.monotonic() >= self._due

    def _put(self, row: ManagerRow) -> None:
        self._due = self._runtime.clock.monotonic() + self._period
        try:
            now = self._runtime.clock.now()
            if not self._put_once:
                manager_rows.drop_old(self._runtime.store, now)
                self._put_once = True
            manager_rows.put(self._runtime.store, replace(row, beat_at=now))
        except StoreError as error:
            log.warning("the manager's row was not written", error=str(error))
