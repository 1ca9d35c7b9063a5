"""What operators pause, limit and drain: nothing of it starts, and what runs goes on."""

from copy import deepcopy
from dataclasses import replace

import pytest

from service_manager.dispatch.attempt_statistics import AttemptStatistics
from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.ledger import Entry
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.fleet.machines import Machines
from service_manager.options import ManagerOptions
from tasks.bag import workers
from tasks.bag.model import Phase, RequestOrder, RequestState, TaskOutcome
from tasks.bag.workers import Ask, Hold, WorkerRow
from tasks.operators import restrictions
from tasks.operators.restrictions import Kind, Restriction, Restrictions
from tasks.requests import request_operations
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tests.service_manager.leader.test_manager import bench
from tests.service_manager.test_decisions import cache, running, sent
from tests.service_manager.test_slow_machines import OPTIONS
from tests.service_manager.workbench import Bench, collect, plan_of

FETCH, WARP = "collection P.6", "reprojection P.6 0.01"


def restrict(seen: ManagerCache, *some: Restriction) -> None:
    seen.restrictions = Restrictions.of(some)
    for live in seen.requests.values():
        live.stopped = seen.restrictions.stop(live.row.owner, live.row.package)


def put(b: Bench, kind: Kind, subject: str, value: float = 0.0) -> None:
    restrictions.put(b.runtime.store, Restriction(kind=kind, subject=subject, value=value))


def lift(b: Bench, kind: Kind, subject: str) -> None:
    assert restrictions.lift(b.runtime.store, b.runtime.clock, kind, subject)


# --- dispatch ---


def test_of_a_paused_phase_nothing_is_sent_nor_sent_again() -> None:
    dispatch, seen = Dispatch(window=9, resend=30), cache(("r", "a", 1.0), slots=4)
    dispatch.add("f1", "r", FETCH)
    assert sent(dispatch, seen, 0.0) == ["f1"]
    dispatch.add("f2", "r", FETCH)
    dispatch.add("w1", "r", WARP)
    restrict(seen, Restriction(kind=Kind.PAUSE_PHASE, subject="collection"))
    assert sent(dispatch, seen, 100.0) == ["w1"]
    assert dispatch.backlog(seen) == {"r": 1}
    assert not dispatch.overtaken(seen)
    restrict(seen)
    assert sorted(sent(dispatch, seen, 101.0)) == ["f1", "f2"]


def test_a_paused_owner_waits_and_others_go_on() -> None:
    dispatch = Dispatch(window=9, resend=30)
    seen = cache(("r", "a", 1.0), ("s", "b", 2.0), slots=4)
    dispatch.add("k1", "r", FETCH)
    dispatch.add("k2", "s", FETCH)
    restrict(seen, Restriction(kind=Kind.PAUSE_OWNER, subject="a"))
    assert sent(dispatch, seen, 0.0) == ["k2"]
    assert dispatch.backlog(seen) == {"s": 1}
    restrict(seen)
    assert sent(dispatch, seen, 1.0) == ["k1"]


@pytest.mark.parametrize(
    "limit",
    [
        Restriction(kind=Kind.LIMIT_PHASE, subject="collection", value=3),
        Restriction(kind=Kind.LIMIT_OWNER, subject="a", value=3),
    ],
)
def test_no_more_than_the_limit_is_in_flight(limit: Restriction) -> None:
    dispatch = Dispatch(window=64, resend=30, expected=lambda _class: 0.01)
    seen = cache(("r", "a", 1.0), ("s", "a", 2.0), slots=2)
    seen.running["x"] = replace(running("x"), phase=Phase.COLLECTION)
    for i in range(80):
        dispatch.add(f"{0:012d}{i:02d}", "r" if i % 2 else "s", FETCH)
    restrict(seen)
    assert max(map(len, Dispatch.choose(deepcopy(dispatch), seen, 0.0))) > 2, "in batches"
    restrict(seen, limit)
    first = sent(dispatch, seen, 0.0)
    assert len(first) == 2  # with the one that runs
    assert not sent(dispatch, seen, 1.0)
    assert not dispatch.overtaken(seen)
    dispatch.remove(first[0])
    assert len(sent(dispatch, seen, 2.0)) == 1


