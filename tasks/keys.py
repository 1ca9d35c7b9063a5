"""Task keys: the SHA-256 of everything that determines an artifact."""

import hashlib
import json
from collections.abc import Mapping, Sequence

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]


def canonical(value: Json) -> bytes:
    """The one JSON text of a value: sorted keys, no spaces, ASCII. Raises ValueError on NaN."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def task_key(identity: Json) -> str:
    """The task key (64 hex digits) of what identifies a task's artifact."""
    return hashlib.sha256(canonical(identity)).hexdigest()


def shard(key: str) -> str:
    """The partition of a task key: its first hex digit."""
    return key[0]


SHARDS = "0123456789abcdef"
