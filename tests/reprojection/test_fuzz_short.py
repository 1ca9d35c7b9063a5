"""A short form of the fuzzer: damaged granules end in a result or a named error."""

from collections import Counter

import pytest

from bench import fuzz_values
from bench.fuzz_granules import run_batch

pytestmark = pytest.mark.slow


def test_damaged_granules_end_in_a_result_or_a_named_error() -> None:
    cases = run_batch(range(20), None)
    assert [case for case in cases if case.is_fault] == []
    outcomes = Counter(case.outcome for case in cases)
    assert outcomes["result"] >= 2  # the damage is not always noticed,
    assert outcomes["UnreadableGranuleError"] >= 2  # and often is


def test_a_case_repeats_by_its_number() -> None:
    once, again = (run_batch([7], None) for _ in range(2))
    assert once == again


def test_inverted_bytes_of_compressed_data_give_no_wrong_values_in_silence() -> None:
    cases = fuzz_values.run_batch(range(20))
    assert [case for case in cases if case.wrong] == []
    cases += fuzz_values.run_batch(range(40), anywhere=True)
    assert [case for case in cases if case.wrong] == []
    for granule in ("tile.hdf", "viirs.h5", "shuffled.h5"):
        assert any(case.refused for case in cases if case.granule == granule), granule
