"""Cubes of rasters that are alike in what they hold and not in what their bands are called."""

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import xarray
from pyproj import Transformer

from reprojection.errors import ChoiceRefusedError
from reprojection.read.description import Band
from reprojection.read.raster import Raster
from reprojection.read.window_time import WindowTime, granule_bounds
from reprojection.write import cube
from reprojection.write.cube import write_cube
from reprojection.write.write import write_cog
from tests.reprojection.raster_samples import plain

TIMES = [datetime(2012, month, 1, tzinfo=UTC) for month in (1, 2)]


def monthly(month: int, *, bands: int = 1, units: str = "") -> Raster:
    """A reduction's raster, whose bands are named by the month."""
    base = plain(np.full((6, 8), month, np.uint8))
    names = [f"LAI {n} 2012-{month:02d}" for n in range(bands)]
    return replace(
        base,
        data=np.concatenate([base.data + n for n in range(bands)]),
        bands=tuple(Band(name=name) for name in names),
        units=units,
    )


def written(folder: Path, *rasters: Raster) -> list[Path]:
    paths = [folder / f"{number}.tif" for number in range(len(rasters))]
    for path, raster in zip(paths, rasters, strict=True):
        write_cog(raster, path)
    return paths


def test_layers_that_hold_times_open_in_xarray(tmp_path: Path) -> None:
    """Scan_Start_Time has units that xarray refuses as they are."""
    units = "Seconds since 1993-1-1 00:00:00.0 0"
    paths = written(tmp_path, monthly(1, units=units), monthly(2, units=units))
    write_cube(paths, tmp_path / "cube.nc", times=TIMES)
    with xarray.open_dataset(tmp_path / "cube.nc") as cube:
        (name,) = (name for name in cube.data_vars if cube[name].ndim == 3)
        assert cube[name].encoding["units"] == "seconds since 1993-01-01 00:00:00"
        assert str(cube[name].values[0, 0, 0])[:10] == "1993-01-01"


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_bands_agree_by_number_and_role_not_by_name(
    tmp_path: Path, kind: Literal["netcdf", "zarr"]
) -> None:
    paths = written(tmp_path, monthly(1, bands=3), monthly(2, bands=3))
    write_cube(paths, tmp_path / "cube", kind=kind, times=TIMES)
    engine = "netcdf4" if kind == "netcdf" else "zarr"
    with xarray.open_dataset(tmp_path / "cube", engine=engine) as cube:
        assert {"Height", "Height_2", "Height_3"} <= {*cube.data_vars}
        said = [
            cube.attrs[f"geospatial_{one}"] for one in ("lon_min", "lat_min", "lon_max", "lat_max")
        ]
        to_degrees = Transformer.from_crs("EPSG:32631", "EPSG:4326", always_xy=True)
        assert said == pytest.approx(to_degrees.transform_bounds(*monthly(1).grid.bounds), abs=1e-5)
        covered = [cube.attrs[f"time_coverage_{one}"] for one in ("start", "end")]
        ends = cube["time_bnds"].values.min(), cube["time_bnds"].values.max()
        assert covered == [f"{str(one)[:19]}Z" for one in ends]
        assert cube["Height"].attrs["long_name"] == "Height"
        for n, name in enumerate(("Height", "Height_2", "Height_3")):
            assert [float(plane.mean()) for plane in cube[name]] == [1.0 + n, 2.0 + n]


def test_other_numbers_of_bands_and_other_units_are_refused(tmp_path: Path) -> None:
    for other in (monthly(2, bands=2), monthly(2, units="m")):
        paths = written(tmp_path, monthly(1), other)
        with pytest.raises(ChoiceRefusedError, match="do not fit in one cube"):
            write_cube(paths, tmp_path / "cube", times=TIMES)


def of_window(*days: tuple[str, str], recurs: bool = False, method: str = "") -> Raster:
    """A reduction's raster of a window of these days."""
    raster = monthly(1)
    parts = tuple((date.fromisoformat(first), date.fromisoformat(last)) for first, last in days)
    said = replace(
        raster.provenance, window=WindowTime(days=parts, recurs=recurs), cell_method=method
    )
    return replace(raster, provenance=said)


def test_bounds_of_a_window_reach_to_the_last_day_there_is(tmp_path: Path) -> None:
    (path,) = written(tmp_path, of_window(("2012-01-01", "9999-12-31")))
    write_cube([path], tmp_path / "cube.nc", times=TIMES[:1])
    with xarray.open_dataset(tmp_path / "cube.nc", decode_times=False) as cube:
        assert cube["time_bnds"].values.tolist() == [[15340.0, 2932897.0]]


