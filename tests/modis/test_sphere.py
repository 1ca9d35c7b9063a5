"""The sphere's constants: what they are, and that nothing else spells them."""

import math
import re
from pathlib import Path

import pytest

from modis.formats import HDF4_MAGIC, HDF5_MAGIC
from modis.sphere import METRES_PER_DEGREE, SPHERE_RADIUS, SPHERE_RADIUS_KM, wrap_longitude
from modis.tile import TILE_PIXELS, TILE_SIZE

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "archives",
    "bench",
    "portal",
    "processes",
    "reprojection",
    "service_manager",
    "swathmill",
    "tasks",
    "worker",
)
KERNELS = ROOT / "reprojection" / "kernels" / "csrc"


def spelled_in(pattern: str, *suffixes: str) -> set[str]:
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if path.suffix in suffixes and re.search(pattern, path.read_text("utf-8")):
                found.add(str(path.relative_to(ROOT)))
    return found


def test_the_numbers_are_those_of_the_modis_land_grid() -> None:
    assert pytest.approx(1111950.519667, abs=1e-3) == TILE_SIZE
    assert TILE_SIZE / TILE_PIXELS[1000] == pytest.approx(926.625433, abs=1e-6)
    assert pytest.approx(TILE_SIZE) == METRES_PER_DEGREE * 10
    assert SPHERE_RADIUS_KM * 1000 == SPHERE_RADIUS


def test_only_the_lowest_package_spells_the_radius_and_the_tile_size() -> None:
    # bench/fuzz_granules.py writes the text of a file's metadata, in which they are as NASA has it.
    spelled = spelled_in(r"\b6371[._]?\d|\b111[_.]?19[45]|\b1111[_.]?95", ".py", ".c", ".h")
    assert spelled == {"bench/fuzz_granules.py"}


def test_only_the_lowest_package_spells_the_first_bytes_of_formats() -> None:
    assert spelled_in(r"\\x89HDF|\\x0e\\x03\\x13\\x01", ".py") == set()
    assert HDF4_MAGIC != HDF5_MAGIC


def test_the_kernels_turn_degrees_into_radians_as_python_does() -> None:
    """The kernels take the radius from their callers; of constants they hold pi alone."""
    (degree,) = re.findall(r"DEGREE = ([0-9.]+);", (KERNELS / "swath.c").read_text("utf-8"))
    assert float(degree) == math.radians(1.0)
    (pi,) = set(re.findall(r"3\.14\d+", (KERNELS / "geolocation.c").read_text("utf-8")))
    assert float(pi) == math.pi


@pytest.mark.parametrize(
    ("lon", "wrapped"),
    [(0.0, 0.0), (180.0, -180.0), (-180.0, -180.0), (190.0, -170.0), (-541.0, 179.0)],
)
def test_longitudes_come_back(lon: float, wrapped: float) -> None:
    assert wrap_longitude(lon) == wrapped
