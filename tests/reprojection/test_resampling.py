"""The table of resampling methods: one entry for each name that requests may give."""

from typing import get_args

from reprojection.resampling import CLASS_METHODS, METHODS, SWATH_METHODS, Method


def test_each_name_has_its_entry_in_the_order_of_the_kernels_numbers() -> None:
    assert tuple(METHODS) == get_args(Method)


def test_what_goes_for_classes_and_swaths() -> None:
    assert CLASS_METHODS == ("nearest", "mode", "min", "max")
    assert SWATH_METHODS == ("nearest", "average", "mode", "min", "max", "count", "std")


def test_a_method_takes_single_pixels_or_the_whole_of_one() -> None:
    for traits in METHODS.values():
        assert not (traits.reach and traits.whole_pixel)
