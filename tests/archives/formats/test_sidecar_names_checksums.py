"""Sidecars, file names and checksums, as the data centres write them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archives.formats import sidecar
from archives.formats.checksums import Cksum, digest
from archives.formats.sidecar import read_sidecar
from modis.collection import Collection
from modis.granule_name import parse_granule_name


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_cksum_is_the_bitwise_definition(parts: list[bytes]) -> None:
    running = Cksum()
    for part in parts:
        running.update(part)
    data = b"".join(parts)
    length, register = len(data), 0
    tail = bytearray()
    while length:
        tail.append(length & 0xFF)
        length >>= 8
    for byte in data + bytes(tail):
        register ^= byte << 24
        for _ in range(8):
            register = (register << 1) ^ (0x104C11DB7 if register & 0x80000000 else 0)
    assert running.hexdigest() == str(register ^ 0xFFFFFFFF)


def cksum(path: Path) -> str:
    running = Cksum()
    running.update(path.read_bytes())
    return running.hexdigest()


@pytest.mark.skipif(shutil.which("cksum") is None, reason="cksum is not on PATH")
def test_cksum_agrees_with_the_tool(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 9000)
    shown = subprocess.run(["cksum", str(path)], capture_output=True, text=True, check=True).stdout
    assert cksum(path) == shown.split()[0]


def test_kinds_of_checksum() -> None:
    assert digest("SHA-256") is not None
    assert digest("md5") is not None
    assert digest("whirlpool") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>",
        "<GranuleMetaDataFile/>",
        '<!DOCTYPE a [<!ENTITY b "c">]><GranuleMetaDataFile>&b;</GranuleMetaDataFile>',
    ],
)
def test_what_is_no_sidecar_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.hdf.xml"
    path.write_text(text)
    assert read_sidecar(path) is None
    assert read_sidecar(tmp_path / "gone.xml") is None


@pytest.mark.real_data
def test_real_sidecars(granules: Path) -> None:
    files = sorted((granules / "fixtures" / "cmr-xml-sidecars").glob("*.xml"))
    assert len(files) >= 20
    for path in files:
        found = read_sidecar(path)
        assert found is not None
        name = parse_granule_name(path.name)
        assert name is not None
        assert (found.product, Collection(found.collection)) == (
            name.product,
            name.collection,
        )
        assert found.start is not None
        assert found.end is not None
        # MCD43 is named after the ninth of its sixteen days.
        assert found.start <= name.start <= found.end
        assert found.boundary is not None
        assert found.checksum_type == "cksum"
    snow = next(granules.glob("l3-tiles/MOD10A2/*.hdf"))
    beside = read_sidecar(granules / "fixtures" / "cmr-xml-sidecars" / f"{snow.name}.xml")
    assert beside is not None
    assert (cksum(snow), snow.stat().st_size) == (
        beside.checksum,
        beside.size,
    )


def test_a_sidecar_has_so_many_bytes_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.hdf.xml"
    path.write_text("<GranuleMetaDataFile></GranuleMetaDataFile>")
    read: list[bytes] = []
    monkeypatch.setattr(sidecar, "parse_sidecar", read.append)
    for most in (path.stat().st_size, path.stat().st_size - 1):
        monkeypatch.setattr(sidecar, "MAX_BYTES", most)
        read_sidecar(path)
    assert len(read) == 1
