"""Store a plan in blobs, so that a crash does not change it, whatever the archive lists by then.

| blob in `plans` | content |
|---|---|
| `REQUEST/RUN/00000.stretch.gz`, ... | the stretches of one run, each with its outcome |
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
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date

from isal import isal_zlib
from pydantic import TypeAdapter

from service_manager.planner.counts import Counts
from service_manager.planner.plan_stream import Fresh, Planned, PlanOutcome, PlanStream
from tasks.bag.kinds import load_spec
from tasks.errors import BlobExistsError, BlobMissingError, SwathmillError
from tasks.packages.packages import PackageArchive
from tasks.requests.plan import Gap, Plan, PlannedTask, PlannedWindow
from tasks.storage.blobs import PACKAGES, PLANS, Blobs

WINDOWS_TOLD = 40
"""The most windows of a reduction that a preview names."""

_SAMPLED = 8  # stretches that stand for all
_GZIP = 31  # zlib's name for the format
_LEVEL = 1  # of compression: keys do not compress, the rest does at any level


class AbandonedError(SwathmillError):
    """Planning was told to stop."""

    def __init__(self, request: str) -> None:
        super().__init__(f"the planning of {request} was stopped; it is not wanted any more")


@dataclass(frozen=True, kw_only=True)
class _Head:
    """What the blob of a stretch begins with."""

    identity: str
    outcome: PlanOutcome


_HEAD = TypeAdapter(_Head)


@dataclass(frozen=True)
class StoredPart:
    """A stretch in its blob, read each time it is asked for: thousands of them must fit memory."""

    blobs: Blobs
    name: str

    @property
    def identity(self) -> str:
        """The identity of its plan; BlobMissingError when the blob is gone."""
        return self._head().identity

    @property
    def outcome(self) -> PlanOutcome:
        """The part that is known without the tasks; BlobMissingError when the blob is gone."""
        return self._head().outcome

    def _head(self) -> _Head:
        head = zlib.decompressobj(wbits=_GZIP)
        return _HEAD.validate_json(head.decompress(self.blobs.get_bytes(PLANS, self.name)))

    def tasks(self) -> Iterator[PlannedTask]:
        """Yield the tasks, inputs first. Raises BlobMissingError when the blob is gone."""
        text = gzip.decompress(self.blobs.get_bytes(PLANS, self.name))
        lines = iter(text.splitlines())
        next(lines)
        for line in lines:
            key, output, spec = line.split(b"\t", 2)
            yield PlannedTask(spec=load_spec(spec), output=output.decode(), key=key.decode())


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    """What is known of a frozen plan without its stretches, of which it has the names."""

    names: tuple[str, ...]
    counts: Counts
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    stamp: str = ""
    """What the archive said of its list, before and after it was planned from it."""
    packages: str = ""
    """The packages that its reduction runs: owner, name and version, and the archive's digest."""
    windows: tuple[PlannedWindow, ...] = ()
    """The first windows of its reduction, of `window_count`."""
    window_count: int = 0


_MANIFEST = TypeAdapter(_Manifest)


@dataclass(frozen=True, kw_only=True)
class Frozen(_Manifest):
    """A frozen plan: its counts at hand, its tasks stretch by stretch."""

    stretches: tuple[StoredPart, ...] = ()

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
        return _publish(blobs, request, replace(same, packages=planned.packages), planned.identity)
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
    gaps = tuple(planned.gaps())
    if trusted or planned.stamp() != stamp:  # it changed meanwhile, or may have
        stamp = ""
    manifest = _manifest(planned, names, planned.counts, gaps, stamp)
    return _publish(blobs, request, manifest, planned.identity)


def thaw(blobs: Blobs, request: str) -> Frozen | None:
    """Return the stored plan of a request, or None."""
    try:
        data = blobs.get_bytes(PLANS, f"{request}.plan.gz")
    except BlobMissingError:
        return None
    manifest = _read(gzip.decompress(data))
    stretches = tuple(StoredPart(blobs, name) for name in manifest.names)
    return Frozen(**vars(manifest), stretches=stretches)


