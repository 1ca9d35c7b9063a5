"""What artifacts are worth: keeping one is right while that is cheaper than making it again.

The rule is the ski rental's: an artifact is kept until its storage has cost as much as making it
again would, which never costs more than twice the best choice. Pure: no I/O, no clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from service_manager.options import ManagerOptions
from tasks.bag.expectation import Times
from tasks.bag.model import Phase, RequestState, Task
from tasks.operators.prices import Prices

_GB = 1e9
_HOUR = 3600.0
_DAY = 86_400.0
_MONTH = 30 * _DAY
_UNMEASURED = 60.0  # seconds of what is like nothing that was timed


class Why(StrEnum):
    """Why an artifact is kept, or that it is not."""

    NEEDED = "a request that has not ended needs it"
    RESULT = "it is a result of a request that ended lately"
    WORTH = "making it again would cost more than keeping it has"
    NOT = "keeping it has cost as much as making it again"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Prices in one currency, and limits.

    The prices are of a GB kept for a month, an hour of one core, and a GB fetched. Where operators
    gave none, a GB kept for a month weighs as much as 24 minutes of one core. Results and the
    history's details are kept for a number of seconds; at most a number of bytes is kept (0: no
    limit).
    """

    storage: float = 0.4
    core_hour: float = 1.0
    download: float = 0.0
    results: float = 30 * _DAY
    history: float = 400 * _DAY
    quota: int = 0

    @classmethod
    def of(cls, options: ManagerOptions) -> "Policy":
        """Return the policy that the settings ask for."""
        return cls(
            results=options.result_days * _DAY,
            history=options.history_days * _DAY,
            quota=round(options.storage_quota_gb * _GB),
        )

    def priced(self, known: Prices) -> "Policy":
        """Return the policy with these prices, if they have both that it weighs."""
        if not (known.storage and known.core_hour):
            return self
        return replace(
            self, storage=known.storage, core_hour=known.core_hour, download=known.download
        )


@dataclass(frozen=True, kw_only=True)
class Wanting:
    """A request with an interest in an artifact; `ended` is 0 while it has not."""

    request: str
    ended: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Kept:
    """An artifact in the store.

    It has its bytes, the seconds to make it again, when it was made, and the requests with an
    interest in it.
    """

    key: str
    phase: Phase
    size: int
    seconds: float
    made: float
    wanted: tuple[Wanting, ...] = ()

    def remake(self, policy: Policy) -> float:
        """Return the cost of making it again."""
        fetched = self.size / _GB * policy.download if self.phase is Phase.COLLECTION else 0.0
        return self.seconds / _HOUR * policy.core_hour + fetched

    def spent(self, policy: Policy, now: float) -> float:
        """Return the known cost of keeping it since it was last of use."""
        since = max([self.made, *(wanting.ended for wanting in self.wanted)])
        return self.size / _GB * policy.storage * max(0.0, now - since) / _MONTH

    def worth(self, policy: Policy, now: float) -> float:
        """Return how much more making it again costs than keeping it has; below 0: not worth it."""
        return self.remake(policy) - self.spent(policy, now)

    def density(self, policy: Policy) -> float:
        """Return the cost of making it again for each GB it takes."""
        return self.remake(policy) / max(self.size, 1) * _GB

    def turn(self, policy: Policy, now: float) -> tuple[bool, float, float, str]:
        """Return the sort key of deletion.

        First comes what is not worth keeping; then, with a quota, what costs least for its size,
        else what is worth least.
        """
        worth = self.worth(policy, now)
        return worth > 0, self.density(policy) if policy.quota else worth, self.made, self.key

    def why(self, policy: Policy, now: float) -> Why:
        """Return why it is kept, or that it is not."""
        if any(not wanting.ended for wanting in self.wanted):
            return Why.NEEDED
        if any(now - wanting.ended < policy.results for wanting in self.wanted):
            return Why.RESULT
        return Why.WORTH if self.worth(policy, now) > 0 else Why.NOT


def kept(task: Task, times: Times, wanted: Sequence[Wanting]) -> Kept:
    """Return a DONE task's artifact."""
    seconds = times.seconds(task.task_class)
    return Kept(
        key=task.key,
        phase=task.phase,
        size=sum(file.size for file in task.files),
        seconds=_UNMEASURED if seconds is None else seconds,
        made=task.claimed_at,
        wanted=tuple(wanted),
    )


def ended(state: RequestState, when: float) -> float:
    """Return when a request ended, 0 while it has not: `Wanting.ended`."""
    return max(when, 1.0) if state.ended else 0.0


def beyond_quota(candidates: Iterable[Kept], total: int, policy: Policy, now: float) -> list[Kept]:
    """List what is deleted first, least worth for its size, until the quota is met.

    Nothing that is needed and no result is deleted. `total` is the bytes of everything that is
    kept.
    """
    over = total - policy.quota
    if not policy.quota or over <= 0:
        return []
    gone: list[Kept] = []
    for one in sorted(candidates, key=lambda item: item.turn(policy, now)):
        if over <= 0:
            break
        if one.why(policy, now) in (Why.WORTH, Why.NOT):
            gone.append(one)
            over -= one.size
    return gone
