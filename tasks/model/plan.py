"""A plan: the tasks of one request in an order in which inputs come first, and its gaps."""

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.model.packages import PackageArchive
from tasks.model.spec import Spec


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
class Plan:
    """All that a request needs. `tasks` is in an order in which inputs come before dependents.

    `notes` are for the scientist. `package` is the reduction's archive, whose blob must be stored
    before a task of the plan runs; a frozen plan leaves it out.
    """

    tasks: tuple[PlannedTask, ...]
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    package: PackageArchive | None = None
    exact_package: str = ""  # its owner, name and version, and the archive's digest

    def __iter__(self) -> Iterator[PlannedTask]:
        return iter(self.tasks)
