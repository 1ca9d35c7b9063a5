"""Checkpoints: what a reduction's program has reached, kept for the next attempt of its task.

One blob is one whole state, a tar. Its name sorts by the task's generation, the number of its
attempt and the number of the state, and ends with the content's SHA-256. So a state of an earlier
attempt that is stored late never takes the place of a newer one, and none is used after its task
has ended: what is tried again then is of another generation.
"""

from collections.abc import Iterator

from tasks.bag.model import Task
from tasks.storage.blobs import CHECKPOINTS, Blobs


def state_name(task: Task, number: int, sha256: str) -> str:
    """Return the blob name of a state that the task's attempt in hand stores, its `number`-th."""
    return f"{_prefix(task)}{task.attempt:06d}-{number:06d}-{sha256}"


def digest_of_state(name: str) -> str:
    """Return the SHA-256 of a state by its blob name."""
    return name.rpartition("-")[2]


def latest_state(blobs: Blobs, task: Task) -> str:
    """Return the blob name of a task's newest state; "" where none is stored. Raises StoreError."""
    return max(blobs.names(CHECKPOINTS, _prefix(task)), default="")


def earlier_states(blobs: Blobs, name: str) -> Iterator[str]:
    """Yield the blob names of a task's states before one. Raises StoreError."""
    key, _, _ = name.partition("/")
    return (one for one in blobs.names(CHECKPOINTS, f"{key}/") if one < name)


def delete_states(blobs: Blobs, key: str) -> int:
    """Delete all states of a task; return how many there were. Raises StoreError."""
    names = tuple(blobs.names(CHECKPOINTS, f"{key}/"))
    for name in names:
        blobs.delete(CHECKPOINTS, name)
    return len(names)


def is_of_use(task: Task | None, name: str) -> bool:
    """Tell whether an attempt of the task may go on from a state."""
    return task is not None and task.state.live and name.startswith(_prefix(task))


def _prefix(task: Task) -> str:
    return f"{task.key}/{task.generation:06d}/"
