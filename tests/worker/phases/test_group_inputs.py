"""What a package may ask of its inputs: a halo around the cell, the region's mask, NetCDF."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import rasterio
import xarray
from pyproj import CRS
from scipy.ndimage import uniform_filter

from reprojection.read.description import Band as RasterBand
from reprojection.read.description import Provenance
from reprojection.read.raster import Raster
from reprojection.write.write import write_cog
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import GridSpec, GroupSpec, Input, ReduceSpec, ReprojectSpec
from tasks.packages.packages import pack
from tasks.spec_parts import Band
from tests.worker.mill import Mill
from worker.phases.netcdf import write_netcdf
from worker.phases.reproject import grid_of

DAY = date(2012, 3, 5)
WHOLE = GridSpec(crs="EPSG:4326", transform=(0.1, 0, 10, 0, -0.1, 50), width=48, height=32)
HALO = 4
FILTER = """
import json, sys
import numpy, rasterio
source, target = sys.argv[1:]
said = json.load(open(source + "/manifest.json"))
assert said["version"] == 1 and said["halo"] == 4, said
with rasterio.open(source + "/L.tif") as stack:
    values, profile = stack.read(1), stack.profile
    grid = said["grid"]
    assert (stack.height, stack.width) == (grid["height"], grid["width"]), stack.shape
values[values == -9999] = 0
around = numpy.lib.stride_tricks.sliding_window_view(numpy.pad(values, 4), (9, 9))
profile.update(dtype="float32", nodata=-1)
with rasterio.open(target + "/L_smooth.tif", "w", **profile) as out:
    out.write(around.mean((2, 3)), 1)