def test_an_owner_at_the_limit_overtakes_nothing() -> None:
    dispatch, seen = Dispatch(window=9, resend=30), cache(("r", "a", 1.0), ("s", "a", 2.0))
    restrict(seen, Restriction(kind=Kind.LIMIT_OWNER, subject="a", value=2))
    for key in ("k1", "k2"):
        dispatch.add(key, "r", FETCH)
    assert len(sent(dispatch, seen, 0.0)) == 2
    dispatch.add("k3", "s", FETCH)
    assert not dispatch.overtaken(seen)
    restrict(seen)
    assert dispatch.overtaken(seen)


def test_an_owner_under_a_limit_wants_no_more_slots_than_that() -> None:
    dispatch = Dispatch(window=9, resend=30)
    seen = cache(("r", "a", 1.0), ("s", "a", 2.0), ("t", "b", 3.0), slots=4)
    for number in range(4):
        for request in "rst":
            dispatch.add(f"{request}{number}", request, FETCH)
    restrict(seen, Restriction(kind=Kind.LIMIT_OWNER, subject="a", value=5))
    assert dispatch.backlog(seen) == {"r": 4, "s": 1, "t": 4}


def test_what_is_sent_again_takes_no_other_room_of_a_limit() -> None:
    dispatch, seen = Dispatch(window=9, resend=30), cache(("r", "a", 1.0), slots=4)
    restrict(seen, Restriction(kind=Kind.LIMIT_PHASE, subject="collection", value=2))
    dispatch.add("k1", "r", FETCH)
    assert sent(dispatch, seen, 0.0) == ["k1"]
    dispatch.add("k2", "r", FETCH)
    assert sorted(sent(dispatch, seen, 100.0)) == ["k1", "k2"]


def test_a_limit_of_one_phase_leaves_the_other_phases_alone() -> None:
    dispatch, seen = Dispatch(window=9, resend=30), cache(("r", "a", 1.0), slots=4)
    for i in range(4):
        dispatch.add(f"f{i}", "r", FETCH)
        dispatch.add(f"w{i}", "r", WARP)
    restrict(seen, Restriction(kind=Kind.LIMIT_PHASE, subject="collection", value=1))
    found = sent(dispatch, seen, 0.0)
    assert sum(key.startswith("f") for key in found) == 1
    assert sum(key.startswith("w") for key in found) == 4


# --- a manager ---


def test_a_paused_phase_stops_a_request_until_it_is_resumed() -> None:
    b = bench()
    put(b, Kind.PAUSE_PHASE, Phase.AGGREGATION.value)
    request = b.submit("p")
    b.rounds(30)
    phases = b.row(request).phases
    assert phases[Phase.COLLECTION].done == 4
    assert phases[Phase.AGGREGATION].done == 0
    b.restart(2)
    b.rounds(10)
    assert b.row(request).phases[Phase.AGGREGATION].done == 0
    lift(b, Kind.PAUSE_PHASE, Phase.AGGREGATION.value)
    assert b.until_ended(request).state is RequestState.COMPLETE


def test_a_paused_owner_holds_up_nobody_who_wants_the_same() -> None:
    b = bench()
    put(b, Kind.PAUSE_OWNER, "a")
    mine, theirs = b.submit("p", owner="a"), b.submit("p", owner="b")
    assert b.until_ended(theirs).state is RequestState.COMPLETE
    assert b.until_ended(mine).state is RequestState.COMPLETE  # all of it was made for the other
    other = b.submit("ab", owner="a")
    assert b.until_ended(other).state is RequestState.COMPLETE


@pytest.mark.parametrize("how", ["request", Kind.PAUSE_OWNER, Kind.LIMIT_OWNER])
def test_what_holds_one_up_later_holds_up_nobody_who_wants_the_same(how: Kind | str) -> None:
    """Its tasks are ready by then, on its account."""
    names = [f"g{i}" for i in range(40)]
    plan = plan_of(*map(collect, names))
    b = Bench(plans={"many": plan}, options=ManagerOptions(window=2, sweep=1.0))
    mine, theirs = b.submit("many", owner="a"), b.submit("many", owner="b")
    b.rounds(4)
    if isinstance(how, Kind):
        put(b, how, "a")
    else:
        request_operations.order(b.runtime, mine, RequestOrder.PAUSE)
    b.rounds(2)
    assert len(b.ran) < 40
    assert b.until_ended(theirs).state is RequestState.COMPLETE


