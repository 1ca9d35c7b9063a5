"""The main job on real granules, through the whole stack, against independent answers.

One stack's data folder serves all tests of this module, in order: later requests find what
earlier ones made.
"""

import datetime as dt
import email
import json
import re
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from email import policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import xarray
import yaml
from numpy.typing import NDArray
from scipy.ndimage import binary_fill_holes
from zarr.storage import ZipStore

from tasks.errors import RequestRefusedError
from tasks.request.checks import check_request
from tasks.request.document import parse_request
from tasks.request.resolved import resolve
from tasks.settings import Settings
from tests.acceptance.oracles import Target, nadir_of_swaths, nearest_of_tiles
from tests.mails import part_of, text_of

pytestmark = [pytest.mark.slow, pytest.mark.real_data, pytest.mark.integration]

LIMIT = 900  # seconds for one run of the stack
GRID = {"crs": "EPSG:4326", "resolution": 0.01}
LEAVES: dict[str, Any] = {
    "title": "Leaf area, British Isles and North Sea coast",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "Fpar_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": GRID,
    "resampling": "nearest",
    "reduction": {"package": "monthly-mean", "group_by": ["cell", "month"]},
    "notify": "scientist@example.org",
}
LEAF_TARGET = Target(west=-8.0, north=58.5, side=0.01, columns=1400, rows=800)
AEROSOL_LAYER = "Optical_Depth_Land_And_Ocean"
AEROSOL: dict[str, Any] = {
    "title": "Aerosol over Asia",
    "products": [{"name": "MYD04_L2", "collection": "6", "layers": [AEROSOL_LAYER]}],
    "region": {"bbox": [70, 15, 150, 55]},
    "time": {"start": "2007-04-13", "end": "2007-04-13"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.1},
}
AEROSOL_TARGET = Target(west=70.0, north=55.0, side=0.1, columns=800, rows=400)
TEN_GRANULES = ("0250", "0255", "0430", "0435", "0605", "0610", "0615", "0740", "0745", "0750")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What one `swathmill run` left."""

    code: int
    output: str
    folder: Path
    summary: dict[str, Any]

    def phase(self, name: str) -> dict[str, int]:
        counts: dict[str, int] = self.summary["phases"][name]
        return counts

    def rasters(self, under: str) -> list[Path]:
        return sorted((self.folder / under).rglob("*.tif"))

    def mail(self) -> EmailMessage:
        (name,) = self.summary["mails"]
        found = email.message_from_bytes((self.folder / name).read_bytes(), policy=policy.default)
        assert isinstance(found, EmailMessage)
        return found

    def failures(self) -> dict[str, str]:
        """Category by what failed."""
        return {f["name"]: f["category"] for f in self.summary["failures"]}


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where requests are run: one data folder, an output folder for each."""

    data: Path
    out: Path

    def run(self, name: str, document: dict[str, Any], archive: Path) -> Ran:
        """Run a request by the command and read what it left."""
        folder = self.out / name
        folder.mkdir()
        request = self.out / f"{name}.yaml"
        request.write_text(yaml.safe_dump(document))
        command = [sys.executable, "-m", "swathmill.cli", "run", str(request)]
        command += ["--archive", str(archive), "--out", str(folder), "--data", str(self.data)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        path = folder / "summary.json"
        summary = json.loads(path.read_text()) if path.is_file() else {}
        output = done.stdout + done.stderr
        return Ran(code=done.returncode, output=output, folder=folder, summary=summary)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(data=tmp_path_factory.mktemp("data"), out=tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def leaves(desk: Desk, granules: Path) -> Ran:
    return desk.run("leaves", LEAVES, granules)


def read(path: Path) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
    """Band 1 as stored, and where it has a value."""
    with rasterio.open(path) as dataset:
        stored = dataset.read(1)
        return stored, dataset.read_masks(1) != 0


def composites(granules: Path, day: str) -> list[Path]:
    start = dt.date.fromisoformat(day)
    return sorted((granules / "l3-tiles" / "MCD15A2").glob(f"*.A{start:%Y%j}.*.hdf"))


def test_the_request_completes(leaves: Ran) -> None:
    assert leaves.code == 0, leaves.output
    assert leaves.summary["state"] == "complete"
    assert leaves.summary["gaps"] == []
    assert leaves.phase("collection")["total"] == 32
    assert leaves.phase("collection")["done"] == 32
    assert leaves.phase("collection")["reused"] == 0
    for layer in ("Lai_1km", "Fpar_1km"):
        names = [path.name for path in leaves.rasters(f"MCD15A2.005/{layer}")]
        assert len(names) == 16
        assert names[0] == f"MCD15A2.005.{layer}.2012-01-01.tif"


def test_rasters_are_cloud_optimized_and_say_what_they_are(leaves: Ran) -> None:
    for path in leaves.rasters("MCD15A2.005"):
        with rasterio.open(path) as dataset:
            assert dataset.tags(ns="IMAGE_STRUCTURE").get("LAYOUT") == "COG"
            assert (dataset.width, dataset.height) == (1400, 800)
            assert dataset.crs.to_epsg() == 4326
            assert dataset.bounds == pytest.approx((-8.0, 50.5, 6.0, 58.5))
            assert dataset.overviews(1)
            assert dataset.nodata is not None
            assert dataset.scales[0] == pytest.approx(0.1 if "Lai" in path.name else 0.01)


@pytest.mark.parametrize("layer", ["Lai_1km", pytest.param("Fpar_1km", marks=pytest.mark.proof)])
def test_nearest_pixels_equal_an_independent_warp(leaves: Ran, granules: Path, layer: str) -> None:
    shares = []
    for path in leaves.rasters(f"MCD15A2.005/{layer}"):
        stored, valid = read(path)
        right = nearest_of_tiles(composites(granules, path.stem[-10:]), layer, LEAF_TARGET)
        sure = ~right.tied
        assert np.array_equal(valid[sure], right.valid[sure]), path.name
        both = sure & right.valid
        assert np.array_equal(stored[both], right.values[both]), path.name
        shares.append(valid.mean())
    assert len(shares) == 16
    assert min(shares) > 0.35
    assert max(shares) < 0.37


def test_monthly_means(leaves: Ran) -> None:
    for layer in ("Lai_1km", "Fpar_1km"):
        means = {path.stem[-7:]: path for path in leaves.rasters(f"monthly-mean/{layer}_mean")}
        assert sorted(means) == ["2012-01", "2012-02", "2012-03", "2012-04"]
        for month, path in means.items():
            days = [p for p in leaves.rasters(f"MCD15A2.005/{layer}") if f".{month}-" in p.name]
            assert len(days) == 4
            total, count = np.zeros((800, 1400)), np.zeros((800, 1400))
            for day in days:
                stored, valid = read(day)
                total += np.where(valid, stored, 0) * (0.1 if layer == "Lai_1km" else 0.01)
                count += valid
            mean, there = read(path)
            assert np.array_equal(there, count > 0)
            right = total[there] / count[there]
            assert np.allclose(mean[there], right, rtol=1e-5, atol=1e-6)


def test_the_mail_says_what_there_is(leaves: Ran) -> None:
    mail = leaves.mail()
    assert mail["To"] == "scientist@example.org"
    assert mail["Subject"] == "Leaf area, British Isles and North Sea coast: complete"
    text = text_of(mail)
    assert "/open?token=" in text
    assert "MCD15A2.005/Lai_1km" in text
    sent = dt.datetime.strptime(mail["Date"], "%a, %d %b %Y %H:%M:%S %z")
    assert f"They are kept until {(sent + dt.timedelta(days=30)).date()}." in text


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_the_mail_shows_one_of_its_rasters(leaves: Ran) -> None:
    html = part_of(leaves.mail(), "html")
    (cid, path) = re.findall(r'<img src="cid:(.+?)" alt="(.+?)">', html)[0]
    assert path in {file["name"] for file in leaves.summary["files"]}
    (picture,) = [p for p in leaves.mail().walk() if p.get_content_type() == "image/png"]
    assert picture["Content-ID"] == f"<{cid}>"
    with rasterio.MemoryFile(picture.get_content()) as file, file.open() as drawn:
        assert max(drawn.shape) == 480
        assert drawn.read(4).any()


def test_the_same_request_again_makes_nothing_again(
    leaves: Ran, desk: Desk, granules: Path
) -> None:
    again = desk.run("again", LEAVES, granules)
    assert again.code == 0, again.output
    for phase in ("collection", "reprojection"):
        assert again.phase(phase)["reused"] == again.phase(phase)["total"]
        assert again.phase(phase)["total"] == leaves.phase(phase)["total"]
    total = sum(phase["total"] for phase in again.summary["phases"].values())
    assert f"{total} of {total} tasks had been done before" in again.output
    text = " ".join(text_of(again.mail()).split())
    assert "Nothing was fetched or reprojected again." in text
    sums = [{f["name"]: f["sha256"] for f in ran.summary["files"]} for ran in (leaves, again)]
    assert sums[0] == sums[1]


@pytest.mark.proof
def test_an_overlapping_request_makes_what_is_missing(
    leaves: Ran, desk: Desk, granules: Path
) -> None:
    document = {
        **LEAVES,
        "products": [
            {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "LaiStdDev_1km"]}
        ],
        "region": {"bbox": [-9.0, 51.0, 6.0, 58.5]},
        "time": {"start": "2012-01-03", "end": "2012-04-30"},
        "reduction": None,
    }
    ran = desk.run("overlapping", document, granules)
    assert ran.code == 0, ran.output
    assert leaves.code == 0
    assert ran.phase("collection") == {**ran.phase("collection"), "total": 30, "reused": 30}
    cells = ran.phase("reprojection")
    assert cells["reused"] * 2 == cells["total"]
    assert len(ran.rasters("MCD15A2.005/LaiStdDev_1km")) == 15


@pytest.mark.proof
def test_the_dates_of_a_layer_as_one_cube(leaves: Ran, desk: Desk, granules: Path) -> None:
    document = {
        **LEAVES,
        "time": {"start": "2012-01-01", "end": "2012-01-31"},
        "reduction": None,
        "cube": "zarr",
    }
    ran = desk.run("cube", document, granules)
    assert ran.code == 0, ran.output
    assert ran.phase("reprojection")["reused"] == ran.phase("reprojection")["total"]
    days = [p for p in leaves.rasters("MCD15A2.005/Lai_1km") if ".2012-01-" in p.name]
    assert len(days) == 4
    (path,) = ran.folder.rglob("*Lai_1km*.zarr.zip")
    with (
        closing(ZipStore(path, mode="r")) as store,
        xarray.open_zarr(store, chunks=None) as opened,
    ):
        assert [str(when)[:10] for when in opened.time.values] == [day.stem[-10:] for day in days]
        planes = opened["Lai_1km"].values
    for plane, day in zip(planes, days, strict=True):
        stored, valid = read(day)
        assert np.array_equal(~np.isnan(plane), valid)
        assert np.allclose(plane[valid], np.multiply(stored[valid], 0.1), rtol=1e-6)


@pytest.mark.proof
@pytest.mark.parametrize("mask", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_ten_swaths_of_four_orbits_are_one_map(desk: Desk, granules: Path, mask: bool) -> None:
    document = {**AEROSOL, "mask": mask, "extra_bands": ["reason", "source"]}
    ran = desk.run(f"aerosol-{mask}", document, granules)
    assert ran.code == 0, ran.output
    assert ran.phase("collection")["total"] == 10
    (path,) = ran.rasters("MYD04_L2.006")
    folder = granules / "l2-swath" / "MYD04_L2"
    paths = [next(folder.glob(f"*.A2007103.{start}.*")) for start in TEN_GRANULES]
    right = nadir_of_swaths(paths, AEROSOL_LAYER, AEROSOL_TARGET, mask=mask)
    stored, valid = read(path)
    sure = ~right.unsure
    assert sure.mean() > 0.999
    assert np.array_equal(valid[sure], right.valid[sure])
    both = sure & right.valid
    assert both.sum() > 20_000
    assert np.array_equal(stored[both], right.values[both])
    with rasterio.open(path) as dataset:
        reason = dataset.read(dataset.descriptions.index("reason") + 1)
    seen = reason != 4  # no granule
    assert np.array_equal(seen[sure], right.seen[sure])
    holes = binary_fill_holes(seen) & ~seen
    assert holes.mean() < 0.001


@pytest.mark.proof
def test_bad_granules_leave_the_rest_unharmed(granules: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    for day in ("2012-01-01", "2012-01-09", "2012-01-17"):
        for path in composites(granules, day):
            shutil.copy(path, archive)
    (truncated,) = archive.glob("*.A2012009.h17v03.*")
    truncated.write_bytes(truncated.read_bytes()[:200_000])
    (page,) = archive.glob("*.A2012017.h18v03.*")
    page.write_text("<!DOCTYPE html><html><body>Please sign in</body></html>\n")
    document = {**LEAVES, "time": {"start": "2012-01-01", "end": "2012-01-17"}, "reduction": None}
    data = tmp_path / "data"
    ran = Desk(data=data, out=tmp_path).run("bad", document, archive)
    assert ran.code == 3, ran.output
    assert ran.summary["state"] == "complete with gaps"
    categories = set(ran.failures().values())
    assert "download failed" in categories
    assert categories <= {"download failed", "upstream failed"}
    for layer in ("Lai_1km", "Fpar_1km"):
        rasters = ran.rasters(f"MCD15A2.005/{layer}")
        assert len(rasters) == 3
        stored, valid = read(rasters[0])
        right = nearest_of_tiles(composites(granules, "2012-01-01"), layer, LEAF_TARGET)
        both = ~right.tied & right.valid
        assert valid[both].all()
        assert np.array_equal(stored[both], right.values[both])
    text = " ".join(text_of(ran.mail()).split())
    assert "download failed" in text


@pytest.mark.proof
def test_a_granule_without_geolocation_and_another_product(desk: Desk, granules: Path) -> None:
    document = {
        "products": [
            {"name": "MOD14", "collection": "6", "layers": ["fire mask"]},
            {"name": "MOD11B2", "collection": "6", "layers": ["LST_Day_6km"]},
        ],
        "region": {"bbox": [-95, 40, -45, 50]},
        "time": {"start": "2017-01-01", "end": "2017-01-01"},
        "grid": {"crs": "EPSG:4326", "resolution": 0.05},
    }
    ran = desk.run("fires", document, granules)
    assert ran.code == 3, ran.output
    assert "that touches the region and has its MOD03" in ran.output
    (path,) = ran.rasters("MOD11B2.006")
    assert read(path)[1].any()


@pytest.mark.proof
def test_a_layer_that_is_all_fill_is_an_ordinary_result(desk: Desk, granules: Path) -> None:
    document = {
        **AEROSOL,
        "products": [
            {"name": "MYD04_L2", "collection": "6", "layers": ["Fitting_Error_Land"]},
        ],
        "region": {"bbox": [150, 30, 158, 38]},
    }
    ran = desk.run("fill", document, granules)
    assert ran.code == 0, ran.output
    (path,) = ran.rasters("MYD04_L2.006")
    assert not read(path)[1].any()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"time": {"start": "2012-04-30", "end": "2012-01-01"}}, "time.end"),
        ({"region": {"bbox": [-8, 50.5, 6, 98.5]}}, "region.bbox.3"),
        ({"products": [{**LEAVES["products"][0], "layers": ["LAI"]}]}, "products.0.layers.0"),
        ({"grid": {"crs": "EPSG:99999", "resolution": 0.01}}, "grid.crs"),
        ({"grid": {"crs": "EPSG:4326", "resolution": 0.0001}}, "grid.resolution"),
        ({"regoin": {"bbox": [-8, 50.5, 6, 58.5]}}, "regoin"),
    ],
)
def test_a_request_that_means_nothing_is_refused_at_once(
    change: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        check_request(resolve(parse_request({**LEAVES, **change})), Settings())
    assert refused.value.field == field
    assert refused.value.remedy
