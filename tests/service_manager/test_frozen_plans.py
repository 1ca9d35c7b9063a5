"""Plans frozen in blobs: begun again after a crash, and taken over by requests for the same."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pytest

from archives.errors import ConnectionFailedError
from archives.model import Fetched, GranuleRecord, Holding, Progress
from bench.continent import Continent, request_document
from modis.box import LonLatBox
from modis.collection import Collection
from service_manager.planner import listing
from service_manager.planner.plan_stream import PlanStream
from service_manager.plans import stored_plan
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.settings import Settings
from tasks.storage.blobs import PLANS, MemoryBlobs

START = date(2004, 6, 1)
DAYS = 10  # three stretches


@dataclass
class Watched:
    """The synthetic catalogue; `searched` are the first days asked for, `without` what it lacks.
    `says` is its stamp, and `failures` are those of sources within."""

    says: str = "as ever"
    without: str = "nothing"
    failures: int = 0
    fails: bool = False  # during the search, as a chain with another source does
    changes: bool = False  # during the search
    searched: list[date] = field(default_factory=list)

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        self.searched.append(start_day)
        self.failures += self.fails
        self.says += "!" * self.changes
        found = Continent().search(product, collection, start_day, end_day, box)
        return (record for record in found if self.without not in record.name)

    def stamp(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> str:
        if self.says == "no answer":
            raise ConnectionFailedError("the catalogue does not answer")
        return self.says and f"{product} {collection} {start_day} {end_day} {box} {self.says}"

    def holdings(self, product: str) -> list[Holding]:
        return [Holding(product=product, collection=Collection("61"))]

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        raise NotImplementedError(f"{record.name} {to} {progress}")


def course(archive: Watched, days: int = DAYS, **changes: object) -> PlanStream:
    document = request_document(START, START + timedelta(days=days - 1), **changes)
    settings = Settings()
    return PlanStream(parse_request(document), archive, Packages.of(settings), settings)


def tasks_of(plan: stored_plan.Frozen) -> list[tuple[str, str, str]]:
    return [(t.key, t.output, t.spec.model_dump_json()) for t in plan.tasks()]


@pytest.fixture(scope="module", autouse=True)
def small_stretches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "STRETCH", 1000)
        yield


@pytest.fixture(scope="module")
def first() -> tuple[MemoryBlobs, stored_plan.Frozen]:
    """Blobs with one plan in them."""
    blobs = MemoryBlobs()
    return blobs, stored_plan.freeze(blobs, "first", course(Watched()))


def test_keys_and_specifications_of_a_frozen_plan_agree(
    first: tuple[MemoryBlobs, stored_plan.Frozen],
) -> None:
    _, plan = first
    assert len(plan.stretches) == 3
    seen: set[str] = set()
    for task in plan.tasks():
        assert task.spec.key == task.key
        assert {given.key for given in task.spec.inputs} <= seen
        seen.add(task.key)
    assert plan.counts.tasks == len(seen)


def test_the_same_is_not_listed_again_while_the_catalogue_says_that_nothing_changed(
    first: tuple[MemoryBlobs, stored_plan.Frozen],
) -> None:
    blobs, plan = first
    archive = Watched()
    again = stored_plan.freeze(blobs, "same", course(archive, title="Another title"))
    assert archive.searched == []
    assert again == plan
    assert stored_plan.thaw(blobs, "same") == plan


@pytest.mark.parametrize("says", ["something else", "", "no answer"])
def test_what_may_have_changed_is_listed_and_what_has_not_is_kept(
    first: tuple[MemoryBlobs, stored_plan.Frozen], says: str
) -> None:
    blobs, plan = first
    archive = Watched(says=says)
    again = stored_plan.freeze(blobs, f"listed, {says}", course(archive))
    assert set(archive.searched) == {START}
    assert [s.name for s in again.stretches] == [s.name for s in plan.stretches]
    assert again.counts == plan.counts
    assert bool(again.stamp) == (says == "something else")


def test_from_the_first_change_on_all_is_planned_anew(
    first: tuple[MemoryBlobs, stored_plan.Frozen],
) -> None:
    blobs, plan = first
    archive = Watched(says="less", without="MOD09GA.A2004158.h09v05")  # the sixth day
    again = stored_plan.freeze(blobs, "changed", course(archive))
    names = [s.name for s in again.stretches]
    assert names[0] == plan.stretches[0].name
    assert all(name.startswith("changed/") for name in names[1:])
    assert again.counts.granules == plan.counts.granules - 1
    assert tasks_of(again) == tasks_of(stored_plan.freeze(MemoryBlobs(), "alone", course(archive)))


@pytest.mark.parametrize("trouble", ["fails", "changes"])
def test_a_list_that_was_cut_or_changed_meanwhile_is_read_again(trouble: str) -> None:
    blobs = MemoryBlobs()
    archive = Watched(fails=trouble == "fails", changes=trouble == "changes")
    assert stored_plan.freeze(blobs, "one", course(archive, 3)).stamp == ""
    calm = Watched(says=archive.says)
    assert stored_plan.freeze(blobs, "two", course(calm, 3)).stamp
    assert calm.searched
    calm.searched.clear()
    stored_plan.freeze(blobs, "three", course(calm, 3))
    assert calm.searched == []


def test_another_request_has_another_plan(first: tuple[MemoryBlobs, stored_plan.Frozen]) -> None:
    blobs, _ = first
    archive = Watched()
    stored_plan.freeze(blobs, "another", course(archive, 2))
    assert archive.searched


def test_a_run_that_broke_off_is_gone_on_with(
    first: tuple[MemoryBlobs, stored_plan.Frozen],
) -> None:
    _, plan = first
    blobs, archive = MemoryBlobs(), Watched()
    with pytest.raises(stored_plan.AbandonedError):
        stored_plan.freeze(blobs, "broken", course(archive), "run1", lambda: True)
    assert stored_plan.begun(blobs, "broken") == 1
    archive.searched.clear()
    whole = stored_plan.freeze(blobs, "broken", course(archive), "run2")
    (resumed,) = set(archive.searched)
    assert resumed == plan.stretches[0].outcome.last + timedelta(days=1)
    assert tasks_of(whole) == tasks_of(plan)
    assert whole.counts == plan.counts
    # What the catalogue listed in the first run is not known to be what it lists now.
    assert whole.stamp == ""


def test_a_plan_whose_blobs_are_gone_is_made_anew(
    first: tuple[MemoryBlobs, stored_plan.Frozen],
) -> None:
    _, plan = first
    blobs, archive = MemoryBlobs(), Watched()
    kept = stored_plan.freeze(blobs, "gone", course(archive))
    blobs.delete(PLANS, kept.stretches[1].name)
    again = stored_plan.freeze(blobs, "again", course(archive))
    assert all(stretch.name.startswith("again/") for stretch in again.stretches)
    assert tasks_of(again) == tasks_of(plan)
