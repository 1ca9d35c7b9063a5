"""The share of the expected inputs that something was made from."""

import pytest

from reprojection.read.completeness import WHOLE, Completeness, Missing, of_parts

A, B = Missing(what="a", why="x"), Missing(what="b", why="y")


def test_parts_count_the_same_and_incomplete_ones_by_their_share() -> None:
    half = Completeness(share=0.5, missing=(A,))
    assert of_parts([WHOLE, half, WHOLE], 1, [B]) == Completeness(share=0.625, missing=(A, B))
    assert of_parts([WHOLE, WHOLE]) == WHOLE
    assert of_parts([half, half]).missing == (A,)


def test_what_lacks_anything_is_never_whole() -> None:
    nearly = of_parts([WHOLE] * 2_000_000, 1, [A])
    assert nearly.share < 1.0
    assert nearly != WHOLE


@pytest.mark.parametrize(("most", "unnamed"), [(0, 2), (1, 1), (2, 0), (9, 0)])
def test_names_are_left_out_and_counted(most: int, unnamed: int) -> None:
    said = Completeness(share=0.5, missing=(A, B)).named(most)
    assert (said.unnamed, said.count) == (unnamed, 2)
