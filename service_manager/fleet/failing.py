"""Hosts on which everything fails: one broken machine is the fastest of a fleet, and takes all.

A host fails when `IN_A_ROW` different tasks have failed on it one after another without a success
there, at least `ELSEWHERE` of them have succeeded on another host since, and one that began after
that has failed here, too. With one attempt in ten failing by chance, five in a row come once in
100,000 attempts. What fails everywhere, such as an archive that is away, succeeds nowhere; and when
it is back, attempts that begin then succeed here, too. Two successes elsewhere, because one task
may be cured by luck.

Failures that no other try can change say nothing of a host, nor do orders, losses and inputs that
are made again. All workers of a host share its disk, its processes and its network: they are judged
together.

Pure: ended attempts and time come in. Times in seconds on the manager's monotonic clock.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from tasks.bag.categories import RULES, Category, Retry
from tasks.bag.task_rows import CompletionEvent

IN_A_ROW = 5
ELSEWHERE = 2
_REMEMBERED = 1000  # tasks of a row: later ones that succeed elsewhere are as good evidence
_TOLD = 3  # tasks that are named as evidence
_SILENT = (Category.CANCELLED, Category.WORKER_LOST)


@dataclass(slots=True)
class _Row:
    """The tasks that failed on a host since its last success, with how, the latest last."""

    failed: OrderedDict[str, Category] = field(default_factory=OrderedDict)
    elsewhere: list[str] = field(default_factory=list)  # of these, in order
    proven: float = 0.0  # when enough had succeeded elsewhere
    fails: bool = False


def speaks(event: CompletionEvent) -> bool:
    """Tell whether the end of an attempt says something of its host."""
    if event.category is None:
        return True
    retry = RULES[event.category].retry
    return event.category not in _SILENT and retry in (Retry.BACK_OFF, Retry.ONCE, Retry.AT_ONCE)


class FailingHosts:
    """The failures in a row on each host."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def ended(self, event: CompletionEvent, host: str, now: float) -> None:
        """Take note of an ended attempt on a host."""
        if not speaks(event):
            return
        if event.category is None:
            self._rows.pop(host, None)
            for row in self._rows.values():
                if event.key in row.failed and event.key not in row.elsewhere:
                    row.elsewhere.append(event.key)
                    if len(row.elsewhere) == ELSEWHERE:
                        row.proven = now
            return
        row = self._rows.setdefault(host, _Row())
        row.failed[event.key] = event.category
        row.failed.move_to_end(event.key)
        if len(row.failed) > _REMEMBERED:
            row.failed.popitem(last=False)
        begun = now - event.duration
        enough = len(row.failed) >= IN_A_ROW and len(row.elsewhere) >= ELSEWHERE
        row.fails = row.fails or (enough and begun >= row.proven)

    def why(self, host: str) -> str:
        """Return the evidence that everything fails on a host; "" if it does not."""
        row = self._rows.get(host)
        if row is None or not row.fails:
            return ""
        named = "; ".join(
            f"{key[-12:]}: {row.failed[key].value}"
            for key in row.elsewhere[:_TOLD]
            if key in row.failed
        )
        return (
            f"{len(row.failed)} tasks failed on {host} one after another, and {len(row.elsewhere)} "
            f"of them succeeded on other hosts since ({named})."
        )

    def forget(self, host: str) -> None:
        """Begin anew with a host."""
        self._rows.pop(host, None)

    def keep(self, hosts: frozenset[str]) -> None:
        """Forget the hosts that have left."""
        for gone in self._rows.keys() - hosts:
            del self._rows[gone]
