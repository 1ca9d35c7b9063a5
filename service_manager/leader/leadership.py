"""One manager acts: a lease in a row, and an epoch that rises when another takes over.

The row is renewed under its ETag. Another manager takes over when it has seen no renewal for a
lease on its own monotonic clock, or at once when the row was released, or when the holder is a
process of this machine that is known to have ended. A lease is no fence: what a
stalled manager still writes is guarded by the rows' ETags and by the epoch in the statistics.
"""

from collections.abc import Callable
from dataclasses import replace

from service_manager.leader.holders import Holders
from tasks.bag.runtime import Runtime, new_id
from tasks.errors import FencedError
from tasks.operators import manager_lease
from tasks.operators.manager_lease import Lease
from tasks.storage.own_rows import OwnRows


class Leadership:
    """This process's claim to be the acting manager. `lease` is in seconds.

    `holders` are the managers of this machine; None: storage is shared with other machines.
    """

    def __init__(self, runtime: Runtime, lease: float, holders: Holders | None = None) -> None:
        self._runtime = runtime
        self._own = replace(runtime, store=OwnRows(runtime.store))  # to renew what is ours
        self._lease = lease
        self._holder = new_id(runtime.random)
        self._holders = holders
        if holders is not None:
            holders.enter(self._holder)
        self._seen: tuple[Lease, float] | None = None
        self._renewed = 0.0
        self.epoch = 0
        self.wanted_slots = 0  # told with each renewal
        self.confirmed = runtime.clock.monotonic()  # when the row was last read or written

    def acquire(self) -> bool:
        """Try to become the acting manager; call again until it does. Raises StoreError."""
        now = self._runtime.clock.monotonic()
        free = False

        def change(old: Lease) -> Lease:
            nonlocal free
            if self._seen is None or self._seen[0] != old:
                self._seen = (old, now)
            free = (
                old.holder in ("", self._holder)
                or now - self._seen[1] > self._lease
                or (self._holders is not None and self._holders.has_ended(old.holder))
            )
            return self._take(old) if free else old

        self._change(change)
        self._renewed = now
        if free and self._holders is not None:
            self._holders.sweep()
        return free

    def _take(self, old: Lease) -> Lease:
        """Return the lease as this manager's; it is already if an earlier answer got lost."""
        if old.holder == self._holder:
            return old
        self.epoch = old.epoch + 1
        self.wanted_slots = old.wanted_slots  # until this manager has counted
        return replace(old, epoch=self.epoch, holder=self._holder)

    def renew(self) -> None:
        """Say that this manager still acts, when a third of the lease has gone by.

        Raises:
            FencedError: another manager acts.
            StoreError: storage does not answer.
        """
        now = self._runtime.clock.monotonic()
        if now - self._renewed < self._lease / 3:
            return

        def change(old: Lease) -> Lease:
            if old.holder != self._holder:
                raise FencedError(f"manager epoch {self.epoch} is over; epoch {old.epoch} acts")
            return replace(old, beat=old.beat + 1, wanted_slots=self.wanted_slots)

        self._change(change, self._own)
        self._renewed = now

    def release(self) -> None:
        """Let another manager act at once. Raises StoreError."""

        def change(old: Lease) -> Lease:
            if old.holder != self._holder:
                return old
            return replace(old, holder="")

        self._change(change)

    def _change(self, decide: Callable[[Lease], Lease], runtime: Runtime | None = None) -> None:
        now = self._runtime.clock.now()

        def stamped(old: Lease) -> Lease:
            new = decide(old)
            return old if new == old else replace(new, renewed=now)

        manager_lease.change(runtime or self._runtime, stamped)
        self.confirmed = self._runtime.clock.monotonic()
