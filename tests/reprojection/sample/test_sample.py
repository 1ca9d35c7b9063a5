"""The sample archive: true HDF-EOS, the same bytes every time, and what its users rely on."""

import shutil
import subprocess
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from reprojection.errors import ReprojectionError
from reprojection.read.granule import open_granule
from reprojection.read.qa import valid_mask
from reprojection.sample import sample as sample_module
from reprojection.sample.sample import (
    SWATH_DAYS,
    SYNTHETIC_NOTE,
    TILE_DAYS,
    TILES,
    _tile_places,
    write_sample_archive,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_sample_archive(tmp_path_factory.mktemp("sample"))


def test_the_archive_is_small_and_holds_what_it_promises(sample: list[Path]) -> None:
    assert sum(path.stat().st_size for path in sample) < 15_000_000
    tiles = [path for path in sample if path.name.startswith("MCD15A2.")]
    swaths = [path for path in sample if path.name.startswith("MYD04_L2.")]
    assert len(tiles) == len(TILES) * len(TILE_DAYS)
    assert len(swaths) == 4 * len(SWATH_DAYS)
    assert (TILE_DAYS[-1] - TILE_DAYS[0]).days >= 60


def test_every_granule_reads_and_says_it_is_synthetic(sample: list[Path]) -> None:
    for path in sample:
        with open_granule(path) as found:
            assert found.name == path.name
            assert found.entry is not None
            assert found.attributes["synthetic"] == SYNTHETIC_NOTE
            for layer in found.layers:
                found.read_all_bands(layer)


def test_leaf_area_is_on_land_alone_and_grows_in_spring(sample: list[Path]) -> None:
    """The first picture that a newcomer sees: leaves on Britain, none on the North Sea."""
    places = {"sea": (55.0, 3.0), "Bodmin Moor": (50.55, -4.6), "Thuringia": (50.9, 11.0)}
    found: dict[str, list[int]] = {name: [] for name in places}
    for day in (TILE_DAYS[0], TILE_DAYS[-1]):
        for path in (one for one in sample if f"MCD15A2.A{day:%Y%j}" in one.name):
            with open_granule(path) as granule:
                lai = granule.read("Lai_1km")
            lat, lon = _tile_places(TILES[0] if "h17v03" in path.name else TILES[1])
            for name, (north, east) in places.items():
                away = np.hypot(lat - north, lon - east)
                if away.min() < 0.02:
                    found[name].append(int(lai.flat[int(away.argmin())]))
    assert found["sea"] == [254, 254]
    for name in ("Bodmin Moor", "Thuringia"):
        early, late = found[name]
        assert early < late < 100, name


def test_neighbouring_tiles_meet_without_a_seam(sample: list[Path]) -> None:
    day = f"A{TILE_DAYS[3]:%Y%j}"
    west, east = (path for path in sample if day in path.name and "MCD15A2" in path.name)
    with open_granule(west) as left, open_granule(east) as right:
        edges = [
            np.where(np.less_equal(values, 100), values.astype(float), np.nan)
            for values in (left.read("Lai_1km")[:, -1], right.read("Lai_1km")[:, 0])
        ]
        with_data = np.isfinite(edges[0]) & np.isfinite(edges[1])
        assert with_data.sum() > 300
        assert np.abs(edges[0] - edges[1])[with_data].max() <= 1
        assert 0.1 < valid_mask(left, "Lai_1km", "good").mean() < 0.9


def test_orbits_overlap_and_footprints_grow(sample: list[Path]) -> None:
    day = f"A{SWATH_DAYS[0]:%Y%j}"
    swaths = [path for path in sample if day in path.name and "MYD04" in path.name]
    boxes = []
    for path in swaths:
        with open_granule(path) as found:
            place = found.geolocation("Optical_Depth_Land_And_Ocean")
            assert place.sensor_zenith is not None
            assert place.sensor_zenith.min() < 1 < 60 < place.sensor_zenith.max()
            row = np.abs(np.diff(place.lon[100])) * np.cos(np.radians(place.lat[100, 1:]))
            assert 3.5 < row[0] / row[67] < 6
            boxes.append((place.lat.min(), place.lat.max(), place.lon.min(), place.lon.max()))
    first, second = boxes[1], boxes[3]  # the northern granules of the two orbits
    assert min(first[1], second[1]) - max(first[0], second[0]) > 8
    assert min(first[3], second[3]) - max(first[2], second[2]) > 8


def test_a_disk_without_room_is_told_before_a_granule_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr("reprojection.sample.sample.shutil.disk_usage", lambda _path: usage)
    with pytest.raises(ReprojectionError, match="1,000,000 bytes free"):
        write_sample_archive(tmp_path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.proof
def test_the_bytes_are_the_same_every_time(sample: list[Path], tmp_path: Path) -> None:
    again = write_sample_archive(tmp_path / "elsewhere" / "with a longer name")
    assert [path.name for path in again] == [path.name for path in sample]
    for one, other in zip(sample, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


@pytest.mark.skipif(shutil.which("gdalinfo") is None, reason="gdalinfo is not on PATH")
def test_gdal_sees_grids_and_swaths(sample: list[Path]) -> None:
    for path, kind in ((sample[0], "EOS_GRID"), (sample[-1], "EOS_SWATH")):
        shown = subprocess.run(
            ["gdalinfo", str(path)], capture_output=True, text=True, check=True
        ).stdout
        if "HDF4" not in shown:
            pytest.skip("this gdalinfo has no HDF4 driver")
        assert f"HDF4_EOS:{kind}:" in shown
        assert "synthetic=SYNTHETIC" in shown


@pytest.mark.parametrize("less", [0, 1])
def test_the_sample_archive_needs_so_much_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, less: int
) -> None:
    free = Mock(free=sample_module._LARGEST - less)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    monkeypatch.setattr(subprocess, "Popen", Mock(side_effect=KeyError("begun")))
    words = "has 29,999,999 bytes free, and the sample archive takes up to 30,000,000"
    with pytest.raises(ReprojectionError if less else KeyError, match=words if less else "begun"):
        sample_module.write_sample_archive(tmp_path)
