"""What is stored of a plan is what was planned, and what of it is read for an estimate."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import cast

import pytest

from modis.tile import Tile
from service_manager.planner.counts import Counts, kind_of
from service_manager.planner.draft import Line, PlannedRaster
from service_manager.planner.plan_stream import Fresh, Planned, PlanOutcome, PlanStream
from service_manager.plans import stored_plan
from service_manager.plans.stored_plan import Frozen, StoredPart
from tasks.bag.model import Phase
from tasks.errors import BlobMissingError
from tasks.packages.packages import PackageArchive, pack
from tasks.requests.plan import Gap, Plan, PlannedTask, PlannedWindow
from tasks.storage.blobs import PACKAGES, PLANS, MemoryBlobs
from tests.service_manager.workbench import collect, mosaic, plan_of

DAY = date(2012, 1, 31)
G = collect("g")
TOP = mosaic("top", G)
WINDOWS = tuple(
    PlannedWindow(step="s", window=f"w{i}", runs=i, has="MOD13A2.006: 8", lacks="a day")
    for i in range(45)
)
GAP = Gap(what="g", reason="not in the archive")
OUTCOME = PlanOutcome(
    first=DAY,
    last=date(2012, 2, 3),
    final=False,
    listing="listed",
    counts=Counts(download=7),
    seen={0: {DAY: frozenset({Tile(18, 4)})}},
    geometries={1: "tile", 2: "swath"},
    rasters=(
        PlannedRaster(key="k", file="f.tif", folder="out", day=DAY),
        PlannedRaster(key="l", file="f.tif", folder="out", day=DAY, time="10:30"),
    ),
    gaps=(GAP,),
    windows=WINDOWS[:2],
    overpasses={3: 4},
)


@dataclass
class Stream:
    """A planner of stretches of one granule each; it keeps what it knows of them."""

    stretches_: int = 3
    identity: str = "same"
    stamps: list[str] = field(default_factory=lambda: ["as ever"])  # the last one stays
    packages: str = ""
    asked: list[tuple[list[str], bool]] = field(default_factory=list)
    archives: Sequence[PackageArchive] = ()
    notes: tuple[str, ...] = ("a note",)
    windows: tuple[PlannedWindow, ...] = WINDOWS
    counts: Counts = field(default_factory=Counts)

    def stamp(self) -> str:
        return self.stamps.pop(0) if len(self.stamps) > 1 else self.stamps[0]

    def stretches(self, known: Sequence[Planned], *, trusted: bool) -> Iterator[Planned]:
        parts = cast("Sequence[StoredPart]", known)
        self.asked.append(([part.name for part in parts], trusted))
        yield from known
        for number in range(len(known), self.stretches_):
            spec = collect(f"g{number}")
            line = Line(output="", text=spec.model_dump_json(), kind=kind_of(spec))
            yield Fresh(outcome=OUTCOME, lines={spec.key: line})

    def gaps(self) -> tuple[Gap, ...]:
        return (Gap(what="day 3", reason="no granule"),)


def freeze(
    blobs: MemoryBlobs, request: str, stream: Stream, run: str = "0", stop_after: int = 0
) -> Frozen:
    stops = iter([False] * (stop_after - 1) + [True])
    return stored_plan.freeze(
        blobs,
        request,
        cast(PlanStream, stream),
        run,
        (lambda: next(stops)) if stop_after else (lambda: False),
    )


def names(plan: Frozen) -> list[str]:
    return [stretch.name for stretch in plan.stretches]


def test_what_is_known_of_a_stretch_is_read_without_its_tasks() -> None:
    blobs = MemoryBlobs()
    (stretch, *_) = freeze(blobs, "r", Stream(identity="asked for")).stretches
    assert (stretch.outcome, stretch.identity) == (OUTCOME, "asked for")
    assert [task.key for task in stretch.tasks()] == [collect("g0").key]
    blobs.delete(PLANS, stretch.name)
    with pytest.raises(BlobMissingError):
        list(stretch.tasks())


def test_a_plan_made_whole_is_frozen_with_all_that_is_said_of_it() -> None:
    blobs = MemoryBlobs()
    tasks = plan_of(G, TOP, outputs={"top": "out"}).tasks
    gaps = (Gap(what="day 3", reason="no granule"), Gap(what="day 4", reason="damaged"))
    plan = Plan(tasks=tasks, gaps=gaps, notes=("a note",), packages="own 1 d", windows=WINDOWS)
    frozen = stored_plan.freeze(blobs, "r", plan, "run")
    assert names(frozen) == ["r/run/00000.stretch.gz"]
    assert tuple(frozen.tasks()) == tasks
    assert (frozen.gaps, frozen.notes, frozen.packages) == (gaps, ("a note",), "own 1 d")
    assert (frozen.windows, frozen.window_count) == (WINDOWS[:40], 45)
    assert (frozen.counts.tasks, frozen.counts.results, frozen.stamp) == (2, 1, "")
    assert stored_plan.thaw(blobs, "r") == frozen
    assert stored_plan.freeze(blobs, "r", Plan(tasks=()), "later") == frozen
    assert frozen.stretches[0].outcome.final


def test_of_two_runs_at_once_the_plan_of_the_faster_is_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blobs = MemoryBlobs()
    fast = freeze(blobs, "r", Stream(), "fast")
    found = iter([None, fast])
    monkeypatch.setattr(stored_plan, "thaw", lambda *_: next(found))
    assert stored_plan.freeze(blobs, "r", Plan(tasks=()), "slow") == fast


def test_a_stream_is_stored_stretch_by_stretch() -> None:
    blobs = MemoryBlobs()
    frozen = freeze(blobs, "r", Stream(packages="own 1 d"), "run")
    assert names(frozen) == [f"r/run/0000{n}.stretch.gz" for n in range(3)]
    assert [len(section) for section in frozen.sections(first=1)] == [1, 1]
    assert frozen.gaps == Stream().gaps()
    assert (frozen.notes, frozen.packages) == (("a note",), "own 1 d")
    assert (frozen.stamp, frozen.window_count) == ("as ever", 45)
    assert stored_plan.thaw(blobs, "r") == frozen
    freeze(blobs, "r2", Stream(identity="another"))
    assert stored_plan.begun(blobs, "r") == 3


def test_the_same_asked_for_again_is_taken_over_while_the_list_is_as_ever() -> None:
    blobs = MemoryBlobs()
    first = freeze(blobs, "first", Stream(packages="own 1 d"))
    again = Stream(packages="own 2 e")
    assert freeze(blobs, "second", again) == replace(first, packages="own 2 e")
    assert again.asked == []
    third = Stream(stamps=["new"])
    taken = freeze(blobs, "third", third)
    assert (names(taken), taken.stamp) == (names(first), "new")
    assert third.asked == [(names(first), False)]  # each is compared with the list
    fourth = Stream(stamps=[""])
    assert freeze(blobs, "fourth", fourth).stamp == ""
    assert fourth.asked == [(names(first), False)]
    other = Stream(identity="another")
    freeze(blobs, "other", other)
    assert other.asked == [([], False)]


def test_a_stamp_that_changed_meanwhile_is_none() -> None:
    assert freeze(MemoryBlobs(), "r", Stream(stamps=["before", "after"])).stamp == ""


def test_the_newest_earlier_plan_that_is_whole_is_taken() -> None:
    blobs = MemoryBlobs()
    plans = {
        name: freeze(blobs, name, Stream(stamps=[name], stretches_=n))
        for n, name in enumerate(("a", "b", "c"), 1)
    }
    blobs.delete(PLANS, names(plans["c"])[2])
    stream = Stream(stamps=["now"])
    freeze(blobs, "d", stream)
    assert stream.asked == [(names(plans["b"]), False)]


def test_the_longest_run_that_broke_off_is_gone_on_with() -> None:
    blobs = MemoryBlobs()
    for run, number in (("one", 1), ("two", 2), ("three", 3)):
        with pytest.raises(stored_plan.AbandonedError, match="planning of r was stopped"):
            # Each run plans anew, as if what was there could not be read.
            freeze(blobs, "r", Stream(identity=run, stretches_=4), run, stop_after=number)
    blobs.delete(PLANS, "r/three/00001.stretch.gz")  # so it has one stretch from the first on
    stream = Stream(identity="two")
    frozen = freeze(blobs, "r", stream, "four")
    assert stream.asked == [(["r/two/00000.stretch.gz", "r/two/00001.stretch.gz"], True)]
    assert names(frozen) == [
        "r/two/00000.stretch.gz",
        "r/two/00001.stretch.gz",
        "r/four/00002.stretch.gz",
    ]
    assert frozen.stamp == ""  # the list may have changed since


def sampled(number: int, stretches: int = 20) -> list[tuple[int, int]]:
    """The stretch and place of each task in a sample of a plan of ten tasks a stretch."""

    class Part(StoredPart):
        def tasks(self) -> Iterator[PlannedTask]:
            found: Mapping[int, PlannedTask] = {
                i: PlannedTask(spec=G, key=f"{self.name} {i}") for i in range(10)
            }
            yield from found.values()

    counts = Counts()
    counts.phases[G.phase] = 10 * stretches
    parts = tuple(Part(MemoryBlobs(), f"{i}") for i in range(stretches))
    plan = Frozen(names=(), counts=counts, stretches=parts)
    keys = [task.key.split() for task in plan.sample(number)]
    return [(int(stretch), int(place)) for stretch, place in keys]


def test_a_sample_is_of_tasks_at_even_distances_in_few_stretches() -> None:
    every = [(stretch, place) for stretch in range(20) for place in range(10)]
    assert sampled(200) == every
    assert sampled(199) == [(s, p) for s in range(1, 20, 3) for p in range(10)]
    assert sampled(20) == [(s, p) for s in range(1, 20, 3) for p in (0, 3, 6, 9)]
    assert sampled(5, stretches=4) == [(s, p) for s in range(4) for p in (0, 8)]


def test_a_package_that_is_damaged_in_storage_is_stored_again(tmp_path: Path) -> None:
    (tmp_path / "package.yaml").write_text(
        "name: own\ncommand: [python, run.py]\noutputs: [o.txt]\n"
    )
    (tmp_path / "run.py").write_text("print()")
    package, blobs = pack(tmp_path), MemoryBlobs()
    for content in (None, package.data[:-1], package.data):
        if content is not None:
            blobs.delete(PACKAGES, package.blob)
            blobs.put_bytes(PACKAGES, package.blob, content)
        stored_plan.store_package(blobs, package)
        assert blobs.get_bytes(PACKAGES, package.blob) == package.data


def test_a_plan_of_the_build_before_is_read_and_what_it_began_is_planned_anew() -> None:
    """It wrote a line for what is known and one for each gap. Requests go on after an upgrade."""
    head = {
        "format": 2,
        "stretches": ["r/0/00000.gz"],
        "counts": Counts(download=7).__dict__ | {"phases": {"collection": 2}},
        "notes": ["a note"],
        "stamp": "as ever",
        "package": "ours/mean@1",
        "windows": [asdict(WINDOWS[0])],
        "window_count": 1,
    }
    lines = [json.dumps(head), json.dumps(["g", "not in the archive"])]
    blobs = MemoryBlobs()
    blobs.put_bytes(PLANS, "r.plan.gz", gzip.compress("\n".join(lines).encode()))
    found = stored_plan.thaw(blobs, "r")
    assert found is not None
    assert (found.counts.download, found.counts.phases) == (7, {Phase.COLLECTION: 2})
    assert (found.gaps, found.notes) == ((GAP,), ("a note",))
    assert (found.packages, found.windows, found.window_count) == ("ours/mean@1", WINDOWS[:1], 1)
    assert [part.name for part in found.stretches] == ["r/0/00000.gz"]
    began = json.dumps({"identity": "same", "first": "2012-01-31"}).encode() + b"\n"
    blobs.put_bytes(PLANS, "s/0/00000.gz", gzip.compress(began))
    stream = Stream()
    assert stored_plan.freeze(blobs, "s", cast("PlanStream", stream), run="1").stretches
    assert stream.asked == [([], False)]


def test_the_build_before_reads_a_plan_too() -> None:
    """The way back from an upgrade is open."""
    blobs = MemoryBlobs()
    stored_plan.freeze(blobs, "r", replace(plan_of(G), gaps=(GAP,), packages="ours/mean@1"))
    first, *gaps = gzip.decompress(blobs.get_bytes(PLANS, "r.plan.gz")).splitlines()
    head = json.loads(first)
    assert (head["stretches"], head["package"]) == (["r/0/00000.stretch.gz"], "ours/mean@1")
    assert [json.loads(gap) for gap in gaps] == [["g", "not in the archive"]]