def _write(manifest: _Manifest) -> bytes:
    """Write a manifest as all builds of schema 6 read it: a line, and one more for each gap."""
    head = _MANIFEST.dump_python(manifest, mode="json")
    gaps = [[gap["what"], gap["reason"]] for gap in head.pop("gaps")]
    head |= {"stretches": head.pop("names"), "package": head.pop("packages")}
    return "\n".join(map(json.dumps, (head, *gaps))).encode()


def _read(text: bytes) -> _Manifest:
    """Read what `_write` wrote."""
    head, *gaps = map(json.loads, text.splitlines())
    said = [{"what": what, "reason": reason} for what, reason in gaps]
    head |= {"names": head["stretches"], "packages": head["package"], "gaps": said}
    return _MANIFEST.validate_json(json.dumps(head))


def begun(blobs: Blobs, request: str) -> int:
    """Return how many stretches of a request's plan have been stored by all its runs."""
    return sum(1 for _ in blobs.names(PLANS, f"{request}/"))


def _freeze_plan(blobs: Blobs, request: str, plan: Plan, run: str) -> Frozen:
    """Freeze a plan made whole, as one stretch."""
    counts = Counts()
    counts.add(plan.tasks)
    name = _name(request, run, 0)
    day = date.min
    outcome = PlanOutcome(
        first=day, last=day, final=True, listing="", counts=counts, seen={}, geometries={}
    )
    lines = [f"{t.key}\t{t.output}\t{t.spec.model_dump_json()}" for t in plan.tasks]
    blobs.put_bytes(PLANS, name, _dump(outcome, lines, ""))
    return _publish(blobs, request, _manifest(plan, [name], counts, plan.gaps))


def _manifest(
    planned: Plan | PlanStream,
    names: Sequence[str],
    counts: Counts,
    gaps: tuple[Gap, ...],
    stamp: str = "",
) -> _Manifest:
    return _Manifest(
        names=tuple(names),
        counts=counts,
        gaps=gaps,
        notes=planned.notes,
        stamp=stamp,
        packages=planned.packages,
        windows=tuple(planned.windows[:WINDOWS_TOLD]),
        window_count=len(planned.windows),
    )


def _publish(blobs: Blobs, request: str, manifest: _Manifest, identity: str = "") -> Frozen:
    """Make the plan valid; where another run was faster, its plan is the one."""
    with suppress(BlobExistsError):
        blobs.put_bytes(PLANS, f"{request}.plan.gz", gzip.compress(_write(manifest), mtime=0))
    if identity:
        blobs.put_bytes(PLANS, f"same/{identity}/{request}", request.encode())
    frozen = thaw(blobs, request)
    if frozen is None:
        raise BlobMissingError(f"{PLANS}/{request}.plan.gz")
    return frozen


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
    return found if all(part.identity == identity for part in found) else []


def _name(request: str, run: str, number: int) -> str:
    # Builds that write stretches in another form have another ending, and do not continue these.
    return f"{request}/{run}/{number:05d}.stretch.gz"


def _dump(outcome: PlanOutcome, lines: Sequence[str], identity: str) -> bytes:
    """Write the outcome as a gzip member of its own, which can be read alone, then the tasks."""
    head = _HEAD.dump_json(_Head(identity=identity, outcome=outcome)) + b"\n"
    members = (head, "\n".join(lines).encode())
    return b"".join(isal_zlib.compress(text, _LEVEL, wbits=_GZIP) for text in members)


def store_package(blobs: Blobs, package: PackageArchive) -> None:
    """Store a package under the digest of its content; other content under that name is damaged."""
    if blobs.exists(PACKAGES, package.blob):
        readings = (blobs.get_bytes(PACKAGES, package.blob) for _ in range(2))
        if any(found == package.data for found in readings):
            return
        blobs.delete(PACKAGES, package.blob)
    blobs.put_bytes(PACKAGES, package.blob, package.data)
