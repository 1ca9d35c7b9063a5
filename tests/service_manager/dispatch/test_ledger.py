"""A request's ledger: it says of each task what a dictionary would say."""

from collections import Counter
from itertools import product
from random import Random

import pytest

from service_manager.dispatch.ledger import Entry, Ledger
from tasks.bag.model import Phase, TaskOutcome

EVERY = [Entry(*one) for one in product(Phase, (None, *TaskOutcome), (False, True), (False, True))]


def key(number: int) -> str:
    """Each number's key differs from others' in one of the parts that tell keys apart."""
    table, place, high = number % 2, 2**64 - 1 - number // 2 % 20, 0xFFFE + number // 40
    return f"{'f' * 42}{high:04x}{place:016x}{table:02x}"


@pytest.mark.parametrize("puts", [0.3, 0.5, 0.9])
def test_entries_are_those_that_were_put_last_and_not_removed(puts: float) -> None:
    random = Random(1)
    ledger, expected = Ledger(), dict[int, Entry]()
    for _ in range(2000):
        number = random.randrange(80)
        if random.random() < puts:
            expected[number] = random.choice(EVERY)
            ledger.put(key(number), expected[number])
        else:
            ledger.remove(key(number))
            expected.pop(number, None)
        assert ledger.get(key(number)) == expected.get(number)
    assert {n: ledger.get(key(n)) for n in range(80)} == {n: expected.get(n) for n in range(80)}
    assert [n for n in range(80) if key(n) in ledger] == sorted(expected)
    assert dict(ledger.counts()) == Counter(expected.values())
    assert len(ledger) == len(expected)


@pytest.mark.parametrize(
    ("outcome", "pending", "failed"),
    [(None, 1, False), (TaskOutcome.DONE, 0, False)]
    + [(outcome, 0, True) for outcome in TaskOutcome if outcome is not TaskOutcome.DONE],
)
def test_what_is_pending_and_what_failed_goes_by_the_outcomes(
    outcome: TaskOutcome | None, pending: int, failed: bool
) -> None:
    ledger = Ledger()
    ledger.put(key(0), Entry(Phase.REPROJECTION, outcome))
    ledger.put(key(1), Entry(Phase.REPROJECTION, TaskOutcome.DONE))
    assert (ledger.pending, ledger.failed) == (pending, failed)


def test_a_table_doubles_when_two_thirds_of_it_are_taken() -> None:
    ledger, sizes = Ledger(), []
    for number in range(0, 24, 2):
        ledger.put(key(number), Entry(Phase.REPROJECTION))
        sizes.append(ledger.size)
    assert sizes == [88] * 5 + [176] * 5 + [352] * 2


def test_keys_that_come_and_go_need_no_more_memory() -> None:
    ledger = Ledger()
    for number in range(0, 1000, 2):
        came = f"{number:062x}00"
        ledger.put(came, Entry(Phase.REPROJECTION))
        ledger.remove(came)
    assert (len(ledger), ledger.size) == (0, 88)
