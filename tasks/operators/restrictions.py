"""What operators restrict: a phase or an owner paused or limited; quotas, by owner, package, all.

One row each in the table `operators`, partition `restrictions`: `kind|subject`. The manager obeys
them where it sends tasks to workers, and nowhere else: no task changes its state, and what runs
goes on to its end.
"""

import datetime as dt
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tasks.bag import classes, history
from tasks.bag.model import Phase
from tasks.requests.plan import named_packages
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.codec import Codec, cut
from tasks.storage.store import Delete, Operation, Row, Store, Upsert

TABLE = "operators"
PARTITION = "restrictions"
_WHY = 500  # characters
_HOUR = 3600.0


class Kind(StrEnum):
    """The kinds of restriction, by the first part of their RowKeys."""

    PAUSE_PHASE = "pause phase"
    PAUSE_OWNER = "pause owner"
    LIMIT_PHASE = "limit phase"  # attempts at once, at most
    LIMIT_OWNER = "limit owner"
    QUOTA_OWNER = "quota owner"  # hours of one slot in a calendar month, at most
    QUOTA_PACKAGE = "quota package"  # of the runs of a package, by its name
    QUOTA_ALL = "quota all"  # of all attempts; the subject is `ALL`


ALL = "all"
QUOTAS = (Kind.QUOTA_OWNER, Kind.QUOTA_PACKAGE, Kind.QUOTA_ALL)
"""The budgets: what is over one waits for the next month."""


@dataclass(frozen=True, kw_only=True)
class Restriction:
    """A restriction: what it is, of what, and who set it when and why."""

    kind: Kind
    subject: str  # a phase, an owner or a package
    value: float = 0.0
    by: str = ""
    since: float = 0.0
    reason: str = ""


_CODEC = Codec(Restriction, "restriction", {"reason": cut(_WHY)})


@dataclass(frozen=True, kw_only=True)
class Restrictions:
    """All restrictions, as dispatch obeys them.

    `spent` are the quotas of this month that are used up.
    """

    paused_phases: frozenset[Phase] = frozenset()
    paused_owners: frozenset[str] = frozenset()
    phase_limits: Mapping[Phase, int] = field(default_factory=dict)
    owner_limits: Mapping[str, int] = field(default_factory=dict)
    spent: frozenset["Budget"] = frozenset()

    @classmethod
    def of(
        cls, restrictions: Iterable[Restriction], spent: frozenset["Budget"] = frozenset()
    ) -> "Restrictions":
        """Return what dispatch obeys."""
        by_kind: dict[Kind, dict[str, float]] = {kind: {} for kind in Kind}
        for one in restrictions:
            by_kind[one.kind][one.subject] = one.value
        return cls(
            paused_phases=frozenset(map(Phase, by_kind[Kind.PAUSE_PHASE])),
            paused_owners=frozenset(by_kind[Kind.PAUSE_OWNER]),
            phase_limits={Phase(p): int(n) for p, n in by_kind[Kind.LIMIT_PHASE].items()},
            owner_limits={owner: int(n) for owner, n in by_kind[Kind.LIMIT_OWNER].items()},
            spent=frozenset(one for one in spent if one[1] in by_kind[one[0]]),
        )

    def stop(self, owner: str, packages: str) -> bool:
        """Tell whether no task of an owner's request, whose row names packages, is to start."""
        return owner in self.paused_owners or bool(self.spent & budgets_of(owner, packages))


Budget = tuple[Kind, str]
"""A kind of quota, and whose."""


def budgets_of(owner: str, packages: str) -> frozenset[Budget]:
    """Return the budgets that a request of an owner is under, whose row names these packages."""
    names = (name.partition("@")[0].rpartition("/")[2] for name, _ in named_packages(packages))
    return frozenset(
        [(Kind.QUOTA_ALL, ALL), (Kind.QUOTA_OWNER, owner)]
        + [(Kind.QUOTA_PACKAGE, name) for name in names]
    )


def load(store: Store) -> list[Restriction]:
    """Load all restrictions, by kind and subject. Raises StoreError."""
    return [_CODEC.load(row) for row in store.scan(TABLE, PARTITION, "", "\uffff")]


def put(store: Store, restriction: Restriction) -> None:
    """Set a restriction in place of an earlier one of its kind and subject. Raises StoreError."""
    row = _row(restriction.kind, restriction.subject)
    store.transact(TABLE, PARTITION, [Upsert(row=row, entity=_CODEC.dump(restriction))])


def lift(store: Store, clock: Clock, kind: Kind, subject: str) -> bool:
    """Lift a restriction; False when there is none. Raises StoreError."""
    there = False

    def change(found: Row | None) -> tuple[Operation, ...]:
        nonlocal there
        there = there or found is not None
        return () if found is None else (Delete(row=found.row, etag=found.etag),)

    updates.update(store, clock, TABLE, PARTITION, _row(kind, subject), change)
    return there


def spent_hours(store: Store, budget: Budget, now: float) -> float:
    """Return the hours of one slot that attempts under a budget took in this calendar month.

    Attempts count when they end. Raises StoreError.
    """
    kind, subject = budget
    owner = subject if kind is Kind.QUOTA_OWNER else ""
    today = dt.datetime.fromtimestamp(now, dt.UTC).date()
    counted = history.executions_between(store, today.replace(day=1), today, owner=owner)
    if kind is Kind.QUOTA_PACKAGE:
        counted = (one for one in counted if classes.package(one.task_class) == subject)
    return sum(one.seconds for one in counted) / _HOUR


def budget_text(one: Restriction) -> str:
    """Say which budget it is: "the quota of 10 hours of one slot in a month of package lai"."""
    whose = {
        Kind.QUOTA_OWNER: "the owner's quota",
        Kind.QUOTA_PACKAGE: f"the quota of the package {one.subject}",
    }.get(one.kind, "the quota of the whole service")
    return f"{whose} of {one.value:,g} hours of one slot in a month"


def _row(kind: Kind, subject: str) -> str:
    return f"{kind.value}|{urllib.parse.quote(subject, safe=' .,@')}"
