"""How long machines take to come and to go: create, run, add, suspend, delete, by size and role.

A kind of machine is a scale set of Azure, whose five steps are calls of `az`, or what an engine of
`swathmill fleet` starts: nodes, which run, are added to and leave; an engine creates and suspends
nothing. Each machine of a step is timed by itself, so that the lag from the first to the last is
seen, and those that never came.
"""

import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from bench.platform.clients import Call
from bench.platform.fleet import Fleet
from bench.platform.node import Deployment
from bench.platform.rates import Point
from swathmill.errors import StackError
from tasks.bag.categories import Category

IMAGE = "Ubuntu2204"
SIZES = ("Standard_B1s",)
PATIENCE = 3600.0  # seconds for a step; the slowest that was published took 17 minutes
_BETWEEN = 5.0  # seconds between two looks by `az`


class Asks(Protocol):
    """Azure's command."""

    def ask(self, *words: str) -> object:
        """Run a call and return its answer. Raises StackError."""
        ...


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: the order, and how to look which machines have done it so far.

    A look may wait for a while. `wanted` machines are to do it. In a step that `grows`, those of
    earlier steps do not count.
    """

    operation: str
    wanted: int
    order: Callable[[], object]
    look: Callable[[], Collection[str]]
    grows: bool = False


class Kind(Protocol):
    """Machines of one size and role."""

    @property
    def name(self) -> str:
        """The size and the role."""
        ...

    def life(self, number: int) -> Iterator[Step]:
        """Yield the steps from nothing to nothing, with `number` machines, then twice as many.

        The last one is the end: it is taken also where another has failed.
        """
        ...

    def size(self) -> int:
        """Return the bytes of the deployment, asked while machines run; 0: not known."""
        ...


@dataclass(frozen=True, kw_only=True)
class ScaleSet:
    """Virtual machines of Azure of one size, in a scale set of their own."""

    az: Asks
    group: str
    machine: str
    sleep: Callable[[float], None] = time.sleep

    @property
    def name(self) -> str:
        """The size of the machines."""
        return self.machine

    def size(self) -> int:
        """Implement `Kind.size`: nothing is deployed on these machines."""
        return 0

    def life(self, number: int) -> Iterator[Step]:
        """Implement `Kind.life`."""
        name = f"study-{uuid.uuid4().hex[:8]}"
        where = ("--resource-group", self.group, "--name", name)
        made = (
            *("create", *where, "--image", IMAGE, "--vm-sku", self.machine),
            *("--instance-count", "0", "--generate-ssh-keys"),
            *("--public-ip-address", "", "--load-balancer", ""),
        )
        more = partial(self._az, "scale", *where, "--no-wait", "--new-capacity")
        runs, rests = partial(self._in, where, _RUNS), partial(self._in, where, _RESTS)
        at_once = partial(tuple, ("all",))
        yield Step(operation="create", wanted=1, order=partial(self._az, *made), look=at_once)
        for operation, all_of in (("run", number), ("add", 2 * number)):
            yield Step(
                operation=operation, wanted=number, order=partial(more, str(all_of)), look=runs,
                grows=True,
            )  # fmt: skip
        suspend = partial(self._az, "deallocate", *where, "--no-wait")
        yield Step(operation="suspend", wanted=2 * number, order=suspend, look=rests)
        delete = partial(self._az, "delete", *where)
        yield Step(operation="delete", wanted=1, order=delete, look=at_once)

    def _az(self, *words: str) -> None:
        self.az.ask("vmss", *words)

    def _in(self, where: tuple[str, ...], state: str) -> set[str]:
        """Wait a while; return the ids of the machines that are in a state of power."""
        self.sleep(_BETWEEN)
        said = self.az.ask("vmss", "list-instances", *where, "--expand", "instanceView")
        return {one for one, states in _machines(said) if state in states}


_RUNS, _RESTS = "PowerState/running", "PowerState/deallocated"


def _machines(said: object) -> Iterator[tuple[str, set[str]]]:
    """Yield id and states of each machine in an answer of `az vmss list-instances`."""
    for one in said if isinstance(said, list) else ():
        view = one.get("instanceView") or {}
        codes = {str(status.get("code")) for status in view.get("statuses") or ()}
        yield str(one.get("instanceId")), codes


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Nodes that an engine starts: they count as running from their first word.

    `new` makes a fleet that has started nothing.
    """

    name: str
    new: Callable[[], Fleet]
    sleep: Callable[[float], None] = time.sleep
    _fleets: list[Fleet] = field(default_factory=list)  # the last one is at work

    def life(self, number: int) -> Iterator[Step]:
        """Implement `Kind.life`."""
        fleet = self.new()
        self._fleets.append(fleet)

        def came() -> set[str]:
            return {str(node) for node in fleet.come()}

        start = partial(fleet.start, number)
        try:
            for operation in ("run", "add"):
                yield Step(operation=operation, wanted=number, order=start, look=came, grows=True)
            there = {one.name for one in fleet.engine.there()}

            def gone() -> set[str]:
                self.sleep(0.1)
                return there - {one.name for one in fleet.engine.there()}

            known = len(there)  # an engine may not know what it has started
            look = gone if known else partial(tuple, ("all",))
            yield Step(operation="delete", wanted=known or 1, order=fleet.leave, look=look)
        finally:
            fleet.leave()

    def size(self) -> int:
        """Implement `Kind.size`: what the first node says of itself."""
        fleet = self._fleets[-1]
        return fleet.run(Deployment(), 1, 0.0, 1)[0].size if fleet.come() else 0


