"""Granules among an attempt's inputs, those that are held in part unpacked."""

from collections.abc import Callable, Iterable
from pathlib import Path

from reprojection.formats.held import PACKED, unpack


def granules_of(files: Iterable[Path], folder: Callable[[str], Path]) -> list[Path]:
    """Return granules as readers take them; unpack those that are held in part.

    `folder` makes a folder of a name. Raises UnreadableGranuleError.
    """
    found = []
    for number, path in enumerate(files):
        if path.name.endswith(PACKED):
            to = folder(f"part{number:04d}") / path.name.removesuffix(PACKED)
            unpack(path, to)
            found.append(to)
        else:
            found.append(path)
    return found
