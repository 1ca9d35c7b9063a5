"""The C kernels of masks give what numpy gives."""

import numpy as np
import numpy.typing as npt
import pytest

from reprojection.read import masks

RANDOM = np.random.default_rng(14)


def table_of(name: str, entries: int) -> npt.NDArray[np.uint8]:
    every = np.arange(entries)
    tables = {
        "one value": every == entries - 1,
        "eight runs": every * 16 // entries % 2 * 3,
        "nine runs": every * 18 // entries % 2 * 2,
        "nothing": every * 0,
        "all": every * 0 + 3,
        "random": RANDOM.integers(0, 4, entries),
    }
    return np.asarray(tables[name]).astype(np.uint8)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
@pytest.mark.parametrize(
    "name", ["one value", "eight runs", "nine runs", "nothing", "all", "random"]
)
def test_values_are_looked_up(name: str, dtype: str) -> None:
    entries = 1 << (8 * np.dtype(dtype).itemsize)
    table = table_of(name, entries)
    values = RANDOM.integers(0, entries, (91, 97)).astype(f"u{dtype[1]}").view(dtype)
    assert np.array_equal(masks.look_up(values, table), table[values.view(f"u{dtype[1]}")])
    part = values[3:, ::2]
    assert np.array_equal(masks.look_up(part, table), table[part.view(f"u{dtype[1]}")])


def test_only_pixels_that_are_data_are_refused() -> None:
    why, also = (RANDOM.integers(0, 4, (53, 61)).astype(np.uint8) for _ in range(2))
    expected = np.where(why == 0, also, why)
    masks.join(also, why)
    assert np.array_equal(why, expected)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u2", "i4", "f4", "f8"])
def test_empty_pixels_are_filled(dtype: str) -> None:
    values: npt.NDArray[np.generic] = RANDOM.integers(0, 100, (53, 61)).astype(dtype)
    why = RANDOM.integers(0, 4, values.shape).astype(np.uint8)
    fill = np.nan if dtype[0] == "f" else 101
    made = masks.filled(values.T, why.T, 2, fill)
    expected = np.where(why.T == 2, values.T, values.dtype.type(fill))
    assert made.dtype == expected.dtype == values.dtype
    assert made.tobytes() == expected.tobytes(order="C")
    assert made.flags.c_contiguous
