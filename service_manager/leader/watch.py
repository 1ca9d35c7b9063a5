"""What somebody who watches a manager is told; by default nobody does."""

from collections.abc import Sequence

from service_manager.leader.leadership import Leadership
from service_manager.leader.manager import Manager
from tasks.bag.task_rows import CompletionEvent


class Watch:
    """Is told of each round of a manager's process, and of each attempt that ended."""

    def stands_by(self, leadership: Leadership) -> None:
        """Hear that another manager acts, or that nobody knows."""

    def acts(self, leadership: Leadership, manager: Manager, seconds: float) -> None:
        """Hear that a round was done, and how long it took."""

    def hears(self, events: Sequence[CompletionEvent]) -> None:
        """Hear of attempts that ended."""
