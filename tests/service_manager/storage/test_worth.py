"""What is kept, and what goes first: by cost of keeping and of making again, and by a quota."""

from random import Random

import pytest

from service_manager.storage.worth import Kept, Policy, Wanting, Why, beyond_quota, kept
from swathmill.commands.stored.storage import look
from tasks.bag.expectation import Times
from tasks.bag.history import ClassStatistics
from tasks.bag.model import ArtifactFile, Phase, State, Task
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

GB = 10**9
DAY = 86_400.0
POLICY = Policy(storage=0.02, core_hour=0.05, download=0.01, results=30 * DAY)
NOW = 1_000 * DAY


def one(
    key: str = "a" * 64,
    *,
    phase: Phase = Phase.REPROJECTION,
    size: int = GB,
    seconds: float = 3600.0,
    age: float = 0.0,
    ended: tuple[float, ...] = (),
) -> Kept:
    """An artifact so many days old, wanted by requests that ended days ago (below 0: not yet)."""
    wanted = [
        Wanting(request=f"r{n}", ended=0.0 if days < 0 else NOW - days * DAY)
        for n, days in enumerate(ended)
    ]
    return Kept(
        key=key,
        phase=phase,
        size=size,
        seconds=seconds,
        made=NOW - age * DAY,
        wanted=tuple(wanted),
    )


def test_it_is_kept_until_keeping_has_cost_as_much_as_making_again() -> None:
    # An hour of a core for 0.05, a GB for 0.02 a month: 75 days.
    assert one(age=74.9).why(POLICY, NOW) is Why.WORTH
    assert one(age=75.1).why(POLICY, NOW) is Why.NOT
    assert one(age=151, seconds=7200).why(POLICY, NOW) is Why.NOT
    assert one(age=149, seconds=7200).why(POLICY, NOW) is Why.WORTH
    assert one(age=149, size=GB // 2).why(POLICY, NOW) is Why.WORTH
    # What was fetched is fetched again, for 0.01 a GB: 15 days more.
    assert one(age=89.9, phase=Phase.COLLECTION).why(POLICY, NOW) is Why.WORTH
    assert one(age=90.1, phase=Phase.COLLECTION).why(POLICY, NOW) is Why.NOT


def test_what_was_of_use_lately_counts_from_then() -> None:
    assert one(age=500, ended=(74.9,)).why(POLICY, NOW) is Why.WORTH
    assert one(age=500, ended=(400, 74.9)).why(POLICY, NOW) is Why.WORTH
    assert one(age=500, ended=(75.1,)).why(POLICY, NOW) is Why.NOT


@pytest.mark.parametrize("ended", [(-1,), (400, -1)])
def test_what_a_request_needs_is_kept_whatever_it_costs(ended: tuple[float, ...]) -> None:
    needed = one(age=900, size=1000 * GB, seconds=1.0, ended=ended)
    assert needed.why(POLICY, NOW) is Why.NEEDED
    assert beyond_quota([needed], 2000 * GB, Policy(quota=GB), NOW) == []


def test_results_are_kept_for_their_days() -> None:
    assert one(size=1000 * GB, ended=(29,)).why(POLICY, NOW) is Why.RESULT
    assert one(size=1000 * GB, ended=(31,), age=31).why(POLICY, NOW) is Why.NOT
    assert one(size=1000 * GB, ended=(30,), age=31).why(POLICY, NOW) is Why.NOT


@pytest.mark.parametrize("ended", [(29, 400), (400, 29), (29, 31)])
def test_a_result_is_kept_for_the_last_of_its_requests(ended: tuple[float, ...]) -> None:
    assert one(size=1000 * GB, age=500, ended=ended).why(POLICY, NOW) is Why.RESULT


def test_a_quota_takes_what_costs_least_for_its_size_and_no_more_than_it_must() -> None:
    dear, cheap, middling = (
        one("d" * 64, size=GB // 1000, seconds=50.0),
        one("c" * 64, size=20 * GB, seconds=72_000.0),
        one("m" * 64, size=2 * GB, seconds=20_000.0),
    )
    policy = Policy(quota=10 * GB)
    total = sum(each.size for each in (dear, cheap, middling))
    assert beyond_quota([dear, middling, cheap], total, policy, NOW) == [cheap]
    assert beyond_quota([dear, middling, cheap], total, Policy(quota=GB), NOW) == [cheap, middling]
    assert beyond_quota([dear, middling, cheap], total, Policy(), NOW) == []


def test_what_is_shown_to_go_next_is_what_goes() -> None:
    random = Random(5)
    all_of_them = [
        one(f"{n:064x}", size=random.randrange(1, 5 * GB), seconds=random.uniform(1, 40_000))
        for n in range(40)
    ]
    for policy in (Policy(), Policy(quota=1), Policy(quota=30 * GB)):
        shown = sorted(all_of_them, key=lambda each: each.turn(policy, NOW))
        gone = beyond_quota(all_of_them, sum(k.size for k in all_of_them), policy, NOW)
        assert gone == shown[: len(gone)]
    late = [one("e" * 64, age=10_000), *all_of_them]
    assert min(late, key=lambda each: each.turn(Policy(quota=1), NOW)).key == "e" * 64


def test_a_task_s_artifact_has_the_mean_of_its_class() -> None:
    file = ArtifactFile(name="x", blob="artifacts/x", size=7, sha256="0" * 64)
    task = Task(
        key="a" * 64,
        phase=Phase.COLLECTION,
        task_class="collect.x",
        inputs=0,
        state=State.DONE,
        missing=0,
        has_dependents=False,
        interests=(),
        sponsor="",
        files=(file, file),
        claimed_at=12.0,
    )
    times = Times({"collect.x": ClassStatistics(task_class="collect.x", count=1, mean=3.0)})
    assert kept(task, times, []).seconds == 3.0
    assert kept(task, Times({}), []).seconds == 60.0
    assert (kept(task, times, []).size, kept(task, times, []).made) == (14, 12.0)


def test_storage_is_looked_through_by_phase() -> None:
    granule = collect("g")
    top = mosaic("m", granule)
    b = Bench(plans={"p": plan_of(granule, top, outputs={"m": "out"})})
    request = b.submit("p")
    b.until_ended(request)
    held, least = look(b.runtime, Policy(), b.runtime.clock.now())
    assert {phase: of.count for phase, of in held.items() if of.count} == {
        Phase.COLLECTION: 1,
        Phase.AGGREGATION: 1,
    }
    assert least == []  # results of a request that has just ended
    _, least = look(b.runtime, Policy(results=0.0), b.runtime.clock.now())
    assert {each.key for each in least} == {granule.key, top.key}
