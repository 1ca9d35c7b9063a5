"""What results must be, whatever options made them: they open, and their values make sense."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import rasterio
import xarray
from shapely import Polygon, contains_xy, geometry
from zarr.storage import ZipStore

from reprojection.grid.targets import pixel_centres
from reprojection.read.qa import Reason
from reprojection.read.raster import Raster
from reprojection.write.write import read_raster
from tasks.request.document import Request

RANGES: Mapping[str, tuple[float, float]] = {
    "Lai_1km": (0.0, 10.0),
    "FparLai_QC": (0, 254),
    "Optical_Depth_Land_And_Ocean": (-0.1, 5.0),
    "Corrected_Optical_Depth_Land[1]": (-0.1, 5.0),
    "Scan_Start_Time": (607e6, 608e6),
    "Land_Ocean_Quality_Flag": (0, 3),
    "Sensor_Zenith": (0.0, 90.0),
    "Depth": (-327.0, 327.0),
    "Depth_Quality": (0, 255),
}
"""Of each layer, in physical units."""

Floats = npt.NDArray[np.float64]


def check_layer(path: Path, request: Request, *, clipped: bool = True) -> Raster:
    """A raster of a layer, or its cell: bands, type, values, and what each further band says."""
    with rasterio.open(path) as dataset:
        assert dataset.crs is not None
        assert dataset.count == len(dataset.descriptions)
    raster = read_raster(path)
    roles = [band.role for band in raster.bands]
    codes = ["class"] if request.codes == "keep" else []
    assert roles == ["data", *codes, *sorted(request.extra_bands)]
    layer = raster.provenance.layer
    physical = raster.values()
    valid = raster.valid()
    if request.units == "physical" and raster.kind == "continuous":
        assert raster.data.dtype == np.float32
        assert (raster.scale, raster.offset) == (1.0, 0.0)
    if request.mask:
        low, high = RANGES[layer]
        slack = 0.15 * (high - low) if _can_overshoot(raster) else 1e-6 * abs(high)
        found = physical[valid]
        assert ((found >= low - slack) & (found <= high + slack)).all(), (layer, found)
    _check_further(raster, request)
    if clipped and request.region.clip:
        outside = ~_inside(raster, request)
        assert outside.any()
        assert not valid[outside].any()
    return raster


def _can_overshoot(raster: Raster) -> bool:
    return dict(raster.provenance.parameters).get("resampling") == "cubic"


def _check_further(raster: Raster, request: Request) -> None:
    valid = raster.valid()
    inside = _inside(raster, request) if request.region.clip else np.ones(valid.shape, bool)
    planes = {band.role: raster.data[number] for number, band in enumerate(raster.bands)}
    granules = len(raster.provenance.granules)
    if "reason" in planes:
        assert np.array_equal(planes["reason"] == Reason.VALID, valid)
        assert np.isin(planes["reason"], [*Reason]).all()
    if "source" in planes:
        source = planes["source"].astype(int)
        assert ((source >= 0) & (source <= granules)).all()
        assert np.array_equal(source, planes["source"])
        assert not source[~valid].any()
        assert source.any() == valid.any() or request.merge == "mean"
    if "count" in planes:
        counts = planes["count"].astype(int)
        assert ((counts >= 0) & (counts <= granules)).all()
        assert (counts[valid & inside] > 0).all()
    if "class" in planes:
        kept = raster.valid(1)
        assert not (kept & valid).any()
        named = {*raster.codes}
        if named:
            assert {int(one) for one in np.unique(planes["class"][kept])} <= named


def _inside(raster: Raster, request: Request) -> npt.NDArray[np.bool_]:
    shape = geometry.shape(request.region.geojson or {})
    assert isinstance(shape, Polygon)
    centres = pixel_centres(raster.grid)
    lat, lon = np.broadcast_arrays(centres.lat, centres.lon)
    return np.asarray(contains_xy(shape, lon, lat))


def check_one_granule(rasters: Sequence[Raster]) -> None:
    """Layers of one swath product and day: no pixel pairs values of different granules."""
    known = sorted({one.name for raster in rasters for one in raster.provenance.granules})
    numbers = []
    for raster in rasters:
        roles = [band.role for band in raster.bands]
        places = np.array([0, *(1 + known.index(one.name) for one in raster.provenance.granules)])
        numbers.append(places[raster.data[roles.index("source")].astype(int)])
    for one, other in itertools.combinations(numbers, 2):
        both = (one != 0) & (other != 0)
        assert np.array_equal(one[both], other[both])


def check_mean(path: Path, days: Sequence[Raster]) -> None:
    """A raster of a shipped mean: nowhere beyond the days it is of, and nowhere without one."""
    raster = read_raster(path)
    assert raster.data.dtype == np.float32
    assert raster.kind == "continuous"
    planes = np.stack([day.values() for day in days])
    some = np.isfinite(planes).any(axis=0)
    assert np.array_equal(raster.valid(), some)
    if some.any():
        mean = raster.values()[some]
        slack = 1e-5 * np.abs(planes[np.isfinite(planes)]).max() + 1e-6
        assert (mean >= np.nanmin(planes[:, some], axis=0) - slack).all()
        assert (mean <= np.nanmax(planes[:, some], axis=0) + slack).all()


def check_last(path: Path, days: Sequence[Raster]) -> None:
    """A raster of the package `last`: its last day, with that day's scale."""
    raster = read_raster(path)
    assert [band.role for band in raster.bands] == ["data", "data"]
    expected = days[-1].values()
    assert np.allclose(raster.values(), expected, equal_nan=True)


def check_cube(path: Path, form: str, rasters: Sequence[Path]) -> None:
    """A cube: opened by xarray it has the values of its rasters, date by date."""
    planes = [read_raster(one) for one in rasters]
    if form == "netcdf":
        opened = xarray.open_dataset(path, engine="netcdf4")
    else:
        opened = xarray.open_zarr(ZipStore(path, mode="r"), chunks=None)
    with opened as cube:
        names = [name for name in cube.data_vars if cube[name].ndim == 3]
        assert len(names) == len(planes[0].bands), names
        assert cube.sizes["time"] == len(planes)
        assert (np.diff(cube.time.values) > np.timedelta64(0)).all()
        values: Floats = cube[names[0]].values
        for plane, raster in zip(values, planes, strict=True):
            expected = raster.values()
            assert np.allclose(plane, expected, equal_nan=True, rtol=1e-5, atol=1e-5)