@pytest.mark.parametrize(
    "other",
    [
        of_window(("2012-02-01", "2012-02-29"), method="sum"),
        of_window(("2012-02-01", "2012-02-29"), method="mean", recurs=True),
    ],
)
def test_other_cell_methods_and_climatologies_are_refused(tmp_path: Path, other: Raster) -> None:
    paths = written(tmp_path, of_window(("2012-01-01", "2012-01-31"), method="mean"), other)
    with pytest.raises(ChoiceRefusedError, match="do not fit in one cube"):
        write_cube(paths, tmp_path / "cube", times=TIMES)


def test_a_climatology_of_means_says_so_and_one_of_no_known_method_says_none(
    tmp_path: Path,
) -> None:
    days = (("2011-01-01", "2011-01-31"), ("2012-01-01", "2012-01-31"))
    for method, said in (
        ("mean", "time: mean within years time: mean over years"),
        ("", None),
    ):
        paths = written(tmp_path, of_window(*days, recurs=True, method=method))
        write_cube(paths, tmp_path / f"{method}.nc", times=TIMES[:1])
        with xarray.open_dataset(tmp_path / f"{method}.nc") as cube:
            assert cube["Height"].attrs.get("cell_methods") == said
            assert cube["time"].attrs["climatology"] == "climatology_bounds"


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        ("2012-01-25T00:00:00Z", "2012-02-01T23:59:59Z", 8 * 24),
        ("2012-01-25T00:00:00Z", "2012-01-25T23:59:59.999999Z", 24),
        ("2012-01-25T10:30:00Z", "2012-01-25T10:35:00Z", 1 / 12),
        ("2012-01-25T10:30:00Z", "2012-01-25T23:59:58Z", 13.5 - 2 / 3600),
        ("2012-01-25T00:00:00Z", "2012-01-26T00:00:00Z", 24),
        ("2012-01-25T00:00:00Z", "", 0),
    ],
)
def test_days_of_granules_end_with_the_midnight_after_them(
    start: str, end: str, hours: float
) -> None:
    first, last = granule_bounds(start, end)
    assert first == pytest.approx(15364 + (10.5 / 24 if "10:30" in start else 0))
    assert (last - first) * 24 == pytest.approx(hours, abs=1e-6)


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_a_cube_that_is_written_by_stripes_has_the_same_bytes(
    tmp_path: Path, kind: Literal["netcdf", "zarr"], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    base = plain(rng.integers(0, 200, (1300, 700)).astype(np.uint8))
    two = replace(
        base,
        data=np.concatenate([base.data, base.data + 1]),
        bands=(Band(name="LAI 1"), Band(name="LAI 2")),
    )
    paths = written(tmp_path, two, replace(two, data=two.data + 2))

    def made(rows: int, whole: int) -> dict[str, bytes]:
        monkeypatch.setattr(cube, "_ROWS", rows)
        monkeypatch.setattr(cube, "_WHOLE_BYTES", whole)
        out = tmp_path / f"{rows}.{whole}" / "cube"
        out.parent.mkdir()
        write_cube(paths, out, kind=kind, times=TIMES)
        files = [out] if out.is_file() else [path for path in out.rglob("*") if path.is_file()]
        return {f"{path.relative_to(out.parent)}": path.read_bytes() for path in files}

    assert made(512, 0) == made(512, 1 << 28) == made(1300, 1 << 28)


MEASURED = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from reprojection.write import cube
from reprojection.write.cube import write_cube
from tests.held_memory import most_held
paths = sorted(Path(sys.argv[1]).glob("*.tif"))
times = [datetime(2012, 1, 1 + n, tzinfo=UTC) for n in range(len(paths))]
write_cube(paths[:1], sys.argv[2] + "-first", kind=sys.argv[3], times=times[:1])
print(most_held(lambda: write_cube(paths, sys.argv[2], kind=sys.argv[3], times=times)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_a_cube_takes_the_memory_of_a_stripe(tmp_path: Path, kind: str) -> None:
    """Of rasters of 64 MB each, in a process of its own."""
    pixels = np.arange(8000 * 4000, dtype=np.uint16).reshape(8000, 4000)
    written(tmp_path, *(plain(pixels + number) for number in range(2)))
    told = subprocess.check_output(
        [sys.executable, "-c", MEASURED, tmp_path, tmp_path / "cube", kind],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GDAL_CACHEMAX": "16"},
    )
    assert int(told) < 100e6, "146 to 149 MB where a raster is read as a whole"
