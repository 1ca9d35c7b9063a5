"""The audit: what operators did, in the table `operators`, partition `audit`, the newest first.

A row is written before the action and completed after it. A row without a result is of an action
that was interrupted: it may have taken effect.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tasks.bag.runtime import Runtime, new_id
from tasks.operators.restrictions import TABLE
from tasks.storage.codec import Codec, cut
from tasks.storage.store import Insert, Store, Upsert

PARTITION = "audit"
_LATEST = 10**14 - 1  # milliseconds, from which times are counted down
_TEXT = 500  # characters


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """What an operator did to what, when and why, and what came of it."""

    id: str
    at: float
    who: str
    action: str
    subject: str
    reason: str = ""
    result: str = ""


_CODEC = Codec(AuditRow, "audit", {name: cut(_TEXT) for name in ("subject", "reason", "result")})


def begin(runtime: Runtime, who: str, action: str, subject: str, reason: str) -> AuditRow:
    """Write down what is about to be done. Raises StoreError: then do not do it."""
    now = runtime.clock.now()
    name = f"{_LATEST - int(now * 1000):014d}|{new_id(runtime.random)}"
    entry = AuditRow(id=name, at=now, who=who, action=action, subject=subject, reason=reason)
    runtime.store.transact(TABLE, PARTITION, [Insert(row=name, entity=_CODEC.dump(entry))])
    return entry


def complete(store: Store, entry: AuditRow, result: str) -> AuditRow:
    """Write down what came of it. Raises StoreError."""
    done = replace(entry, result=result)
    store.transact(TABLE, PARTITION, [Upsert(row=entry.id, entity=_CODEC.dump(done))])
    return done


def entries(store: Store, limit: int | None = None, skip: int = 0) -> Iterator[AuditRow]:
    """Yield what was done, the newest first. Raises StoreError."""
    rows = store.scan(TABLE, PARTITION, "", "\uffff", None if limit is None else skip + limit)
    return map(_CODEC.load, itertools.islice(rows, skip, None))
