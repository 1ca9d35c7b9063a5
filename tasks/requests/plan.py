"""A plan: the tasks of one request in an order in which inputs come first, and its gaps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tasks.bag.kinds import Spec
from tasks.packages.packages import PackageArchive

_NAMED = 4  # of what a window lacks


@dataclass(frozen=True, kw_only=True)
class PlannedTask:
    """Describe a task as planned for one request.

    `output` is the path of its files among the request's results, empty for an intermediate
    artifact. `key` is the specification's, if it is not given.
    """

    spec: Spec
    output: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", self.spec.key)


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Something asked for that cannot be had, and why."""

    what: str  # "MCD15A2.005 Lai_1km 2012-03-05"
    reason: str


@dataclass(frozen=True, kw_only=True)
class PlannedWindow:
    """A window of a step of a reduction, in a preview's words.

    `runs` counts the cells in which the package runs. `has` and `lacks` name what it takes and what
    is missing of that: "MOD11A1.061: 8, daily-et: 7". `first` and `last` are its days, "" in a plan
    of an earlier build.
    """

    step: str
    window: str
    runs: int
    has: str
    lacks: str
    first: str = ""
    last: str = ""

    @classmethod
    def of(
        cls,
        step: str,
        window: str,
        runs: int,
        has: Mapping[str, int],
        lacks: Sequence[str],
        days: tuple[str, str] = ("", ""),
    ) -> Self:
        """Write down how many dates a window has of each product and step, and what it lacks."""
        more = len(lacks) - _NAMED
        names = ", ".join(lacks[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        there = ", ".join(f"{name}: {number:,}" for name, number in has.items())
        return cls(
            step=step,
            window=window,
            runs=runs,
            has=there,
            lacks=names,
            first=days[0],
            last=days[1],
        )


def named_packages(packages: str) -> list[tuple[str, str]]:
    """Return the packages of a plan, each as owner, name and version, and its archive's digest."""
    found = (one.rpartition(" ") for one in packages.split(", ") if one)
    return [(name, digest) for name, _, digest in found]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that a request needs. `tasks` is in an order in which inputs come before dependents.

    `notes` are for the scientist. `archives` are those of the reduction's packages, whose blobs
    must be stored before a task of the plan runs; a frozen plan leaves them out. `windows` are the
    reduction's.
    """

    tasks: tuple[PlannedTask, ...]
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    archives: tuple[PackageArchive, ...] = ()
    packages: str = ""  # owner, name and version of each, and the archive's digest
    windows: tuple[PlannedWindow, ...] = ()

    def __iter__(self) -> Iterator[PlannedTask]:
        return iter(self.tasks)
