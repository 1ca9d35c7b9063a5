"""The gate of a request in each shard: closed for good when its wants are taken back.

A manager that stalled while it wrote a plan may wake after its successor has cancelled the
request. Each transaction that makes a request want something therefore changes the gate's row, too,
and is refused once the gate is closed, or has been passed by another since it was read.
"""

from tasks.errors import FencedError, StoreError, SwathmillError
from tasks.model.task_keys import SHARDS
from tasks.storage.clock import Clock
from tasks.storage.store import Insert, Replace
from tasks.tables.task_table import TaskTable, put_fence
from tasks.tables.transitions import Change

_TRIES = 8


class TurnedError(SwathmillError):
    """Another transaction passed or closed the gate after this one read it.

    Read again and decide again.
    """


def passing(tasks: TaskTable, shard: str, request: str, etag: str = "") -> Insert | Replace:
    """Return the operation that guards a transaction which adds interests of the request.

    `etag` is what the caller's own last pass left, if it made one: then the fence is not read, and
    the transaction is refused when anybody has changed the fence since.

    Raises:
        FencedError: the fence is closed; another manager has withdrawn the request's interests.
    """
    opened = put_fence(request, is_open=True)
    if etag:
        return Replace(row=opened.row, entity=opened.entity, etag=etag)
    fence = tasks.fence(request, shard)
    if fence is None:
        return Insert(row=opened.row, entity=opened.entity)
    if not fence.open:
        raise FencedError(f"request {request} wants nothing any more: another manager ended it")
    return Replace(row=opened.row, entity=opened.entity, etag=fence.etag)


def guarded(tasks: TaskTable, shard: str, guard: Insert | Replace, change: Change) -> Change:
    """Make a change that takes effect only while the write fence is as the guard read it.

    Raises:
        TurnedError: the fence has been passed or closed since.
    """
    if tasks.etag(shard, guard.row) != (guard.etag if isinstance(guard, Replace) else ""):
        raise TurnedError(f"the gate {guard.row} was turned")
    return Change(task=change.task, operations=(*change.operations, guard))


def close(tasks: TaskTable, clock: Clock, request: str) -> None:
    """Close the gate in every shard. Raises StoreError; may be repeated."""
    for shard in SHARDS:
        for tries in range(_TRIES):
            try:
                tasks.transact(shard, [put_fence(request, is_open=False)])
            except StoreError:
                if tries == _TRIES - 1:
                    raise
                clock.sleep(0.05 * 2**tries)
            else:
                break
