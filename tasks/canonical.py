"""The one text of a value, and its digest: what keys and plans are computed from."""

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

    A model is the mapping of its fields; a date is ISO 8601 text.

    Raises:
        ValueError: a number is not finite.
        TypeError: the value is, or holds, something else.
    """
    return _encode(value).encode("ascii")


def digest_of(text: str) -> str:
    """Return the SHA-256 of a canonical text, in 64 hex digits."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()
