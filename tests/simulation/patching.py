"""Replacing parts of the product for a while."""

from collections.abc import Callable
from typing import Any

Undo = Callable[[], None]


def patch(owner: Any, name: str, value: object) -> Undo:
    """Replace an attribute; what is returned puts it back."""
    old = getattr(owner, name)
    setattr(owner, name, value)

    def undo() -> None:
        setattr(owner, name, old)

    return undo
