"""A package's rasters: taken on the group's grid only, and never guessed at."""

from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.transform import Affine

from reprojection.read.description import SourceGranule
from reprojection.write.write import open_raster, read_raster
from tasks.bag.categories import Category
from tasks.bag.spec import GridSpec, ReduceSpec
from tasks.packages.packages import Package
from tasks.service.classify import AttemptError
from worker.phases import adopt
from worker.phases.adopt import read_here
from worker.phases.group import Manifest, ManifestBand
from worker.phases.reduce import Output, take_outputs

GRID = GridSpec(crs="EPSG:4326", transform=(0.5, 0, 10, 0, -0.5, 50), width=6, height=4)
PACKAGE = Package(name="own", command=("sh",), outputs=("{layer}_mean.tif", "all.tif", "table.csv"))


def band(layer: str, granule: str, month: int) -> ManifestBand:
    return ManifestBand(
        file=f"{layer}.tif",
        band=month,
        product="MOD",
        collection="61",
        layer=layer,
        date=f"2012-0{month}-01",
        weight=1.0,
        start=f"2012-0{month}-01T00:00:00Z",
        end=f"2012-0{month}-08T23:59:59Z",
        granules=(SourceGranule(name=granule, produced="2013"),),
    )


MANIFEST = Manifest(
    group="c 2012",
    cell="c",
    window="2012",
    grid=GRID,
    bands=(band("A", "a1.hdf", 1), band("A", "a2.hdf", 2), band("B", "b1.hdf", 1)),
)


class Outputs:
    """What a run left behind."""

    def __init__(self, folder: Path) -> None:
        self.written, self.artifact = folder / "outputs", folder / "artifact"
        self.written.mkdir()
        self.artifact.mkdir()

    def write(self, name: str, dtype: str = "float32", **changes: object) -> None:
        profile = {
            "driver": "GTiff",
            "dtype": dtype,
            "count": 1,
            "width": GRID.width,
            "height": GRID.height,
            "crs": GRID.crs,
            "transform": Affine(*GRID.transform),
            **changes,
        }
        with rasterio.open(self.written / name, "w", **profile) as dataset:
            shape = (1, int(profile["height"]), int(profile["width"]))
            dataset.write(np.arange(np.prod(shape)).reshape(shape).astype(dtype))
            dataset.set_band_description(1, "mean of it")

    def take(self, *names: str) -> list[str]:
        return [output.path.name for output in self.made(*names)]

    def made(self, *names: str, manifest: Manifest = MANIFEST) -> tuple[Output, ...]:
        spec = ReduceSpec(package="own", digest="d", outputs=names, parameters={"threshold": "3"})
        read = read_here(self.written, manifest, most_bytes=10**6)
        return take_outputs(spec, PACKAGE, manifest, self.written, self.artifact, read)


@pytest.fixture
def outputs(tmp_path: Path) -> Outputs:
    return Outputs(tmp_path)


def test_an_output_of_a_layer_keeps_its_pixels_and_gets_a_history(outputs: Outputs) -> None:
    outputs.write("A_mean.tif")
    assert outputs.take("A_mean.tif") == ["A_mean.tif"]
    raster = read_raster(outputs.artifact / "A_mean.tif")
    assert raster.data.ravel().tolist() == list(range(24))
    assert raster.bands[0].name == "mean of it"
    said = raster.provenance
    assert [source.name for source in said.granules] == ["a1.hdf", "a2.hdf"]
    assert (said.start, said.end) == ("2012-01-01T00:00:00Z", "2012-02-08T23:59:59Z")
    assert (said.product, said.layer) == ("MOD", "A_mean")
    assert dict(said.parameters)["threshold"] == "3"


def test_an_output_over_all_layers_comes_from_all_granules(outputs: Outputs) -> None:
    outputs.write("all.tif", "int16", nodata=-1)
    outputs.take("all.tif")
    opened = open_raster(outputs.artifact / "all.tif")
    assert len(opened.said.provenance.granules) == 3
    assert opened.nodata == -1