def test_what_waits_for_one_alone_goes_to_no_other() -> None:
    dispatch, seen = Dispatch(window=9, resend=30), cache(("r", "a", 1.0), ("s", "b", 2.0))
    both, told, mine = (collect(name).key for name in ("both", "told", "mine"))
    for key in (both, told, mine):
        dispatch.add(key, "r", FETCH)
    entry = Entry(Phase.COLLECTION)
    seen.requests["s"].ledger.put(both, entry)
    seen.requests["s"].ledger.put(told, replace(entry, outcome=TaskOutcome.DONE))
    assert list(dispatch.held_up(seen)) == []
    seen.requests["r"].stopped = True
    assert list(dispatch.held_up(seen)) == [(both, "s")]
    seen.requests["s"].stopped = True
    assert list(dispatch.held_up(seen)) == []


def test_a_request_that_comes_between_two_looks_waits_with_its_owner() -> None:
    b = bench()
    put(b, Kind.PAUSE_OWNER, "a")
    b.rounds(1, seconds=0.05)
    b.submit("p", owner="a")
    b.rounds(9, seconds=0.05)
    assert b.ran == []


OF_A = Kind.QUOTA_OWNER, "a"


def test_an_owner_whose_quota_is_spent_waits_until_it_is_raised() -> None:
    names = [f"g{i}" for i in range(40)]
    b = Bench(
        plans={"many": plan_of(*map(collect, names))}, options=ManagerOptions(window=2, sweep=1.0)
    )
    put(b, Kind.QUOTA_OWNER, "a", value=3 / 3600)
    request = b.submit("many", owner="a")
    b.rounds(50)
    ran = len(b.ran)
    assert 3 <= ran < 40
    assert not b.row(request).state.ended
    put(b, Kind.QUOTA_OWNER, "a", value=1.0)
    assert b.until_ended(request).state is RequestState.COMPLETE
    assert restrictions.spent_hours(b.runtime.store, OF_A, b.runtime.clock.now()) == pytest.approx(
        40 / 3600
    )


def test_quotas_of_a_package_and_of_all_stop_what_is_under_them() -> None:
    spent = frozenset({(Kind.QUOTA_PACKAGE, "lai"), (Kind.QUOTA_OWNER, "b")})
    quota = Restriction(kind=Kind.QUOTA_PACKAGE, subject="lai", value=1.0)
    known = Restrictions.of([quota], spent)
    assert known.stop("a", "a/mean@1.0 00, b/lai@2.0 11")
    assert not known.stop("a", "a/lai-2@1.0 00")
    assert not known.stop("b", "")  # that one was lifted meanwhile
    every = Restriction(kind=Kind.QUOTA_ALL, subject=restrictions.ALL, value=0.0)
    assert Restrictions.of([every], frozenset({(Kind.QUOTA_ALL, "all")})).stop("c", "")


def test_a_quota_of_all_is_that_of_all_owners() -> None:
    plans = {name: plan_of(*(collect(f"{name}{i}") for i in range(40))) for name in ("p", "q")}
    b = Bench(plans=plans, options=ManagerOptions(window=2, sweep=1.0))
    put(b, Kind.QUOTA_ALL, restrictions.ALL, value=6 / 3600)
    both = b.submit("p", owner="a"), b.submit("q", owner="b")
    b.rounds(50)
    assert 6 <= len(b.ran) < 40
    assert not any(b.row(one).state.ended for one in both)
    lift(b, Kind.QUOTA_ALL, restrictions.ALL)
    assert {b.until_ended(one).state for one in both} == {RequestState.COMPLETE}


def test_last_month_does_not_count_in_a_quota() -> None:
    b = bench()
    b.until_ended(b.submit("p", owner="a"))
    now = b.runtime.clock.now()
    assert restrictions.spent_hours(b.runtime.store, OF_A, now) > 0
    assert restrictions.spent_hours(b.runtime.store, OF_A, now + 32 * 86400) == 0
    assert restrictions.spent_hours(b.runtime.store, (Kind.QUOTA_OWNER, "b"), now) == 0


def test_a_restriction_is_set_once_and_lifted_once() -> None:
    b = bench()
    put(b, Kind.LIMIT_OWNER, "a/b#c", value=4)
    put(b, Kind.LIMIT_OWNER, "a/b#c", value=5)
    (found,) = restrictions.load(b.runtime.store)
    assert (found.subject, found.value) == ("a/b#c", 5)
    lift(b, Kind.LIMIT_OWNER, "a/b#c")
    assert not restrictions.lift(b.runtime.store, b.runtime.clock, Kind.LIMIT_OWNER, "a/b#c")


# --- machines ---


