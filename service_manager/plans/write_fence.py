"""The write fence of a request in each shard: closed for good when its interests are withdrawn.

A manager that stalled while it wrote a plan may go on after another has cancelled the request.
Each transaction that adds interests of a request therefore changes the fence's row, too. It is
refused once the fence is closed, or when another transaction has changed the row since it was read.
"""

from tasks.bag.task_keys import SHARDS
from tasks.bag.task_table import TaskTable, put_fence
from tasks.bag.transitions import Change
from tasks.errors import FencedError, StoreError, SwathmillError
from tasks.storage.clock import Clock
from tasks.storage.store import Insert, Replace

_TRIES = 8


class FenceChangedError(SwathmillError):
    """Another transaction passed or closed the write fence after this one read it.

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
        raise FencedError(f"request {request} takes no more interests: another manager ended it")
    return Replace(row=opened.row, entity=opened.entity, etag=fence.etag)


def guarded(tasks: TaskTable, shard: str, guard: Insert | Replace, change: Change) -> Change:
    """Make a change that takes effect only while the write fence is as the guard read it.

    Raises:
        FenceChangedError: the fence has been passed or closed since.
    """
    if tasks.etag(shard, guard.row) != (guard.etag if isinstance(guard, Replace) else ""):
        raise FenceChangedError(f"the write fence {guard.row} has changed")
    return Change(task=change.task, operations=(*change.operations, guard))


def close(tasks: TaskTable, clock: Clock, request: str) -> None:
    """Close the write fence in every shard. Raises StoreError; may be repeated."""
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
