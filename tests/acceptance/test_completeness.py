"""Completeness belongs to every result: a request over an archive with a damaged granule, one that
has another's name, and one that is absent, from its document to page, mail, files and command."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx
import pytest
import xarray

from reprojection.sample.hdfeos_write import write_granule
from reprojection.write.write import open_raster
from service_manager.mail.notify import message
from swathmill.client import Client
from swathmill.missing_lines import gap_lines, incomplete_lines
from tasks.bag.kinds import load_spec
from tasks.bag.model import RequestState
from tasks.requests import outbox, request_operations
from tests.acceptance.in_process import OWNER, Work
from tests.mails import text_of
from tests.portal.scripted import LivePortal, live_portal
from tests.portal.scripted import settings as portal_settings
from tests.reprojection.reading_samples import small_tile

pytestmark = pytest.mark.slow

DAYS = ("2012001", "2012009", "2012017", "2012025")
DAMAGED = "MCD15A2.A2012009.h17v03.005.2012153130500.hdf"
MISNAMED = "MCD15A2.A2012017.h17v03.005.2012153130500.hdf"
ABSENT = "MCD15A2.005 2012-01-25 h17v03"
WRONG = "MCD15A2.005 2012-01-17 h17v03"
NOT_THERE = "not in the archive"
DOCUMENT: dict[str, Any] = {
    "title": "Half a map",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-01-31"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.5},
    "resampling": "nearest",
    "reduction": {"package": "monthly-mean", "group_by": ["cell", "month"]},
    "cube": "netcdf",
    "notify": OWNER,
}
LAI = "MCD15A2.005/Lai_1km"
MEAN = "monthly-mean/Lai_1km_mean"
MEAN_RASTER = "Lai_1km_mean.2012-01"


@dataclass
class Line(Work):
    """A manager and a worker in this process, and the results."""

    def file(self, request: str, path: str) -> Path:
        """A result, fetched."""
        folder, _, name = path.rpartition("/")
        for interest in request_operations.results(self.runtime, request):
            for file in interest.files:
                if (interest.output, file.name) == (folder, name):
                    to = self.folder / name
                    container, blob = file.blob.split("/", 1)
                    self.runtime.blobs.get_file(container, blob, to, file.sha256)
                    return to
        raise AssertionError(f"no result {path}")

    def manifest_of(self, request: str) -> dict[str, Any]:
        """The manifest of the group behind the raster of a reduction."""
        (key,) = (
            w.key
            for w in request_operations.results(self.runtime, request)
            if w.name == MEAN_RASTER
        )
        for _ in ("run", "group"):
            key = self.runtime.tasks.spec(key).inputs[0].key
        task = self.runtime.tasks.task(key)
        assert task is not None
        (file,) = (file for file in task.files if file.name == "manifest.json")
        container, blob = file.blob.split("/", 1)
        found: dict[str, Any] = json.loads(self.runtime.blobs.get_bytes(container, blob))
        return found


def fill(archive: Path, *, whole: bool) -> None:
    """Two tiles on four dates; unless whole one is damaged, one a file of another's name, one not
    there."""
    archive.mkdir(parents=True)
    for day in DAYS:
        for tile in ((17, 3), (18, 3)):
            granule = small_tile(tile=tile, date=day)
            write_granule(archive / granule.local_name, granule)
    if whole:
        return
    damaged = archive / DAMAGED
    damaged.write_bytes(damaged.read_bytes()[:600])
    other = small_tile(tile=(18, 4), date="2012017", product="MOD09A1", collection=6)
    (archive / MISNAMED).unlink()
    write_granule(archive / MISNAMED, other)
    (archive / MISNAMED.replace("2012017", "2012025")).unlink()


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The request as it ended, with the portal over the same services."""

    line: Line
    request: str
    portal: LivePortal

    def client(self) -> httpx.Client:
        return self.portal.client(OWNER)

    def results(self) -> dict[str, dict[str, Any]]:
        with self.client() as client:
            found = client.get(f"/api/requests/{self.request}/results").json()
        return {one["name"]: one for one in found}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    folder = tmp_path_factory.mktemp("completeness")
    fill(folder / "archive", whole=False)
    line = Line(folder=folder / "data", archive=folder / "archive")
    request = line.run(DOCUMENT)
    with live_portal(line.runtime, portal_settings()) as portal:
        yield Ended(line=line, request=request, portal=portal)


def raster(day: str) -> str:
    return f"{LAI}/MCD15A2.005.Lai_1km.{day}.tif"


def missing(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["what"], one["why"]) for one in result["missing"]]


def test_each_raster_says_what_it_lacks_and_what_share_is_there(ended: Ended) -> None:
    row = request_operations.load(ended.line.runtime, ended.request)
    assert row.state is RequestState.GAPS
    assert row.message.startswith("7 of 7 results are there; 6 of them lack an input: download")
    found = ended.results()
    whole = found[raster("2012-01-01")]
    assert (whole["completeness"], whole["missing"], whole["missing_count"]) == (1.0, [], 0)
    for day, what, why in (
        ("2012-01-09", DAMAGED, "download failed"),
        ("2012-01-17", WRONG, NOT_THERE),
        ("2012-01-25", ABSENT, NOT_THERE),
    ):
        said = found[raster(day)]
        assert 0.3 < said["completeness"] < 0.7
        assert missing(said) == [(what, why)]
        path = ended.line.file(ended.request, raster(day))
        assert open_raster(path).said.completeness.share == said["completeness"]