def measure_instances(
    kinds: Iterable[Kind],
    number: int,
    clock: Callable[[], float] = time.monotonic,
    patience: float = PATIENCE,
) -> Iterator[Point]:
    """Take machines of each kind through a life, in this order, and yield each step.

    The end is taken also where a step failed; the steps after that one are left out.
    """
    for kind in kinds:
        size, failed = 0, False
        there = set[str]()
        for step in kind.life(number):
            if failed and step.operation != "delete":
                continue
            calls = _calls(step, there if step.grows else set(), clock, patience)
            failed = all(call.failure for call in calls)
            if step.grows and not failed:
                size = size or kind.size()
            yield Point(
                experiment="instances",
                operation=f"{step.operation}, {kind.name}",
                size=size,
                clients=number,
                calls=calls,
                apart=True,
            )


def _calls(
    step: Step, before: set[str], clock: Callable[[], float], patience: float
) -> tuple[Call, ...]:
    """Take a step; return one call for each machine, with the time until it had done it.

    Machines in `before` do not count; those seen are added to it.
    """
    began = clock()
    ended: list[float] = []
    failure = Category.OPERATION_TIMEOUT
    try:
        step.order()
    except StackError:
        failure = Category.UNKNOWN
    while failure is not Category.UNKNOWN and len(ended) < step.wanted:
        if clock() - began > patience:
            break
        try:
            found = set(step.look()) - before
        except StackError:
            continue  # the engine is asked again
        before |= found
        ended += [clock()] * len(found)
    good = [
        Call(client=number, began=began, ended=end)
        for number, end in enumerate(ended[: step.wanted])
    ]
    missing = [
        Call(client=number, began=began, ended=clock(), failure=failure)
        for number in range(len(good), step.wanted)
    ]
    return (*good, *missing)


@dataclass(frozen=True, kw_only=True)
class Lives:
    """One step of one kind over all its runs. Times are in seconds from the order.

    Attributes:
        size: bytes of the deployment.
        runs: how often the step was taken.
        failed: share of the machines that did not do it.
        first, last: the first and the last machine that did, in the mean over the runs.
        lag: from the first to the last, in the mean; `deviation` is that of the last ones.
    """

    step: str
    kind: str
    size: int
    runs: int
    machines: int
    failed: float
    first: float
    last: float
    lag: float
    deviation: float


def lives(points: Iterable[Point]) -> list[Lives]:
    """Sum up each step of each kind, in the order in which kinds and steps came first."""
    runs: dict[tuple[str, str], list[list[Call]]] = defaultdict(list)
    sizes: dict[str, int] = defaultdict(int)
    for point in points:
        step, _, kind = point.operation.partition(", ")
        sizes[kind] = max(sizes[kind], point.size)
        of_run: dict[float, list[Call]] = defaultdict(list)
        for call in point.calls:
            of_run[call.began].append(call)
        runs[kind, step] += of_run.values()
    found = []
    for (kind, step), each in runs.items():
        took = [[one.ended - one.began for one in calls if not one.failure] for calls in each]
        good = [some for some in took if some]
        calls = [one for some in each for one in some]
        first = [min(some) for some in good] or [0.0]
        last = [max(some) for some in good] or [0.0]
        found.append(
            Lives(
                step=step,
                kind=kind,
                size=sizes[kind],
                runs=len(each),
                machines=len(calls),
                failed=sum(bool(one.failure) for one in calls) / len(calls),
                first=statistics.fmean(first),
                last=statistics.fmean(last),
                lag=statistics.fmean(map(float.__sub__, last, first)),
                deviation=statistics.stdev(last) if len(last) > 1 else 0.0,
            )
        )
    return found


def last_ones(points: Iterable[Point], step: str) -> dict[str, list[float]]:
    """Return by kind how long the last machine took in each run of a step that all did."""
    found: dict[str, list[float]] = defaultdict(list)
    for point in points:
        name, _, kind = point.operation.partition(", ")
        if name != step:
            continue
        of_run: dict[float, list[Call]] = defaultdict(list)
        for call in point.calls:
            of_run[call.began].append(call)
        found[kind] += [
            max(one.ended - one.began for one in calls)
            for calls in of_run.values()
            if not any(one.failure for one in calls)
        ]
    return found
