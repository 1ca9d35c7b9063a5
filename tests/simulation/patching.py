"""Replacing parts of the product for a while."""

import gc
from collections.abc import Callable
from typing import Any, cast

from tasks.storage.codec import Codec
from tasks.storage.store import Row

Undo = Callable[[], None]


def patch(owner: Any, name: str, value: object) -> Undo:
    """Replace an attribute; what is returned puts it back."""
    old = getattr(owner, name)
    setattr(owner, name, value)

    def undo() -> None:
        setattr(owner, name, old)

    return undo


def quicken() -> Undo:
    """Decode each row once, and collect no cycles meanwhile.

    A store in memory hands out the same row until it is written again, and what is decoded of it
    does not change: it is kept with the row.
    """
    load = Codec.load

    def load_once(codec: Codec[Any], row: Row) -> object:
        kept = cast(dict[object, object], vars(row))
        if codec not in kept:
            kept[codec] = load(codec, row)
        return kept[codec]

    undo = patch(Codec, "load", load_once)
    collects = gc.isenabled()
    gc.disable()

    def slow() -> None:
        undo()
        if collects:
            gc.enable()

    return slow