def test_the_stac_item_says_it(ended: Ended) -> None:
    items = {
        day: json.loads(
            ended.line.file(ended.request, raster(day).replace(".tif", ".json")).read_text()
        )["properties"]
        for day in ("2012-01-01", "2012-01-25")
    }
    assert not [name for name in items["2012-01-01"] if "missing" in name or "complete" in name]
    assert 0.3 < items["2012-01-25"]["swathmill:completeness"] < 0.7
    assert items["2012-01-25"]["swathmill:missing"] == [{"what": ABSENT, "why": NOT_THERE}]


def test_cubes_have_the_share_of_each_date_as_a_variable_along_time(ended: Ended) -> None:
    path = f"{LAI}/MCD15A2.005.Lai_1km.nc"
    said = ended.results()[path]
    with xarray.open_dataset(ended.line.file(ended.request, path)) as cube:
        assert cube["completeness"].dims == ("time",)
        shares = cube["completeness"].values.tolist()
        assert cube["completeness"].attrs["units"] == "1"
        assert cube["Lai_1km"].attrs["ancillary_variables"] == "completeness"
        lines = cube.attrs["missing_inputs"].split("\n")
        assert cube.attrs["completeness"] == said["completeness"]
    assert shares[0] == 1.0
    assert all(0.3 < share < 0.7 for share in shares[1:])
    assert said["completeness"] == pytest.approx(sum(shares) / 4, abs=1e-5)
    assert sorted(lines) == sorted(f"{what}: {why}" for what, why in missing(said))
    assert {what for what, _ in missing(said)} == {DAMAGED, WRONG, ABSENT}


def test_a_reduction_is_told_what_its_group_lacks_and_its_results_say_it(ended: Ended) -> None:
    manifest = ended.line.manifest_of(ended.request)
    assert {one["what"] for one in manifest["missing"]} == {DAMAGED, WRONG, ABSENT}
    assert manifest["completeness"] < 1.0
    said = ended.results()[f"{MEAN}/Lai_1km_mean.2012-01.tif"]
    assert {what for what, _ in missing(said)} == {DAMAGED, WRONG, ABSENT}
    assert 0.3 < said["completeness"] < 0.9


def test_gaps_name_the_results_that_lack_them_and_a_wrong_file_is_called_that(ended: Ended) -> None:
    with ended.client() as client:
        gaps = client.get(f"/api/requests/{ended.request}/gaps").json()
    by_name = {gap["what"]: gap for gap in gaps}
    assert set(by_name) == {DAMAGED, WRONG, ABSENT}
    both = [f"{LAI}/MCD15A2.005.Lai_1km.nc", f"{MEAN}/Lai_1km_mean.2012-01.tif"]
    for what, day in ((DAMAGED, "09"), (WRONG, "17"), (ABSENT, "25")):
        affected = by_name[what]["affects"]
        assert {raster(f"2012-01-{day}"), *both} <= {*affected}
        assert (
            len([path for path in affected if path.startswith(f"{LAI}/") and ".tif" in path]) == 1
        )
    assert by_name[WRONG]["why"].startswith(
        f"the file {MISNAMED} holds h18v04 of MOD09A1.006 of 2012-01-17, as its metadata says"
    )


def test_the_pages_show_it(ended: Ended) -> None:
    with ended.portal.browser(OWNER) as browser:
        page = browser.get(f"/requests/{ended.request}").text
        view = browser.get(f"/requests/{ended.request}/view/{raster('2012-01-25')}").text
        whole = browser.get(f"/requests/{ended.request}/view/{raster('2012-01-01')}").text
    assert "made without some of the expected inputs" in page
    assert "50% of the inputs" in page
    assert f"{LAI} 2012-01-25, the cube" in page
    assert "Made from 50% of the expected inputs" in view
    assert ABSENT in view
    assert "expected inputs" not in whole


def test_the_mail_and_the_command_name_the_incomplete_results(ended: Ended) -> None:
    (mail,) = outbox.unsent(ended.line.runtime.store)
    sent: EmailMessage = message(mail, "swathmill@example.org")
    body = " ".join(text_of(sent).split())
    dates = "2012-01-09, 2012-01-17, 2012-01-25"
    assert f"{LAI} {dates}, the cube (50% to 62% of the inputs)" in body
    assert f"{ABSENT}: the archive has no granule of this tile and date. Affects: {LAI} " in body
    with ended.client() as session:
        client = Client(url=ended.portal.url, token=session.headers["Authorization"].split()[1])
        lines = incomplete_lines(client.results(ended.request))
        gaps = gap_lines(client.gaps(ended.request))
    assert f"incomplete: {LAI} {dates}, the cube (50% to 62% of the inputs)" in lines
    assert any(line.startswith(f"gap: {WRONG}: the file {MISNAMED} holds") for line in gaps)


def test_a_whole_archive_makes_results_that_lack_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "archive", whole=True)
    line = Line(folder=tmp_path / "data", archive=tmp_path / "archive")
    request = line.run(DOCUMENT)
    assert request_operations.load(line.runtime, request).state is RequestState.COMPLETE
    for interest in request_operations.interests(line.runtime, request):
        assert line.runtime.tasks.spec(interest.key).missing == ()
        assert all(file.completeness.share == 1.0 for file in interest.files)
        spec = line.runtime.tasks.spec(interest.key)
        assert load_spec(spec.model_dump_json()).key == interest.key
    with xarray.open_dataset(line.file(request, f"{LAI}/MCD15A2.005.Lai_1km.nc")) as cube:
        assert "completeness" not in cube
