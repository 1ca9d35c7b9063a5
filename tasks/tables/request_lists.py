"""Lists of requests, newest first: one of all and one of each owner, in the table `requests`.

A row of a list carries what lists show, so that a page is one range of rows. It is written in the
transaction that writes the request's own row, under whose ETag it is therefore kept. By RowKey:
`i|all|time|id` of all, `i|owner|time|id` of one owner; `time` counts down.
"""

import hashlib
from dataclasses import dataclass

from tasks.tables.rows import prefix_range

_NEWEST = 10**13  # milliseconds; RowKeys count down from it
_ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What a request's place in the lists depends on; none of it ever changes."""

    id: str
    owner: str
    submitted: float

    @property
    def place(self) -> str:
        """The end of its RowKey in every list."""
        return f"{_NEWEST - int(self.submitted * 1000):013d}|{self.id}"

    @property
    def rows(self) -> tuple[str, str]:
        """Its RowKeys in both lists."""
        return f"{_list(None)}{self.place}", f"{_list(self.owner)}{self.place}"


def span(owner: str | None, after: Listed | None = None) -> tuple[str, str]:
    """The range of RowKeys of an owner's list or, with None, of all; `after` is left out and all
    that is newer."""
    start, end = prefix_range(_list(owner))
    if after is not None:
        # "!" comes before all characters of an id.
        start += f"{after.place}!"
    return start, end


def _list(owner: str | None) -> str:
    """A list's part of a RowKey. An owner's name may have any length, and characters that a key
    cannot have."""
    name = _ALL if owner is None else hashlib.sha256(owner.encode()).hexdigest()[:32]
    return f"i|{name}|"
