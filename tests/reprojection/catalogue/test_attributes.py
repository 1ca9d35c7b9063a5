"""Attributes that say what stored numbers are: every name and form met, by one reader."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprojection.catalogue.attributes import (
    NumberForm,
    parse_number,
    parse_range,
    read_form,
    unpacked_range,
)
from reprojection.catalogue.layers import Scaling, read_scale
from reprojection.formats.container import AttributeValue

INT8, INT16, UINT16, FLOAT = (np.dtype(name) for name in ("i1", "i2", "u2", "f4"))


def form(attributes: dict[str, AttributeValue], dtype: np.dtype[np.generic] = INT16) -> NumberForm:
    return read_form(attributes, dtype)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("0-100", (0, 100)),
        ("0-65534", (0, 65534)),
        ("-10-100", (-10, 100)),
        ("0.0-1.0e2", (0, 100)),
        ("0..100", (0, 100)),
        ("0...100", (0, 100)),
        ("0 - 100", (0, 100)),
        ("0 to 100", (0, 100)),
        ("[0, 100]", (0, 100)),
        ("(0;100)", (0, 100)),
        ("0 100", (0, 100)),
        ("0 -100", (0, 100)),
        ("-5 -1", (-5, -1)),
        ("-10--5", (-10, -5)),
        ("-10 - -5", (-10, -5)),
        ("0\u2013100", (0, 100)),
        ("0:100", (0, 100)),
        ("0-100%", (0, 100)),
        (" 0 , 254 ", (0, 254)),
        ("100", None),
        ("100-0", None),
        ("0-100-200", None),
        ("n/a", None),
        ("", None),
    ],
)
def test_a_range_in_text(text: str, ends: tuple[float, float] | None) -> None:
    assert parse_range(text) == ends
    assert form({"valid_range": text}).valid_range == ends


ENDS = st.tuples(st.integers(-40_000, 70_000), st.integers(-40_000, 70_000)).map(sorted)
SEPARATORS = [", ", ",", " to ", "..", " - ", "-", "; ", " ", ":", "\u2013"]


@given(ENDS, st.sampled_from(SEPARATORS), st.sampled_from(["", "[]", "()"]))
def test_every_spelling_of_a_range_means_its_ends(
    ends: list[int], separator: str, around: str
) -> None:
    low, high = ends
    text = f"{around[:1]}{low}{separator}{high}{around[1:]}"
    assert parse_range(text) == (low, high)


def test_a_type_is_kept_whatever_text_gives_a_range() -> None:
    """Text "0-100" was (0, -100), and so the numbers unsigned."""
    found = form({"valid_range": "0-100", "_FillValue": -999})
    assert found == NumberForm(dtype=INT16, fills=(-999,), valid_range=(0, 100))


def test_signed_numbers_of_an_unsigned_range_are_unsigned() -> None:
    """MOD04's QA bytes."""
    found = form({"valid_range": (0, -1), "_FillValue": -1}, INT8)
    assert (found.dtype, found.fills, found.valid_range) == (np.dtype("u1"), (255,), (0, 255))
    for dtype, ends in ((INT8, (0, 127)), (INT8, (-1, 4)), (np.dtype("u1"), (0, 255))):
        assert form({"valid_range": ends}, dtype).dtype == dtype


@pytest.mark.parametrize(
    ("ends", "dtype"), [((5, 1), UINT16), ((5, 1), INT16), ((-1, -5), INT16), ((1.0, 0.0), FLOAT)]
)
def test_a_range_that_ends_below_its_start_masks_nothing(
    ends: tuple[float, float], dtype: np.dtype[np.generic]
) -> None:
    found = form({"valid_range": ends}, dtype)
    assert found.valid_range is None
    assert "ends below its start" in found.notes[0]


@pytest.mark.parametrize(
    ("attributes", "fills"),
    [
        ({"_FillValue": (-15000, -13000)}, (-15000, -13000)),
        ({"_FillValue": "-15000, -13000"}, (-15000, -13000)),
        ({"_FillValue": -1, "missing_value": -2}, (-1, -2)),
        ({"_FillValue": -1, "missing_value": (-1, -3)}, (-1, -3)),
        ({"missing_value": 60}, (60,)),
        ({"_fillvalue": 7}, (7,)),
        ({"Fill Value": 7}, (7,)),
        ({"_FillValue": "255"}, (255,)),
        ({"_FillValue": "n/a"}, ()),
        ({}, ()),
    ],
)
def test_each_value_that_a_file_calls_no_data_is_a_fill(
    attributes: dict[str, AttributeValue], fills: tuple[int, ...]
) -> None:
    found = form(attributes)
    assert (*found.fills, *found.missing) == fills


