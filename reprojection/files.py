"""Files as callers name them: one or several, as paths or as text."""

import os
from collections.abc import Iterable
from pathlib import Path

AnyPath = str | os.PathLike[str]


def as_paths(named: AnyPath | Iterable[AnyPath]) -> list[Path]:
    """Return the paths of one name or of several."""
    return [Path(one) for one in ([named] if isinstance(named, str | os.PathLike) else named)]
