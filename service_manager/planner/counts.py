"""What a plan comes to, counted task by task while it streams by."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tasks.bag.kinds import Spec
from tasks.bag.model import Phase
from tasks.bag.spec import (
    CollectSpec,
    CubeSpec,
    GroupSpec,
    LayerSpec,
    MosaicSpec,
    PartsSpec,
)
from tasks.requests.plan import PlannedTask

_PIXEL = 2  # bytes of an uncompressed value, as most layers have


class CountedClass(NamedTuple):
    """The class under which a task is counted: phase, task class, maximum stored bytes."""

    phase: Phase
    task_class: str
    size: int


@dataclass(kw_only=True)
class Counts:
    """Tasks by phase and by class, bytes to fetch and at most to store, tasks that have results."""

    phases: Counter[Phase] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    download: int = 0
    stored: int = 0
    results: int = 0

    @property
    def tasks(self) -> int:
        """All tasks."""
        return self.phases.total()

    @property
    def granules(self) -> int:
        """Granules to be in the store."""
        return self.phases[Phase.COLLECTION]

    def add(self, tasks: Iterable[PlannedTask]) -> None:
        """Count tasks."""
        self.add_kinds((kind_of(planned.spec), planned.output) for planned in tasks)

    def add_kinds(self, tasks: Iterable[tuple[CountedClass, str]]) -> None:
        """Count tasks by kind and output."""
        for (kind, output), count in Counter(tasks).items():
            self.phases[kind.phase] += count
            self.classes[kind.task_class] += count
            self.results += count * bool(output)
            self.stored += count * kind.size
            if kind.phase is Phase.COLLECTION:
                self.download += count * kind.size

    def merge(self, other: "Counts") -> None:
        """Add what was counted elsewhere."""
        self.phases += other.phases
        self.classes += other.classes
        self.download += other.download
        self.stored += other.stored
        self.results += other.results


def kind_of(spec: Spec) -> CountedClass:
    """Return the class under which a task is counted: its phase, task class and stored bytes."""
    return CountedClass(spec.phase, spec.task_class, stored_bytes(spec))


def stored_bytes(spec: Spec) -> int:
    """Bytes an artifact takes at most, as far as its specification tells: uncompressed."""
    match spec:
        case CollectSpec():
            return spec.size
        case PartsSpec():
            return spec.expected
        case CubeSpec():
            return raster_bytes(spec.grid.pixels) * len(spec.inputs)
        case LayerSpec() | MosaicSpec() | GroupSpec() if spec.grid is not None:
            return raster_bytes(spec.grid.pixels)
    return 0


def raster_bytes(pixels: int) -> int:
    """Bytes that a raster of one band takes uncompressed."""
    return _PIXEL * pixels