@pytest.mark.parametrize("said", ["true", "True", "TRUE"])
def test_unsigned_is_taken_at_its_word(said: str) -> None:
    given_: dict[str, AttributeValue] = {
        "_Unsigned": said,
        "_FillValue": -1,
        "valid_min": 0,
        "valid_max": -6,
    }
    found = form(given_, INT8)
    assert (found.dtype, found.fills, found.valid_range) == (np.dtype("u1"), (255,), (0, 250))
    assert form({"_Unsigned": "false", "_FillValue": 65535}, UINT16).fills == (-1,)


def test_one_end_of_a_range_is_a_range() -> None:
    assert form({"valid_min": 0}).valid_range == (0, 32767)
    assert form({"valid_max": "100"}).valid_range == (-32768, 100)
    assert form({"valid_min": 0.0}, FLOAT).valid_range == (0.0, float("inf"))
    assert form({"valid_min": 1, "valid_max": 5}).valid_range == (1, 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("valid_range", "all"),
        ("valid_range", (1,)),
        ("valid_range", (float("nan"), 1.0)),
        ("valid_min", "low"),
        ("_FillValue", "none of it"),
    ],
)
def test_what_is_not_understood_is_said(name: str, value: AttributeValue) -> None:
    (note,) = form({name: value}).notes
    assert name in note
    assert repr(value) in note


def test_a_range_in_decimals_of_packed_numbers_is_of_physical_ones() -> None:
    assert unpacked_range((0.0, 1.0), INT16, 0.0001, 0.0) == (0, 10000)
    assert unpacked_range((200.0, 350.0), UINT16, 0.02, 0.0) == (10000, 17500)
    assert unpacked_range((0, 10000), INT16, 0.0001, 0.0) == (0, 10000)
    assert unpacked_range((0.0, 1.0), FLOAT, 0.5, 0.0) == (0.0, 1.0)
    assert unpacked_range((0.0, 100.0), INT16, 1.0, 0.0) == (0.0, 100.0)


NAMES = [
    ("scale_factor", "add_offset"),
    ("scale_factor", "offset"),
    ("Scale", "Offset"),
    ("slope", "intercept"),
]


@pytest.mark.parametrize(("factor", "shift"), NAMES)
def test_every_name_of_scale_and_offset_is_read(factor: str, shift: str) -> None:
    """Night lights name it `offset`: brightness temperatures were 203 K too low."""
    found = read_scale(
        {factor: 0.0025, shift: 203.0},
        "BrightnessTemperature_M12",
        "Kelvins",
        catalogued=Scaling.ADD,
        file_has_atmosphere_note=False,
    )
    assert (found.scale, found.offset) == (0.0025, 203.0)


def test_numbers_of_cdl_are_numbers() -> None:
    assert [parse_number(text) for text in ("-1b", "10s", "0.5f", "3")] == [-1, 10, 0.5, 3]


@given(
    st.dictionaries(
        st.sampled_from(
            ["_FillValue", "missing_value", "valid_range", "valid_min", "valid_max", "_Unsigned"]
        ),
        st.one_of(
            st.integers(-(2**31), 2**31),
            st.floats(),
            st.text(max_size=12),
            st.tuples(st.integers(-300, 300), st.integers(-300, 300)),
        ),
    ),
    st.sampled_from([INT8, INT16, UINT16, FLOAT]),
)
def test_any_attributes_give_a_range_in_order_or_none(
    attributes: dict[str, AttributeValue], dtype: np.dtype[np.generic]
) -> None:
    found = form(attributes, dtype)
    assert found.dtype.itemsize == dtype.itemsize
    if found.valid_range is not None:
        assert found.valid_range[0] <= found.valid_range[1]
    assert len(set(map(str, found.fills))) == len(found.fills)
