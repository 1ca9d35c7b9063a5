"""Names of files and folders that every system takes."""

import re

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def file_name(text: str, fill: str = "_") -> str:
    """Put `fill` in place of all but letters, digits, `.`, `_` and `-`."""
    return _UNSAFE.sub(fill, text)


def layer_name(text: str) -> str:
    """Turn the name of a layer or output into one part of a path."""
    return file_name(text).strip("._") or "layer"


def free_name(name: str, taken: set[str]) -> str:
    """Take a name, numbered if it is taken: two texts may make the same one."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free