@pytest.mark.parametrize(("nodata", "share"), [(-1, 1.0), (7, 23 / 24), (None, 0.0)])
def test_the_share_of_valid_pixels_is_counted(
    outputs: Outputs, nodata: int | None, share: float
) -> None:
    outputs.write("all.tif", "int16", nodata=0 if nodata is None else nodata)
    if nodata is None:
        with rasterio.open(outputs.written / "all.tif", "r+") as dataset:
            dataset.write(np.zeros((1, GRID.height, GRID.width), np.int16))
    (made,) = outputs.made("all.tif")
    assert made.valid_share == pytest.approx(share, abs=1e-6)


def test_files_are_handed_over_as_they_are(outputs: Outputs) -> None:
    (outputs.written / "table.csv").write_text("a,b\n", "utf-8")
    assert outputs.take("table.csv") == ["table.csv"]
    assert (outputs.artifact / "table.csv").read_text("utf-8") == "a,b\n"


def test_an_output_of_a_layer_that_is_lacking_may_be_absent(outputs: Outputs) -> None:
    outputs.write("A_mean.tif")
    outputs.write("B_mean.tif")
    assert outputs.take("A_mean.tif", "B_mean.tif", "Gone_mean.tif") == ["A_mean.tif", "B_mean.tif"]


def refused(outputs: Outputs, name: str) -> str:
    with pytest.raises(AttemptError) as caught:
        outputs.take(name)
    assert caught.value.category is Category.USER_CODE_FAILED
    return str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [{"width": 5}, {"transform": Affine(0.5, 0, 10.1, 0, -0.5, 50)}, {"width": 4, "height": 6}],
)
def test_a_raster_on_another_grid_is_refused(outputs: Outputs, changes: dict[str, object]) -> None:
    outputs.write("A_mean.tif", "float32", **changes)
    assert "write it on their grid" in refused(outputs, "A_mean.tif")


def test_integers_without_nodata_are_refused(outputs: Outputs) -> None:
    outputs.write("A_mean.tif", "uint8")
    assert "set nodata" in refused(outputs, "A_mean.tif")


def test_what_is_no_raster_is_refused(outputs: Outputs) -> None:
    (outputs.written / "A_mean.tif").write_text("no raster", "utf-8")
    assert "is not a raster" in refused(outputs, "A_mean.tif")


def test_a_cut_off_raster_is_refused(outputs: Outputs) -> None:
    outputs.write("A_mean.tif", width=6, height=4)
    path = outputs.written / "A_mean.tif"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "A_mean.tif" in refused(outputs, "A_mean.tif")


def test_a_missing_output_is_named_with_what_there_is(outputs: Outputs) -> None:
    outputs.write("B_mean.tif")
    assert "A_mean.tif and did not write it as a file; it wrote: B_mean.tif" in refused(
        outputs, "A_mean.tif"
    )


def test_a_link_is_no_output(outputs: Outputs) -> None:
    secret = outputs.written.parent / "secret"
    secret.write_text("of another", "utf-8")
    (outputs.written / "table.csv").symlink_to(secret)
    assert "did not write it" in refused(outputs, "table.csv")


def test_the_halo_around_a_cell_is_cut_off(outputs: Outputs) -> None:
    outputs.write("A_mean.tif")
    outputs.made("A_mean.tif", manifest=MANIFEST.model_copy(update={"halo": 1}))
    raster = read_raster(outputs.artifact / "A_mean.tif")
    assert raster.data.tolist() == [[[7, 8, 9, 10], [13, 14, 15, 16]]]
    assert (raster.grid.transform[2], raster.grid.transform[5]) == (10.5, 49.5)


def test_a_report_has_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"found": []}')
    monkeypatch.setattr(adopt, "_LONGEST_REPORT", 13)
    assert adopt._report(path).found == ()
    monkeypatch.setattr(adopt, "_LONGEST_REPORT", 12)
    with pytest.raises(AttemptError, match="cannot be read: no report of them"):
        adopt._report(path)
