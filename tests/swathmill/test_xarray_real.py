"""Real granules as xarray's datasets: every one opens, and its values are the reader's."""

from collections import Counter
from pathlib import Path

import numpy as np
import odc.geo.xr  # noqa: F401
import pytest
import rioxarray  # noqa: F401
import xarray as xr

from reprojection.formats import hdf4_data
from reprojection.read.granule import open_granule
from reprojection.read.qa import Reason, reasons
from tests.swathmill.test_xarray_engine import agrees, opened

pytestmark = pytest.mark.real_data


def holds(path: Path, most: int) -> None:
    """Hold some variables of each kind of each group to the stored values, and all to a CRS."""
    for node in xr.open_datatree(path, engine="swathmill").children.values():
        dataset = node.to_dataset()
        taken: Counter[str] = Counter()
        names = []
        for name, held in dataset.data_vars.items():
            kind = held.dtype.str
            taken[kind] += 1
            if taken[kind] <= most:
                names.append(str(name))
        agrees(path, dataset, names)
        if "spatial_ref" in dataset.coords:
            assert dataset.rio.crs == dataset.odc.crs.to_wkt()
            assert dataset.odc.geobox.shape == (dataset.sizes["y"], dataset.sizes["x"])


def test_a_granule_of_each_product_has_the_readers_values(granules: Path) -> None:
    folders = sorted({path.parent for path in granules.glob("l*/*/*.hdf")})
    assert len(folders) >= 12
    for folder in folders:
        holds(min(folder.glob("*.hdf")), 1)


@pytest.mark.proof
def test_every_granule_has_the_readers_values(granules: Path) -> None:
    found = [path for kind in ("hdf", "h5", "nc") for path in granules.rglob(f"*.{kind}")]
    paths = [path for path in sorted(found) if "peer-reference" not in path.parts]
    assert len(paths) >= 50
    for path in paths:
        holds(path, 1000)


def test_coarser_quality_goes_for_the_finer_pixels_of_a_window(granules: Path) -> None:
    path = next(granules.glob("l3-tiles/MOD09GA/*.hdf"))
    with open_granule(path) as granule:
        row, column = np.argwhere(reasons(granule, "sur_refl_b01_1") == Reason.VALID)[0]
        state = granule.read("state_1km_1")[row // 2, column // 2]
        rule = {"state_1km_1": {"0-5": [int(state) & 63]}}
        why = reasons(granule, "sur_refl_b01_1", rule)
    assert {Reason.VALID, Reason.QA} <= set(np.unique(why))
    rows, columns = np.nonzero(why == Reason.VALID)
    part = (slice(rows[0] - 3, rows[0] + 40), slice(columns[0] - 5, columns[0] + 31))
    held = opened(path, layers="sur_refl_b01_1", qa=rule).sur_refl_b01_1[0][part]
    assert np.array_equal(np.isnan(held.values), why[part] != Reason.VALID)


def test_only_the_chunks_of_a_window_are_read(
    granules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    values = hdf4_data._Chunks.values

    def counted(chunks: hdf4_data._Chunks, *args: object) -> object:
        read.append(1)
        return values(chunks, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(hdf4_data._Chunks, "values", counted)
    for path in sorted(granules.glob("l3-tiles/*/*.hdf")):
        with open_granule(path) as granule:
            layer = max(granule.layers.values(), key=lambda one: one.shape.rows)
            chunk = granule.stored_chunk(layer)
            if chunk.rows * 3 < layer.shape.rows:
                break
    name = layer.name
    whole = opened(path, layers=name)[name]
    wanted = whole[..., chunk.rows : chunk.rows + 2, :].values
    assert len(read) == -(-layer.shape.cols // chunk.cols)
    assert np.array_equal(wanted, whole.values[..., chunk.rows : chunk.rows + 2, :], equal_nan=True)


def test_times_of_scans_are_those_that_the_file_records(granules: Path) -> None:
    """The file counts seconds from 1993 with leap seconds: six to 2007."""
    for path in sorted(granules.glob("l2-swath/MYD04_L2/*.hdf"))[:2]:
        found = opened(path)
        middle = found.sizes["cross_track"] // 2
        seconds = found.Scan_Start_Time.values[:, middle] - 6.0
        recorded = np.datetime64("1993-01-01", "ns") + (seconds * 1e9).astype("timedelta64[ns]")
        away = (found.scan_time.values - recorded) / np.timedelta64(1, "s")
        assert np.abs(away).max() < 2.0


def test_the_finest_pixels_that_are_placed_are_opened(granules: Path) -> None:
    swath = opened(min(granules.glob("l2-swath/MOD04_L2/*.hdf")))
    assert swath.attrs["group"] == "mod04_203x135"
    assert "lat" in swath.coords
    lost = opened(min(granules.glob("l2-swath/MOD14/*.hdf")))
    assert "lat" not in lost.coords
    assert "give that granule, too" in lost.attrs["place_problem"]
