"""What a damaged file may claim of its data sets, at the bounds."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from pyhdf.SD import SD, SDC

from reprojection.errors import UnreadableGranuleError
from reprojection.formats import container, hdf4, hdf5
from reprojection.formats.hdf4 import Hdf4Container
from reprojection.formats.hdf5 import Hdf5Container


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An HDF4 file of two data sets of 12 numbers and two attributes."""
    path = tmp_path / "a.hdf"
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for name in ("one", "two"):
        made = file.create(name, SDC.INT16, (3, 4))
        made[:] = np.zeros((3, 4), np.int16)
        made.endaccess()
    file.attr("StructMetadata.0").set(SDC.CHAR8, "x" * 300)
    file.attr("long_name").set(SDC.CHAR8, "y" * 300)
    file.end()
    return path


@pytest.mark.parametrize(
    ("name", "most", "words"),
    [
        ("MAX_DATASETS", 2, "it claims 2 data sets, 2 attributes"),
        ("MAX_ATTRIBUTES", 2, "it claims 2 data sets, 2 attributes"),
        ("MAX_ELEMENTS", 12, "data set 'one' claims 12 elements"),
    ],
)
def test_an_hdf4_file_claims_so_much(
    old: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int, words: str
) -> None:
    monkeypatch.setattr(hdf4, name, most)
    Hdf4Container(old).close()
    monkeypatch.setattr(hdf4, name, most - 1)
    with pytest.raises(UnreadableGranuleError, match=words):
        Hdf4Container(old)


def test_a_text_of_an_hdf4_file_has_so_many_characters(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer one counts as not there: a damaged length asks for all memory."""
    for most, count in ((300, 2), (299, 0)):
        monkeypatch.setattr(hdf4, "_LONGEST", most)
        opened = Hdf4Container(old)
        assert len(opened.attributes) == count
        opened.close()


def hdf5_file(path: Path, levels: int) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs["ShortName"] = "OWN"
        group = file
        for number in range(levels):
            group = group.create_group(f"g{number}")
        group["values"] = np.zeros((3, 4), np.int16)
    return path


def test_a_data_set_of_an_hdf5_file_claims_so_many_elements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert container.MAX_ELEMENTS == 1 << 30
    path = hdf5_file(tmp_path / "a.nc", 1)
    monkeypatch.setattr(hdf5, "MAX_ELEMENTS", 12)
    assert len(Hdf5Container(path).datasets) == 1
    monkeypatch.setattr(hdf5, "MAX_ELEMENTS", 11)
    with pytest.raises(UnreadableGranuleError, match="data set 'values' claims 12 elements"):
        Hdf5Container(path)


@pytest.mark.parametrize("more", [0, 1])
def test_variables_lie_in_groups_of_so_many_levels(tmp_path: Path, more: int) -> None:
    path = hdf5_file(tmp_path / "a.nc", hdf5._LEVELS + more)
    assert len(Hdf5Container(path).datasets) == 1 - more
