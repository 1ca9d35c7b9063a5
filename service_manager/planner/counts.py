"""What a plan comes to, counted task by task while it streams by."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.model import Phase
from tasks.plan import PlannedTask
from tasks.spec import CollectSpec, CubeSpec, GroupSpec, MosaicSpec, ReprojectSpec, Spec

_PIXEL = 2  # bytes of an uncompressed value, as most layers have


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
        kinds: Counter[tuple[Phase, str, int, bool]] = Counter()
        for planned in tasks:
            spec = planned.spec
            size = stored_bytes(spec)
            if isinstance(spec, CollectSpec):
                self.download += size
            kinds[spec.phase, spec.task_class, size, bool(planned.output)] += 1
        for (phase, kind, size, output), count in kinds.items():
            self.phases[phase] += count
            self.classes[kind] += count
            self.results += count * output
            self.stored += count * size

    def merge(self, other: "Counts") -> None:
        """Add what was counted elsewhere."""
        self.phases += other.phases
        self.classes += other.classes
        self.download += other.download
        self.stored += other.stored
        self.results += other.results

    def to_json(self) -> dict[str, object]:
        """The counts as JSON values."""
        return {
            "phases": {phase.value: count for phase, count in self.phases.items()},
            "classes": dict(self.classes),
            "download": self.download,
            "stored": self.stored,
            "results": self.results,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Counts":
        """What `to_json` wrote."""
        return cls(
            phases=Counter({Phase(name): int(n) for name, n in data["phases"].items()}),
            classes=Counter({str(name): int(n) for name, n in data["classes"].items()}),
            download=int(data["download"]),
            stored=int(data["stored"]),
            results=int(data["results"]),
        )


def stored_bytes(spec: Spec) -> int:
    """Bytes an artifact takes at most, as far as its specification tells: uncompressed."""
    match spec:
        case CollectSpec():
            return spec.size
        case CubeSpec():
            return _PIXEL * spec.grid.width * spec.grid.height * len(spec.inputs)
        case ReprojectSpec() | MosaicSpec() | GroupSpec() if spec.grid is not None:
            return _PIXEL * spec.grid.width * spec.grid.height
    return 0
