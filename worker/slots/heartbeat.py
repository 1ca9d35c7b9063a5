"""The worker's heartbeat: one row that shows it lives and what it runs, and returns orders."""

import threading
from dataclasses import dataclass, field, replace

import structlog

from tasks.bag import workers
from tasks.bag.runtime import Runtime
from tasks.bag.workers import WHY, WorkerRow
from tasks.errors import StoreError
from tasks.messages.wakeups import LOOK
from tasks.storage.own_rows import OwnRows
from worker.slots.supervisor import AttemptOrder, Supervisor

_TEND = 0.25  # seconds between two looks at the batches


@dataclass(kw_only=True)
class Heartbeat:
    """Beats every `every` seconds; kills all attempts when the supervisor's lease is over.

    Each beat has a thread, which is left behind when it hangs, and another thread watches the
    lease.
    """

    runtime: Runtime
    supervisor: Supervisor
    row: WorkerRow
    every: float
    _stop: threading.Event = field(default_factory=threading.Event)
    _sequence: int = 0

    def __post_init__(self) -> None:
        self._log = structlog.get_logger("worker")
        self._own = OwnRows(self.runtime.store)  # an order changes the row's ETag
        self.turned = self.runtime.clock.monotonic()  # the latest try to beat

    def start(self) -> None:
        """Beat once, so that the worker is known before it claims; then continue in the background.

        Raises:
            StoreError: the table does not answer.
        """
        self.beat()
        self.runtime.wakeups.publish(LOOK)
        for body in (self._beat_on, self._watch, self._tend):
            threading.Thread(target=body, name=body.__name__, daemon=True).start()

    def stop(self) -> None:
        """Stop beating and delete the worker's row."""
        self._stop.set()
        try:
            workers.leave(self.runtime.store, self.runtime.clock, self.row.name, self.row.started)
        except StoreError as error:
            self._log.warning("the worker's row stays behind", error=str(error))

    def beat(self) -> None:
        """Write one beat, and follow the orders it returns."""
        lease = self.supervisor.lease
        sent = self.runtime.clock.monotonic()
        self._sequence += 1
        row = replace(
            self.row,
            beat_at=self.runtime.clock.now(),
            sequence=self._sequence,
            attempts=self.supervisor.running(),
            waiting=self.supervisor.waiting(),
            draining=self.supervisor.draining,
            unfit=self.supervisor.fitness.why[:WHY],
        )
        orders = workers.beat(
            self._own,
            self.runtime.clock,
            row,
            sent + lease.deadline,
            left=self._stop.is_set,
        )
        # The exact time of the write is unknown: it is not before this.
        lease.renew(sent)
        if orders.hold is not self.supervisor.hold:
            self._log.warning("held by the manager", hold=orders.hold.value or "released")
            self.supervisor.hold = orders.hold
        if orders.leave and not self.supervisor.draining:
            self._log.info("asked to leave: the fleet has more slots than wanted")
            self.supervisor.leaving = self.supervisor.draining = True
        for claim in orders.kill:
            self.supervisor.kill(claim, AttemptOrder.KILL)
        for claim in orders.move:
            self.supervisor.kill(claim, AttemptOrder.MOVE, dict(orders.movers).get(claim, ""))

    def check_lease(self) -> None:
        """Kill all attempts if the last beat is a lease old: the manager then counts us as lost."""
        lease = self.supervisor.lease
        if lease.over and self.supervisor.running():
            seconds = round(lease.silence, 1)
            self._log.error("no beat for a lease, ending all attempts", seconds=seconds)
            self.supervisor.kill_all(AttemptOrder.FENCE)

    def _beat_on(self) -> None:
        while not self._stop.wait(self.every):
            self.turned = self.runtime.clock.monotonic()
            one = threading.Thread(target=self._try, name="beat", daemon=True)
            one.start()
            one.join(self.supervisor.lease.deadline)
            if one.is_alive():
                self._missed("storage does not answer")

    def _try(self) -> None:
        try:
            self.beat()
        except StoreError as error:
            self._missed(str(error))
        except Exception:  # noqa: BLE001 - a worker that stops beating is lost for good
            self._log.exception("beat missed")

    def _missed(self, why: str) -> None:
        self.supervisor.lease.missed = why
        self._log.warning("beat missed", error=why)

    def _tend(self) -> None:
        while not self._stop.wait(_TEND):
            try:
                self.supervisor.tend()
            except Exception:  # noqa: BLE001 - without it, batches wait for their last task
                self._log.exception("batches not tended")

    def _watch(self) -> None:
        while not self._stop.wait(min(1.0, self.supervisor.lease.seconds / 10)):
            self.check_lease()
