"""What is learned of a class's attempts: usual time, and time by progress."""

import math

import pytest

from service_manager.dispatch.attempt_statistics import (
    STEPS,
    AttemptProgress,
    AttemptStatistics,
    Usual,
)
from tasks.bag.history import ClassStatistics


def learned(*durations: float, samples: int = 3) -> AttemptStatistics:
    found = AttemptStatistics(samples)
    for duration in durations:
        found.learn("class", duration)
    return found


def with_steps(*ages: float, samples: int = 1, duration: float = 100.0) -> AttemptStatistics:
    """Attempts that took their first step at these ages."""
    found = AttemptStatistics(samples)
    for age in ages:
        found.learn("class", duration, AttemptProgress([age]))
    return found


def course(steps: int) -> AttemptProgress:
    return AttemptProgress([1.0] * steps)


def test_a_duration_deviates_by_the_logarithm_of_its_ratio_to_the_usual() -> None:
    usual = Usual(10.0, spread=0.25)
    assert usual.deviation(20.0) == pytest.approx(math.log(2))
    assert usual.deviation(0.0) == pytest.approx(math.log(1e-4))


def test_progress_is_noted_by_twentieths_and_the_last_is_the_end() -> None:
    found = AttemptProgress()
    found.note(1 - 0.9, 5.0)  # a little less than a tenth, as floating point goes
    assert found.ages == [5.0] * 2
    found.note(1.0, 9.0)
    assert found.ages == [5.0] * 2 + [9.0] * (STEPS - 3)


def test_the_usual_time_is_the_median_and_its_spread_is_robust() -> None:
    usual = learned(1.0, math.e, math.e**2, math.e**5, 0.0).usual("class", None)
    # logarithms 0, 1, 2, 5 and that of a millisecond, whose median is 1
    assert usual is not None
    assert usual.seconds == pytest.approx(math.e)
    assert usual.spread == pytest.approx(1.4826)


def test_the_usual_time_changes_with_each_success() -> None:
    found = learned(1.0, 1.0, 1.0)
    assert found.usual("class", None) == Usual(1.0, spread=0.25)
    for _ in range(4):
        found.learn("class", 2.0)
    usual = found.usual("class", None)
    assert usual is not None
    assert usual.seconds == pytest.approx(2.0)


def test_a_class_is_known_by_as_many_successes_as_it_has_attempts_running() -> None:
    found = learned(1.0, 1.0)
    assert found.usual("class", None) is None
    found.learn("class", 1.0)
    assert found.usual("class", None) is not None
    found.hear(["class"] * 4)
    assert found.usual("class", None) is None
    found.hear(["class"] * 3 + ["other"] * 4)
    assert found.usual("class", None) is not None
    assert found.usual("other", None) is None


def known(count: int, mean: float, deviation: float) -> ClassStatistics:
    return ClassStatistics(
        task_class="class", count=count, mean=mean, squares=deviation**2 * (count - 1)
    )


def test_durable_statistics_stand_in_while_few_successes_were_seen() -> None:
    for found in (AttemptStatistics(3), learned(1.0, 1.0)):
        usual = found.usual("class", known(3, 10.0, 20.0))
        assert usual is not None
        assert usual.seconds == pytest.approx(10 / math.sqrt(5))
        assert usual.spread == pytest.approx(math.sqrt(math.log(5)))
        steady = found.usual("class", known(3, 0.5, 0.0))
        assert steady == Usual(0.5, spread=0.25)
        assert found.usual("class", known(2, 10.0, 10.0)) is None
        assert found.usual("class", known(3, 0.0, 0.0)) is None


def test_an_attempt_takes_as_long_as_the_latest_but_for_a_twentieth_would_have() -> None:
    found = with_steps(*range(1, 41), samples=40)
    assert found.least("class", 19.0, course(0)) == pytest.approx(19.0 / 0.38)
    assert found.done("class", course(1)) == pytest.approx(0.205)
    found.learn("class", 100.0, AttemptProgress([40.0, 60.0]))
    assert found.least("class", 19.0, course(0)) == pytest.approx(19.0 / 0.39)
    assert found.done("class", course(1)) == pytest.approx(0.21)


def test_a_step_that_few_attempts_reported_says_nothing() -> None:
    found = with_steps(50.0, 50.0, samples=2)
    assert found.least("class", 7.0, course(1)) == 7.0
    assert found.done("class", course(2)) == 0.0
    found = with_steps(50.0, samples=2)
    assert found.least("class", 7.0, course(0)) == 7.0
    assert found.done("class", course(1)) is None


def test_nothing_is_said_of_a_class_that_is_not_known() -> None:
    found = with_steps(50.0)
    assert found.least("other", 7.0, course(0)) == 7.0
    assert found.done("other", course(0)) is None
    assert found.done("class", course(0)) == 0.0


def test_the_last_step_leaves_nothing_to_expect() -> None:
    found = AttemptStatistics(1)
    found.learn("class", 100.0, AttemptProgress([50.0] * (STEPS - 1)))
    assert found.least("class", 7.0, course(STEPS - 2)) == 14.0
    assert found.least("class", 7.0, course(STEPS - 1)) == 7.0
    assert found.done("class", course(STEPS - 1)) == 0.5
    assert found.done("class", course(0)) == 0.0


@pytest.mark.parametrize(
    ("age", "duration", "least"), [(1.0, 100.0, 20.0), (0.7, 0.5, 1.0), (0.25, 0.5, 2.0)]
)
def test_a_share_of_time_is_between_a_twentieth_and_all_of_it(
    age: float, duration: float, least: float
) -> None:
    assert with_steps(age, duration=duration).least("class", 1.0, course(0)) == least


def test_an_attempt_without_a_duration_says_nothing_of_progress() -> None:
    assert with_steps(0.0, duration=0.0).done("class", course(1)) is None


def test_few_successes_make_a_generous_guess() -> None:
    """Of many attempts that began together, the short ones end first."""
    found = learned(1.0, 3.0)
    assert found.usual("class", None) is None
    assert found.guess("class", {}) == 8.0
    assert found.guess("other", {}) is None


def test_a_class_without_successes_is_guessed_by_other_amounts_of_its_work() -> None:
    found, none = AttemptStatistics(samples=3), dict[str, ClassStatistics]()
    assert found.guess("collection A.5, 1-2 MB", none) is None
    found.learn("collection A.5, 512-1024 KB", 0.01)
    # Twice the amount, and four times what that would take.
    assert found.guess("collection A.5, 1-2 MB", none) == pytest.approx(0.08)
    assert found.guess("collection A.5", none) is None  # of unknown amount
    assert found.guess("collection B.5, 1-2 MB", none) is None
    kept = {"collection B.5, 1-2 MB": ClassStatistics(task_class="", count=1, mean=7.0)}
    assert found.guess("collection B.5, 2-4 MB", kept) == pytest.approx(56.0)