class Asked:
    """Two workers in a table, and a manager's judgement of their machines."""

    def __init__(self) -> None:
        self.store, self.clock = MemoryStore(), ManualClock()
        self.now = 0.0
        for name in ("w0", "w1"):
            workers.beat(self.store, self.clock, self.row(name))
        self.restart()

    def restart(self) -> None:
        self.machines = Machines(
            AttemptStatistics(5), OPTIONS.time_limits, OPTIONS.probe, OPTIONS.heartbeat
        )

    def row(self, name: str, started: float = 1.0) -> WorkerRow:
        return WorkerRow(name=name, host=name, slots=2, started=started, beat_at=self.clock.now())

    def look(self, seconds: float = 5.0, *, waiting: int = 0) -> WorkerRow:
        """One look of the manager, whose orders are written; the row of `w0` then."""
        self.now += seconds
        self.clock.sleep(seconds)
        found = workers.list_workers(self.store)
        orders = self.machines.hear(found, {}, self.now)
        orders += self.machines.look({}, self.now, lambda: {"": waiting})[0]
        for one in orders:
            workers.order_hold(
                self.store,
                self.clock,
                one.worker,
                one.started,
                one.hold,
                why=one.why,
                wait=one.wait,
            )
        return self.w0()

    def w0(self) -> WorkerRow:
        (found,) = (one for one in workers.list_workers(self.store) if one.name == "w0")
        return found

    def ask(self, what: Ask, why: str = "") -> None:
        assert workers.ask(self.store, self.clock, "w0", what, why)


def test_an_operator_drains_a_worker_until_an_operator_releases_it() -> None:
    asked = Asked()
    asked.look()
    asked.ask(Ask.DRAIN, "op@example.org: its disk fails")
    row = asked.look()
    assert (row.hold, row.hold_why, row.hold_until) == (
        Hold.DRAINED,
        "op@example.org: its disk fails",
        0.0,
    )
    assert asked.machines.slots(row) == 0
    for _ in range(5):  # neither time nor waiting work tries it again
        assert asked.look(1000.0, waiting=9).hold is Hold.DRAINED
    asked.restart()
    assert asked.look().hold is Hold.DRAINED
    asked.ask(Ask.RELEASE)
    row = asked.look()
    assert (row.hold, row.hold_why, row.asked) == (Hold.NONE, "", Ask.NONE)
    assert asked.look(1000.0).hold is Hold.NONE


def test_a_release_that_another_manager_carried_out_counts_for_the_one_that_acts() -> None:
    """The other one acted until then; its release is the row's, and nobody asks any more."""
    asked = Asked()
    asked.ask(Ask.DRAIN, "why")
    assert asked.look().hold is Hold.DRAINED
    acting = asked.machines
    asked.restart()
    asked.ask(Ask.RELEASE)
    assert asked.look().asked is Ask.NONE
    asked.machines = acting
    assert asked.look().hold is Hold.NONE
    assert asked.machines.slots(asked.w0()) == 2


def test_a_drained_worker_that_starts_again_stays_drained() -> None:
    asked = Asked()
    asked.ask(Ask.DRAIN, "why")
    asked.look()
    workers.beat(asked.store, asked.clock, asked.row("w0", started=2.0))
    assert asked.w0().hold is Hold.NONE
    assert asked.look().hold is Hold.DRAINED


def test_an_operator_releases_what_the_manager_drained() -> None:
    asked = Asked()
    asked.look()
    workers.order_hold(asked.store, asked.clock, "w0", 1.0, Hold.DRAINED, why="slow", wait=600.0)
    asked.restart()
    assert asked.look().hold is Hold.DRAINED
    asked.ask(Ask.RELEASE)
    assert asked.look().hold is Hold.NONE
    assert asked.w0().asked is Ask.NONE


def test_a_worker_that_is_free_is_released_to_no_effect() -> None:
    asked = Asked()
    asked.look()
    asked.ask(Ask.RELEASE)
    assert asked.look().asked is Ask.NONE


def test_no_such_worker_is_drained() -> None:
    asked = Asked()
    assert not workers.ask(asked.store, asked.clock, "nobody", Ask.DRAIN, "")


def test_what_was_restricted_at_rest_counts_for_the_first_request() -> None:
    b = Bench(plans={"p": plan_of(collect("g"))})
    for _ in range(3):
        b.manager.tick()
        b.runtime.clock.sleep(1.0)
    assert b.manager.cache.at_rest
    put(b, Kind.PAUSE_OWNER, "owner")
    request = b.submit("p")
    for _ in range(4):
        b.manager.tick()
    assert b.row(request).state is RequestState.RUNNING
    assert not b.sent