"""


def values() -> npt.NDArray[np.float32]:
    return np.random.default_rng(3).random((WHOLE.height, WHOLE.width)).astype("float32")


def piece(row: int, column: int) -> GridSpec:
    """One of 2 x 3 cells of 16 x 16 pixels."""
    a, _, c, _, e, f = WHOLE.transform
    corner = (a, 0.0, c + 16 * column * a, 0.0, e, f + 16 * row * e)
    return GridSpec(crs=WHOLE.crs, transform=corner, width=16, height=16)


def cell(mill: Mill, row: int, column: int) -> Input:
    """Store a cell of the whole as its task's artifact."""
    grid = piece(row, column)
    name = f"r{row}c{column}"
    data = values()[np.newaxis, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
    path = mill.folder / f"{name}.tif"
    about = Provenance(product="P", collection="6", layer="L", granules=())
    raster = Raster(
        data=np.ascontiguousarray(data),
        grid=grid_of(grid),
        nodata=-9999.0,
        kind="continuous",
        bands=(RasterBand(name="L"),),
        provenance=about,
    )
    write_cog(raster, path, overviews=False)
    stored = mill.world.runtime.blobs.put_file("artifacts", name, path)
    file = ArtifactFile(
        name="cell.tif", blob=f"artifacts/{name}", size=stored.size, sha256=stored.sha256
    )
    spec = ReprojectSpec(
        product="P", collection="6", layer="L", day=DAY, grid=grid, resampling="nearest"
    )
    return Input(key=mill.world.done(spec, [file]).key, name=name, file="cell.tif")


def package(folder: Path) -> Path:
    own = folder / "smooth"
    own.mkdir()
    (own / "package.yaml").write_text(
        "name: smooth\ncommand: [python, run.py]\noutputs: ['{layer}_smooth.tif']\n"
        f"inputs: {{halo: {HALO}, region: true}}\n"
    )
    (own / "run.py").write_text(FILTER)
    return own


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    return Mill(tmp_path, tmp_path)


def groups(mill: Mill, *, halo: int, region: str = "") -> dict[tuple[int, int], GroupSpec]:
    places = [(row, column) for row in range(2) for column in range(3)]
    made = {place: cell(mill, *place) for place in places}
    found = {}
    for place in places:
        wide = piece(*place).widened(halo)
        stacked = [place, *(o for o in places if o != place and wide.meets(piece(*o)))]
        found[place] = GroupSpec(
            inputs=tuple(made[one] for one in stacked),
            group=f"r{place[0]}c{place[1]} 2012-03",
            cell=f"r{place[0]}c{place[1]}",
            window="2012-03",
            grid=piece(*place),
            bands=tuple(
                Band(product="P", collection="6", layer="L", day=DAY, cell=f"r{row}c{column}")
                for row, column in stacked
            ),
            halo=halo,
            region=region,
        )
    return found


@pytest.mark.slow
def test_a_filter_over_neighbours_has_no_seams(mill: Mill, tmp_path: Path) -> None:
    archive = pack(package(tmp_path))
    mill.world.put_package(archive)
    found = np.zeros((WHOLE.height, WHOLE.width), "float32")
    for (row, column), spec in groups(mill, halo=HALO).items():
        files = mill.make(spec)
        given = mill.world.done(spec.model_copy(update={"group": f"{row} {column}"}), files)
        reduce = ReduceSpec(
            inputs=(given,), package="smooth", digest=archive.digest, outputs=("L_smooth.tif",)
        )
        (out,) = mill.make(reduce)
        with rasterio.open(mill.fetch(out)) as raster:
            assert raster.shape == (16, 16)
            assert raster.transform.almost_equals(rasterio.Affine(*piece(row, column).transform))
            found[16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = raster.read(1)
    np.testing.assert_allclose(found, uniform_filter(values(), 9, mode="constant"), rtol=1e-5)


def test_a_day_that_the_cell_lacks_is_not_made_of_its_neighbours(mill: Mill) -> None:
    spec = groups(mill, halo=HALO)[0, 1]
    kept = {i: given for i, given in enumerate(spec.inputs) if i > 0}
    assert spec.over(kept).inputs == ()
    assert len(spec.over({0: spec.inputs[0], 2: spec.inputs[2]}).bands) == 2


def test_the_mask_of_the_region_is_on_the_cells_grid(mill: Mill) -> None:
    # The left half of the first cell, and all above its sixth row.
    region = json.dumps(
        {
            "type": "Polygon",
            "coordinates": [
                [[10.0, 50.0], [14.8, 50.0], [14.8, 49.4], [10.8, 49.4], [10.8, 40], [10.0, 40.0]]
            ],
        }
    )
    document = json.loads(region)
    document["coordinates"][0].append([10.0, 50.0])
    spec = groups(mill, halo=0, region=json.dumps(document))[0, 0]
    files = {file.name: file for file in mill.make(spec)}
    said = json.loads(mill.fetch(files["manifest.json"]).read_text())
    assert said["region"] == "region.tif"
    with rasterio.open(mill.fetch(files["region.tif"])) as mask:
        assert mask.shape == (16, 16)
        expected = np.zeros((16, 16), np.uint8)
        expected[:6], expected[:, :8] = 1, 1
        np.testing.assert_array_equal(mask.read(1), expected)


@pytest.mark.parametrize(
    "days", [("2012-03-05", "2012-03-13"), ("2012-03-05T10:35", "2012-03-05T12:10")]
)
def test_a_stack_as_netcdf_opens_in_xarray(tmp_path: Path, days: tuple[str, str]) -> None:
    stored = np.array([[[1, 2], [3, 255]], [[4, 255], [5, 6]]], np.uint8)
    profile = {"driver": "GTiff", "dtype": "uint8", "nodata": 255, "count": 2}
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(500, 0, 1e5, 0, -500, 5e6)}
    with rasterio.open(tmp_path / "L.tif", "w", width=2, height=2, **profile, **place) as out:
        out.write(stored)
        out.scales, out.offsets, out.units = [0.1] * 2, [-1.0] * 2, ["m"] * 2
        for number, day in enumerate(days, 1):
            out.set_band_description(number, day)
    write_netcdf(tmp_path / "L.tif", tmp_path / "L.nc")
    with xarray.open_dataset(tmp_path / "L.nc") as found:
        expected = np.where(stored == 255, np.nan, stored * 0.1 - 1)
        np.testing.assert_allclose(found["values"], expected, rtol=1e-6)
        assert [*found["time"].values] == [np.datetime64(day) for day in days]
        assert found["x"].values.tolist() == [100250.0, 100750.0]
        assert found["y"].values.tolist() == [4999750.0, 4999250.0]
        assert CRS.from_cf(found["crs"].attrs) == CRS("EPSG:32633")
        assert found["values"].attrs["units"] == "m"
