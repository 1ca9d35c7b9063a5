"""How many workers an engine is to start, and which of those that wait it is to end."""

import pytest

from bench.engines import SimulatedEngine, ideal, run, run_together
from swathmill.commands.fleet.engine import Fleet, Moves, Started
from swathmill.commands.fleet.registry import open_engine
from swathmill.errors import ArgumentError


def fleet_of(running: int, waiting: int) -> list[Started]:
    names = [(f"r{n}", True) for n in range(running)] + [(f"w{n}", False) for n in range(waiting)]
    return [Started(name=name, running=runs) for name, runs in names]


def test_what_is_wanted_beyond_what_is_there_is_started() -> None:
    for wanted, running, waiting, leaving, start in (
        (9, 0, 0, (), 5),
        (9, 2, 2, (), 1),
        (9, 5, 0, (), 0),
        (9, 5, 0, ("r0", "r1"), 2),  # who was told to go is not counted
        (99, 0, 0, (), 8),
        (99, 8, 0, ("r0",), 0),  # but holds a machine
        (0, 0, 0, (), 0),
    ):
        moves = Fleet(slots=2, most=8).moves(wanted, fleet_of(running, waiting), leaving, 0.0)
        assert moves == Moves(start=start)


def test_what_waits_ends_after_patience_and_what_runs_stays() -> None:
    rule = Fleet(slots=2, most=8, patience=300.0)
    there = fleet_of(2, 3)
    assert rule.moves(10, there, (), 0.0) == Moves()
    for now in (30.0, 270.0, 300.0):
        assert rule.moves(6, there, (), now) == Moves(), "wanted a moment ago"
    assert rule.moves(6, there, (), 331.0) == Moves(end=("w1", "w2"))
    assert rule.moves(0, there, (), 340.0) == Moves(end=("w1", "w2"))
    assert rule.moves(0, there, (), 700.0) == Moves(end=("w0", "w1", "w2"))
    assert rule.moves(0, fleet_of(5, 0), (), 710.0) == Moves()


def test_what_an_engine_lists_late_is_not_started_again() -> None:
    rule = Fleet(slots=2, most=8, settling=120.0)
    assert rule.moves(10, [], (), 0.0) == Moves(start=5)
    assert rule.moves(10, [], (), 30.0) == Moves(), "none is listed yet"
    assert rule.moves(14, fleet_of(2, 0), (), 60.0) == Moves(start=2), "of three that are not"
    assert rule.moves(14, fleet_of(4, 3), (), 90.0) == Moves()
    assert rule.moves(14, fleet_of(3, 3), (), 100.0) == Moves(start=1), "one has ended since"
    assert rule.moves(14, fleet_of(3, 3), (), 221.0) == Moves(start=1), "it never came"


def test_a_fleet_grows_and_goes_home_and_cuts_nothing_off() -> None:
    """The closed loop of `make bench ONLY=engines`, of less work."""
    durations = [1800.0 + 60 * n for n in range(40)]
    found = run(durations, 600.0)
    assert (found.cut, found.most) == (0, 20)
    assert found.ended <= 1.4 * ideal(durations, 600.0)
    assert found.paid <= 1.4 * found.work / 2


def test_two_places_at_once_each_grow_and_go_home_as_if_alone() -> None:
    works = {"": ([60.0] * 400, 60.0), "gpu": ([1800.0 + 60 * n for n in range(20)], 600.0)}
    together = run_together(works)
    for of, (durations, start) in works.items():
        assert together[of] == run(durations, start)
    assert together["gpu"].started > 0


def test_a_simulated_engine_counts_what_it_cuts_off() -> None:
    engine = SimulatedEngine(60.0)
    engine.start(2)
    engine.now = 60.0
    engine.end(["w1"])
    assert (engine.cut, [one.name for one in engine.there()]) == (1, ["w2"])


def test_an_engine_that_is_none_is_refused() -> None:
    for text, said in (("cloud:x", "names no engine"), ("slurm:nowhere", "no batch script")):
        with pytest.raises(ArgumentError, match=said):
            open_engine(text, 2)
