"""Without the compiled kernels it is said so, and no granule is blamed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprojection.errors import KernelsAbsentError
from reprojection.grid.grids import Lattice
from reprojection.inspect.inspect import inspect
from reprojection.kernels import kernels
from reprojection.reproject import Options, reproject


@pytest.fixture
def _absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SWATHMILL_KERNELS", "none")
    kernels.library.cache_clear()
    yield
    kernels.library.cache_clear()


@pytest.mark.usefixtures("_absent")
def test_what_needs_the_kernels_says_what_to_install(sample_archive: Path) -> None:
    granule = min(sample_archive.rglob("MCD15A2*.hdf"))
    grid = Lattice(crs="EPSG:4326", resolution=0.1).snap((-8.0, 51.0, -7.0, 52.0))
    with pytest.raises(KernelsAbsentError, match="run `make kernels`"):
        reproject([granule], "Lai_1km", grid, Options())
    with pytest.raises(KernelsAbsentError):
        inspect(granule)


def test_kernels_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_VERSION", -1)
    kernels.library.cache_clear()
    with pytest.raises(KernelsAbsentError, match="of another version"):
        kernels.library()
    kernels.library.cache_clear()
