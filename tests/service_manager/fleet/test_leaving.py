"""Who leaves when the fleet has more slots than are wanted, and that it costs no attempt."""

from collections import deque

from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.fleet.leaving import Leaving
from service_manager.fleet.wanted_slots import WantedSlots
from service_manager.options import ManagerOptions
from tasks.bag.workers import Hold, WorkerRow
from tests.service_manager.fleet.test_wanted_slots import attempt, event

PATIENCE = 300.0


def worker(name: str, **more: object) -> WorkerRow:
    row = {"name": name, "host": name, "slots": 2, "started": 1.0, "beat_at": 1.0} | more
    return WorkerRow(**row)  # type: ignore[arg-type]


def names(found: list[WorkerRow]) -> list[str]:
    return [one.name for one in found]


def patient(wanted: int) -> Leaving:
    """One that has seen so many wanted for long enough."""
    rule = Leaving(PATIENCE)
    for now in range(0, int(PATIENCE), 30):
        assert rule.choose([worker("a")] * 9, {}, wanted, float(now)) == []
    return rule


def test_nobody_leaves_unless_it_is_asked_for() -> None:
    rule = Leaving(0.0)
    assert [rule.choose([worker("a"), worker("b")], {}, 0, n * 1e3) for n in range(5)] == [[]] * 5


def test_slow_ones_go_first_then_idle_ones_then_the_newest() -> None:
    fleet = [
        worker("busy"),
        worker("slow", hold=Hold.DRAINED),
        worker("old"),
        worker("new", started=9.0),
    ]
    running = {"busy": 2, "slow": 2}
    for wanted, expected in ((6, 1), (4, 2), (2, 3), (0, 4)):
        chosen = patient(wanted).choose(fleet, running, wanted, PATIENCE)
        assert names(chosen) == ["slow", "new", "old", "busy"][:expected]


def test_what_is_unfit_goes_before_what_works() -> None:
    fleet = [worker("new", started=9.0), worker("broken", unfit="no scratch")]
    assert names(patient(2).choose(fleet, {}, 2, PATIENCE)) == ["broken"]


def test_the_slots_that_stay_are_never_fewer_than_wanted() -> None:
    fleet = [worker("large", slots=8), worker("small", slots=1), worker("going", draining=True)]
    assert names(patient(8).choose(fleet, {}, 8, PATIENCE)) == ["small"]
    assert names(patient(9).choose(fleet, {}, 9, PATIENCE)) == []
    assert names(patient(1).choose(fleet, {}, 1, PATIENCE)) == ["large"]


def test_a_short_lull_sends_nobody_away() -> None:
    rule = patient(4)
    fleet = [worker("a"), worker("b")]
    assert rule.choose(fleet, {}, 0, PATIENCE) == []
    assert rule.choose(fleet, {}, 4, PATIENCE + 30) == []
    assert rule.choose(fleet, {}, 0, 2 * PATIENCE) == []
    assert names(rule.choose(fleet, {}, 0, 2 * PATIENCE + 31)) == ["a", "b"]


def test_a_fleet_of_two_hundred_goes_home_without_an_attempt_cut_off() -> None:
    """From 200 busy workers to none: the real rules, attempts of 5 to 40 minutes."""
    options = ManagerOptions(scale_in=PATIENCE)
    wanted, leaving = WantedSlots(options), Leaving(options.scale_in)
    cache = ManagerCache()
    fleet = {f"w{n}": worker(f"w{n}", started=float(n)) for n in range(200)}
    ends: dict[str, deque[int]] = {}
    for number, name in enumerate(fleet):
        ends[name] = deque((300 + 10 * number + 60 * slot) % 2400 for slot in range(2))
    seen: deque[int] = deque(maxlen=int(PATIENCE) // 5 + 1)  # slots at work, look by look
    for now in range(0, 4000, 5):
        for name, left in ends.items():
            for end in [end for end in left if end <= now]:
                left.remove(end)
                wanted.ended(event(f"{name}.{end}", 300.0))
        busy = {name: len(left) for name, left in ends.items() if left}
        cache.running = {f"{n}.{e}": attempt(f"{n}.{e}") for n, left in ends.items() for e in left}
        cache.slots = sum(row.slots for row in fleet.values())
        count = wanted.count(cache, {}, float(now))
        for row in leaving.choose(fleet.values(), busy, count, float(now)):
            fleet[row.name] = worker(row.name, started=row.started, draining=True)
        for name in [n for n, row in fleet.items() if row.draining and not busy.get(n)]:
            del fleet[name]
        seen.append(cache.busy)
        staying = sum(row.slots for row in fleet.values() if not row.draining)
        assert now < PATIENCE or staying <= max(seen) + 1, "no slot is idle for longer"
    assert not fleet, "all have left"
    assert not any(ends.values()), "and every attempt came to its end"
