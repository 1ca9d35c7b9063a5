"""Store a plan in blobs, so that a crash does not change it, whatever the archive lists by then.

| blob in `plans` | content |
|---|---|
| `REQUEST/RUN/00000.gz`, ... | the stretches of one run of the planner, each with its outcome |
| `REQUEST.plan.gz` | the manifest, which makes it valid: names of stretches, gaps, notes |
| `same/IDENTITY/REQUEST` | the request that has a plan of this identity |

A run that broke off is continued by another after its last stretch. A request that asks for what
was planned before reuses the stretches as long as the archive lists the same; where the archive can
say that nothing has changed since, the plan is reused without listing.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from isal import isal_zlib

from service_manager.planner.counts import Counts
from service_manager.planner.draft import PlannedRaster
from service_manager.planner.gaps import dump_seen, load_seen
from service_manager.planner.plan_stream import Fresh, Planned, PlanOutcome, PlanStream
from tasks.errors import BlobExistsError, BlobMissingError, SwathmillError
from tasks.model.packages import PackageArchive
from tasks.model.plan import Gap, Plan, PlannedTask, PlannedWindow
from tasks.model.spec import load_spec
from tasks.storage.blobs import PACKAGES, PLANS, Blobs

FORMAT = 2
WINDOWS_TOLD = 40
"""The most windows of a reduction that a preview names."""

_SAMPLED = 8  # stretches that stand for all
_GZIP = 31  # zlib's name for the format
_LEVEL = 1  # of compression: keys do not compress, the rest does at any level


class AbandonedError(SwathmillError):
    """Planning was told to stop."""

    def __init__(self, request: str) -> None:
        super().__init__(f"the planning of {request} was stopped; it is not wanted any more")


@dataclass
class StoredPart:
    """A stretch in its blob, read when it is asked for."""

    blobs: Blobs
    name: str
    identity: str = ""
    _outcome: PlanOutcome | None = field(default=None, repr=False)

    @property
    def outcome(self) -> PlanOutcome:
        """What is known without the tasks; BlobMissingError when the blob is gone."""
        if self._outcome is None:
            head = zlib.decompressobj(wbits=_GZIP)
            text = head.decompress(self.blobs.get_bytes(PLANS, self.name))
            data = json.loads(text)
            self.identity = data["identity"]
            self._outcome = _load_outcome(data)
        return self._outcome

    def tasks(self) -> Iterator[PlannedTask]:
        """Yield the tasks, inputs first. Raises BlobMissingError when the blob is gone."""
        text = gzip.decompress(self.blobs.get_bytes(PLANS, self.name))
        lines = iter(text.splitlines())
        next(lines)
        for line in lines:
            key, output, spec = line.split(b"\t", 2)
            yield PlannedTask(spec=load_spec(spec), output=output.decode(), key=key.decode())


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A frozen plan: its counts at hand, its tasks stretch by stretch."""

    counts: Counts
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    stretches: tuple[StoredPart, ...] = ()
    stamp: str = ""
    """What the archive said of its list, before and after it was planned from it."""
    packages: str = ""
    """The packages that its reduction runs: owner, name and version, and the archive's digest."""
    windows: tuple[PlannedWindow, ...] = ()
    """The first windows of its reduction, of `window_count`."""
    window_count: int = 0

    def sections(self, first: int = 0) -> Iterator[list[PlannedTask]]:
        """Yield the tasks in sections from section `first` on, each after those its tasks need."""
        for stretch in self.stretches[first:]:
            yield [*stretch.tasks()]

    def tasks(self) -> Iterator[PlannedTask]:
        """All tasks."""
        for section in self.sections():
            yield from section

    def sample(self, number: int) -> Iterator[PlannedTask]:
        """Yield all tasks if they are no more than about `number`, otherwise a sample of that size.

        The sample comes from a few stretches at even distances.
        """
        if self.counts.tasks <= number:
            yield from self.tasks()
            return
        apart = -(-len(self.stretches) // _SAMPLED)
        chosen = self.stretches[apart // 2 :: apart]
        for stretch in chosen:
            tasks = [*stretch.tasks()]
            yield from tasks[:: max(1, len(tasks) * len(chosen) // number)]


def freeze(
    blobs: Blobs,
    request: str,
    planned: Plan | PlanStream,
    run: str = "0",
    stopped: Callable[[], bool] = lambda: False,
) -> Frozen:
    """Store a plan and return it; if the request has a stored plan already, return that one.

    `run` is a name for this run alone; `stopped` is asked after each stretch.

    Raises:
        AbandonedError: it was stopped. A later run continues from there.
        RequestRefusedError, ArchiveError: as planning does.
    """
    there = thaw(blobs, request)
    if there is not None:
        return there
    for archive in planned.archives:
        store_package(blobs, archive)
    if isinstance(planned, Plan):
        return _freeze_plan(blobs, request, planned, run)
    stamp = planned.stamp()
    same = _same(blobs, planned.identity)
    if same is not None and stamp and same.stamp == stamp:
        return _taken_over(blobs, request, planned, same)
    known: Sequence[Planned] = _broken_off(blobs, request, planned.identity)
    trusted = bool(known)
    if not known and same is not None:
        known = same.stretches
    names = []
    for number, stretch in enumerate(planned.stretches(known, trusted=trusted)):
        if isinstance(stretch, StoredPart):
            names.append(stretch.name)
        elif isinstance(stretch, Fresh):
            names.append(_name(request, run, number))
            blobs.put_bytes(
                PLANS, names[-1], _dump(stretch.outcome, stretch.rows(), planned.identity)
            )
        if stopped():
            raise AbandonedError(request)
    gaps = [*planned.gaps()]
    if not trusted and planned.stamp() != stamp:  # it changed meanwhile
        stamp = ""
    frozen = _manifest(
        blobs,
        request,
        names,
        planned.counts,
        gaps,
        planned.notes,
        "" if trusted else stamp,
        planned.packages,
        planned.windows,
    )
    _point_at(blobs, request, planned.identity)
    return frozen


def _taken_over(blobs: Blobs, request: str, planned: PlanStream, same: Frozen) -> Frozen:
    """Freeze a plan that is that of another request."""
    names = [stretch.name for stretch in same.stretches]
    frozen = _manifest(
        blobs,
        request,
        names,
        same.counts,
        same.gaps,
        same.notes,
        same.stamp,
        planned.packages,
        same.windows,
        same.window_count,
    )
    _point_at(blobs, request, planned.identity)
    return frozen


def _point_at(blobs: Blobs, request: str, identity: str) -> None:
    blobs.put_bytes(PLANS, f"same/{identity}/{request}", request.encode())


def thaw(blobs: Blobs, request: str) -> Frozen | None:
    """Return the stored plan of a request, or None."""
    try:
        data = blobs.get_bytes(PLANS, f"{request}.plan.gz")
    except BlobMissingError:
        return None
    lines = gzip.decompress(data).splitlines()
    head = json.loads(lines[0])
    return Frozen(
        counts=Counts.from_json(head["counts"]),
        gaps=tuple(Gap(what=what, reason=reason) for what, reason in map(json.loads, lines[1:])),
        notes=tuple(head["notes"]),
        stretches=tuple(StoredPart(blobs, name) for name in head["stretches"]),
        stamp=str(head.get("stamp", "")),
        packages=str(head.get("package", "")),
        windows=tuple(PlannedWindow(**window) for window in head.get("windows", ())),
        window_count=int(head.get("window_count", 0)),
    )


def begun(blobs: Blobs, request: str) -> int:
    """How many stretches of a request's plan have been stored by all its runs."""
    return sum(1 for _ in blobs.names(PLANS, f"{request}/"))


def _freeze_plan(blobs: Blobs, request: str, plan: Plan, run: str) -> Frozen:
    """Freeze a plan made whole, as one stretch."""
    counts = Counts()
    counts.add(plan.tasks)
    name = _name(request, run, 0)
    day = date.min
    outcome = PlanOutcome(
        first=day,
        last=day,
        final=True,
        listing="",
        counts=counts,
        seen={},
        geometries={},
    )
    lines = [f"{t.key}\t{t.output}\t{t.spec.model_dump_json()}" for t in plan.tasks]
    blobs.put_bytes(PLANS, name, _dump(outcome, lines, ""))
    return _manifest(
        blobs,
        request,
        [name],
        counts,
        plan.gaps,
        plan.notes,
        packages=plan.packages,
        windows=plan.windows,
    )


def _manifest(
    blobs: Blobs,
    request: str,
    names: Sequence[str],
    counts: Counts,
    gaps: Sequence[Gap],
    notes: Sequence[str],
    stamp: str = "",
    packages: str = "",
    windows: Sequence[PlannedWindow] = (),
    window_count: int | None = None,
) -> Frozen:
    """Make the plan valid; where another run was faster, its plan is the one."""
    count = len(windows) if window_count is None else window_count
    shown = tuple(windows[:WINDOWS_TOLD])
    head = {
        "format": FORMAT,
        "stretches": names,
        "counts": counts.to_json(),
        "notes": notes,
        "stamp": stamp,
        "package": packages,
        "windows": [asdict(window) for window in shown],
        "window_count": count,
    }
    lines = [json.dumps(head), *(json.dumps([gap.what, gap.reason]) for gap in gaps)]
    data = gzip.compress("\n".join(lines).encode(), mtime=0)
    try:
        blobs.put_bytes(PLANS, f"{request}.plan.gz", data)
    except BlobExistsError:
        there = thaw(blobs, request)
        if there is not None:
            return there
        raise
    return Frozen(
        counts=counts,
        gaps=tuple(gaps),
        notes=tuple(notes),
        stretches=tuple(StoredPart(blobs, name) for name in names),
        stamp=stamp,
        packages=packages,
        windows=shown,
        window_count=count,
    )


def _same(blobs: Blobs, identity: str) -> Frozen | None:
    """Return the newest complete plan of an earlier request that asked for the same."""
    for pointer in sorted(blobs.names(PLANS, f"same/{identity}/"), reverse=True):
        earlier = thaw(blobs, pointer.rpartition("/")[2])
        if earlier is not None and _there(blobs, earlier):
            return earlier
    return None


def _there(blobs: Blobs, plan: Frozen) -> bool:
    names = [stretch.name for stretch in plan.stretches]
    folders = {name.rpartition("/")[0] for name in names}
    return {*names} <= {name for folder in folders for name in blobs.names(PLANS, f"{folder}/")}


def _broken_off(blobs: Blobs, request: str, identity: str) -> list[StoredPart]:
    """Return the longest run of a request from its first stretch on, of the same identity."""
    runs: dict[str, list[str]] = {}
    for name in blobs.names(PLANS, f"{request}/"):
        runs.setdefault(name.split("/")[1], []).append(name)
    best: list[str] = []
    for run, names in runs.items():
        whole = [n for i, n in enumerate(sorted(names)) if n == _name(request, run, i)]
        best = max(best, whole, key=len)
    found = [StoredPart(blobs, name) for name in best]
    return found if all(s.outcome and s.identity == identity for s in found) else []


def _name(request: str, run: str, number: int) -> str:
    return f"{request}/{run}/{number:05d}.gz"


def _dump(outcome: PlanOutcome, lines: Sequence[str], identity: str) -> bytes:
    """Write the outcome as a gzip member of its own, which can be read alone, then the tasks."""
    head = json.dumps(_dump_outcome(outcome) | {"identity": identity}) + "\n"
    members = (head, "\n".join(lines))
    return b"".join(isal_zlib.compress(text.encode(), _LEVEL, wbits=_GZIP) for text in members)


def _dump_outcome(outcome: PlanOutcome) -> dict[str, object]:
    return {
        "format": FORMAT,
        "first": outcome.first.isoformat(),
        "last": outcome.last.isoformat(),
        "final": outcome.final,
        "listing": outcome.listing,
        "counts": outcome.counts.to_json(),
        "seen": dump_seen(outcome.seen),
        "geometries": {str(number): kind for number, kind in outcome.geometries.items()},
        "rasters": [
            [r.key, r.file, r.folder, r.day.isoformat(), *([r.time] if r.time else [])]
            for r in outcome.rasters
        ],
        "overpasses": {str(number): count for number, count in outcome.overpasses.items()},
        "gaps": [[gap.what, gap.reason] for gap in outcome.gaps],
        "windows": [asdict(window) for window in outcome.windows],
    }


def _load_outcome(data: dict[str, Any]) -> PlanOutcome:
    return PlanOutcome(
        first=date.fromisoformat(data["first"]),
        last=date.fromisoformat(data["last"]),
        final=bool(data["final"]),
        listing=str(data["listing"]),
        counts=Counts.from_json(data["counts"]),
        seen=load_seen(data["seen"]),
        geometries={
            int(number): "tile" if kind == "tile" else "swath"
            for number, kind in data["geometries"].items()
        },
        rasters=tuple(
            PlannedRaster(
                key=key, file=file, folder=folder, day=date.fromisoformat(day), time="".join(time)
            )
            for key, file, folder, day, *time in data.get("rasters", ())
        ),
        overpasses={int(number): count for number, count in data.get("overpasses", {}).items()},
        gaps=tuple(Gap(what=what, reason=reason) for what, reason in data.get("gaps", ())),
        windows=tuple(PlannedWindow(**window) for window in data.get("windows", ())),
    )


def store_package(blobs: Blobs, package: PackageArchive) -> None:
    """Store a package under the digest of its content; other content under that name is damaged."""
    if blobs.exists(PACKAGES, package.blob):
        readings = (blobs.get_bytes(PACKAGES, package.blob) for _ in range(2))
        if any(found == package.data for found in readings):
            return
        blobs.delete(PACKAGES, package.blob)
    blobs.put_bytes(PACKAGES, package.blob, package.data)
