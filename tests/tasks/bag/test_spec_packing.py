"""Packed specifications: read back, small, and of a form that does not change."""

import hashlib

import pytest

from tasks.bag import spec_packing
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec
from tasks.canonical import digest_of
from tasks.errors import StoreError

GRID = GridSpec(crs="EPSG:4326", transform=(0.01, 0, -92.16, 0, -0.01, 51.2), width=8, height=8)
WIDE = MosaicSpec(
    name="wide é",
    grid=GRID,
    inputs=tuple(Input(key=digest_of(str(i)), name=f"granule {i}") for i in range(2000)),
)
SMALL = CollectSpec(
    product="MOD11A1",
    collection="61",
    granule="MOD11A1.A2003186.h12v06.061.2018001000000.hdf",
    production="2018001000000",
)


@pytest.mark.parametrize("spec", [SMALL, WIDE])
def test_what_is_packed_is_read_back(spec: CollectSpec | MosaicSpec) -> None:
    text = spec.model_dump_json().encode()
    packed = spec_packing.pack(text)
    assert spec_packing.unpack(packed) == text
    assert len(packed) < 0.55 * len(text)  # half of a wide one is keys, 32 bytes of 64 each


def test_what_the_build_before_wrote_is_read() -> None:
    text = SMALL.model_dump_json().encode()
    assert spec_packing.unpack(text) == text


def test_the_form_stays() -> None:
    """Rows that are stored are read with the text that all have in common."""
    stored = "01abc68c21b89ad85a00"
    assert (
        hashlib.sha256(spec_packing._COMMON).hexdigest()
        == "28c74ab2458d87ee445988b715958b4a883bd3bb4b65c55b3c05e0306a8e9fa8"
    )
    assert spec_packing.unpack(bytes.fromhex(stored)) == b'{"kind":"collect","inputs":[]}'


def test_damage_is_an_error_of_storage() -> None:
    packed = spec_packing.pack(SMALL.model_dump_json().encode())
    with pytest.raises(StoreError, match="damaged"):
        spec_packing.unpack(packed[:1] + b"\xff" + packed[2:])
