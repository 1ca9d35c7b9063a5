"""What a maker says of bytes that it lacks is believed as far as it can be so."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from reprojection.formats.held import keep
from worker.sandbox.makers import BadAnswerError
from worker.slots.apart import _not_held
from worker.slots.maker_answers import MOST_RANGES, Lacking


def test_only_bytes_of_the_granule_can_be_lacking(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf"
    keep(path, 1000, {0: bytes(10)})
    error = _not_held(Lacking(number=0, size=5000, ranges=((10, 20), (30, 1000))), [path])
    assert (error.path, error.size, error.ranges) == (path, 1000, ((10, 20), (30, 1000)))


@pytest.mark.parametrize(
    ("number", "ranges"),
    [
        (1, ((10, 20),)),
        (0, ((10, 1001),)),
        (0, ((20, 10),)),
        (0, ((-5, 10),)),
        (0, ((10, 30), (20, 40))),
    ],
)
def test_what_cannot_be_lacking_ends_the_maker(
    tmp_path: Path, number: int, ranges: tuple[tuple[int, int], ...]
) -> None:
    path = tmp_path / "a.hdf"
    keep(path, 1000, {0: bytes(10)})
    with pytest.raises(BadAnswerError):
        _not_held(Lacking(number=number, size=1000, ranges=ranges), [path])


def test_a_maker_lacks_no_more_ranges_than_it_may_name() -> None:
    ranges = [(2 * n, 2 * n + 1) for n in range(MOST_RANGES + 1)]
    Lacking(number=0, size=10**6, ranges=tuple(ranges[:-1]))
    with pytest.raises(ValidationError):
        Lacking(number=0, size=10**6, ranges=tuple(ranges))
