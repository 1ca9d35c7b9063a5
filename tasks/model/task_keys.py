"""Task keys: the SHA-256 of everything that determines an artifact."""

import hashlib
import json
from datetime import date

from pydantic import BaseModel


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.__dict__
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no canonical JSON")


_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain
).encode


def canonical(value: object) -> bytes:
    """Return the one JSON text of a value: sorted keys, no spaces, ASCII.

    A model is the mapping of its fields, and a date is ISO 8601 text.

    Raises:
        ValueError: a number is not finite.
        TypeError: the value is, or holds, something else.
    """
    return _encode(value).encode("ascii")


def key_of(identity: str) -> str:
    """Return the task key of a canonical text.

    The key has 64 hex digits. The text is that of all that identifies a task's artifact.
    """
    return hashlib.sha256(identity.encode("ascii")).hexdigest()


def shard(key: str) -> str:
    """Return the partition of a task key: its first hex digit."""
    return key[0]


SHARDS = "0123456789abcdef"


def is_key(text: str) -> bool:
    """Whether a text has the form of a task key."""
    return len(text) == 64 and set(text) <= set(SHARDS)
