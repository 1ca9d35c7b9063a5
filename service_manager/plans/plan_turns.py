"""Whose plan is made next: owners take turns, and each owner's oldest request comes first.

Pure: one owner's hundred requests do not keep another's waiting.
"""

from dataclasses import dataclass, field

from tasks.requests.request_table import RequestRow

_OWNERS = 1000  # whose latest turn is remembered


@dataclass
class PlanTurns:
    """Requests that wait to be planned."""

    _waiting: dict[str, RequestRow] = field(default_factory=dict)  # by request
    _latest: dict[str, int] = field(default_factory=dict)  # turn, by owner
    _turn: int = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, row: RequestRow) -> None:
        """Add a request that waits, or still waits."""
        self._waiting[row.id] = row

    def drop(self, request: str) -> None:
        """Remove a request that waits no more."""
        self._waiting.pop(request, None)

    def next(self) -> str:
        """Take the request whose turn it is; one must wait."""
        row = min(
            self._waiting.values(),
            key=lambda one: (self._latest.get(one.owner, 0), one.submitted, one.id),
        )
        del self._waiting[row.id]
        self._turn += 1
        self._latest.pop(row.owner, None)
        self._latest[row.owner] = self._turn
        if len(self._latest) > _OWNERS:
            del self._latest[next(iter(self._latest))]  # the one whose turn is longest ago
        return row.id
