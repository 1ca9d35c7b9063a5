"""Phases that fail, each with its category, without processes or servers."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import GroupSpec, Input, ReduceSpec, ReprojectSpec
from tasks.packages.packages import pack
from tasks.storage.blobs import PACKAGES, Blobs, split_blob
from tests.worker.disks import disk_of
from tests.worker.mill import Mill, cell, granule, grid_spec, leaf_area
from tests.worker.processes import GOOD, MANIFEST
from tests.worker.world import collect_spec
from worker.sandbox.messages import Failed

pytestmark = pytest.mark.real_data


@pytest.fixture(params=["memory", "files"])
def mill(request: pytest.FixtureRequest, tmp_path: Path, granules: Path) -> Mill:
    return Mill(tmp_path, granules, files=request.param == "files")


def failure(mill: Mill, spec: Spec) -> Failed:
    said = mill.attempt(spec)
    assert isinstance(said, Failed), said
    return said


def test_a_missing_source_heals_by_its_bit(mill: Mill) -> None:
    collected = leaf_area(mill.archive, "001")
    (file,) = mill.make(collected)
    mill.world.runtime.blobs.delete(*split_blob(file.blob))
    for entry in (mill.folder / "cache" / "entries").glob("*/*"):
        entry.unlink()
    said = failure(mill, cell(collected, "Lai_1km", date(2012, 1, 1)))
    assert said.category is Category.SOURCE_BLOB_MISSING
    assert said.healing == 1


def other_than_recorded(mill: Mill) -> tuple[ReprojectSpec, Blobs]:
    """A cell whose granule's blob has other content than its task's row says."""
    collected = leaf_area(mill.archive, "001")
    blobs = mill.world.runtime.blobs
    stored = blobs.put_bytes("granules", "other", b"what came of it")
    wrong = ArtifactFile(name="g.hdf", blob="granules/other", size=stored.size, sha256="0" * 64)
    mill.world.done(collected, [wrong])
    return cell(collected, "Lai_1km", date(2012, 1, 1)), blobs


def test_a_blob_that_is_damaged_in_storage_heals_by_its_bit(mill: Mill) -> None:
    spec, _ = other_than_recorded(mill)
    said = failure(mill, spec)
    assert (said.category, said.healing) == (Category.CORRUPT_BLOB_READ, 1)
    assert "1 of 1 inputs are damaged or gone" in said.message


def test_a_blob_that_was_damaged_on_its_way_is_read_again_later(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, blobs = other_than_recorded(mill)
    monkeypatch.setattr(blobs, "stream", lambda *_: iter([b"another reading"]))
    said = failure(mill, spec)
    assert (said.category, said.healing) == (Category.CORRUPT_BLOB_READ, 0)


def test_a_package_that_is_damaged_in_storage_is_no_input(mill: Mill, tmp_path: Path) -> None:
    blobs = mill.world.runtime.blobs
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "package.yaml").write_text(
        "name: own\ncommand: [python, run.py]\noutputs: [out.txt]\n"
    )
    (folder / "run.py").write_text(GOOD)
    archive = pack(folder)
    group = GroupSpec(group="g", cell="c", window="all", grid=None, bands=())
    stored = blobs.put_bytes("artifacts", "manifest", MANIFEST)
    manifest = ArtifactFile(
        name="manifest.json", blob="artifacts/manifest", size=stored.size, sha256=stored.sha256
    )
    spec = ReduceSpec(
        inputs=(mill.world.done(group, [manifest]),),
        package="own",
        digest=archive.digest,
        outputs=("out.txt",),
    )
    blobs.put_bytes(PACKAGES, archive.blob, archive.data[:-1] + b"?")
    said = failure(mill, spec)
    assert (said.category, said.healing) == (Category.CORRUPT_BLOB_READ, 0)


def test_a_layer_the_granule_lacks_is_a_choice_refused(mill: Mill) -> None:
    collected = leaf_area(mill.archive, "001")
    mill.make(collected)
    said = failure(mill, cell(collected, "Nonesuch", date(2012, 1, 1)))
    assert said.category is Category.CHOICE_REFUSED
    assert "Lai_1km" in said.message


def archive_with(tmp_path: Path, name: str, data: bytes) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / name).write_bytes(data)
    return folder


NAME = "MCD15A2.A2012001.h17v03.005.2012017211237.hdf"


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_granule_is_a_failed_download(
    tmp_path: Path, granules: Path, share: float
) -> None:
    data = granule(granules, "MCD15A2.A2012001.h17v03*.hdf").read_bytes()
    archive = archive_with(tmp_path, NAME, data[: int(len(data) * share)])
    spec = collect_spec(archive / NAME, archive, "MCD15A2", "5")
    said = failure(Mill(tmp_path / "mill", archive), spec)
    assert said.category is Category.DOWNLOAD_FAILED, said
    assert "truncated" in said.message


@pytest.mark.parametrize("data", [b"<!DOCTYPE html><html>Sign in</html>", b"", b"\x0e\x03"])
def test_what_is_no_granule_is_a_failed_download(tmp_path: Path, data: bytes) -> None:
    archive = archive_with(tmp_path, NAME, data)
    spec = collect_spec(archive / NAME, archive, "MCD15A2", "5")
    said = failure(Mill(tmp_path / "mill", archive), spec)
    assert said.category is Category.DOWNLOAD_FAILED, said
    assert "the granule" in said.message


def test_a_granule_that_vanished_is_not_published(tmp_path: Path) -> None:
    archive = archive_with(tmp_path, NAME, b"x")
    spec = collect_spec(archive / NAME, archive, "MCD15A2", "5")
    (archive / NAME).unlink()
    said = failure(Mill(tmp_path / "mill", archive), spec)
    assert said.category is Category.SOURCE_NOT_PUBLISHED


def test_a_granule_unlike_its_record_is_a_failed_download(tmp_path: Path) -> None:
    archive = archive_with(tmp_path, NAME, b"xyz")
    spec = collect_spec(archive / NAME, archive, "MCD15A2", "5").model_copy(update={"size": 4})
    said = failure(Mill(tmp_path / "mill", archive), spec)
    assert said.category is Category.DOWNLOAD_FAILED


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    with disk_of(tmp_path / "disk", "2m") as disk:
        yield disk


def test_a_full_disk_is_out_of_disk_and_no_mystery(granules: Path, small_disk: Path) -> None:
    collected = leaf_area(granules, "001")
    assert 600_000 < collected.size < 2_000_000, "the test needs a granule that nearly fills it"
    mill = Mill(small_disk, granules)
    (small_disk / "ballast").write_bytes(bytes(2 * 2**20 - 300_000))
    said = failure(mill, collected)
    assert said.category is Category.OUT_OF_DISK, said
    assert not list((small_disk / "cache" / "entries").glob("*/*"))


def test_a_disk_that_fills_while_gdal_writes(
    granules: Path, small_disk: Path, tmp_path: Path
) -> None:
    mill = Mill(tmp_path / "mill", granules)
    collected = leaf_area(granules, "001")
    mill.make(collected)
    mill.scratch = small_disk / "scratch"
    room = (collected.size // 4096 + 2) * 4096  # for the granule, and too little for the cell
    (small_disk / "ballast").write_bytes(bytes(2 * 2**20 - room))
    spec = cell(collected, "Lai_1km", date(2012, 1, 1))
    said = failure(mill, spec)
    assert said.category is Category.OUT_OF_DISK, said
    assert list(small_disk.rglob("cell")), "not even the granule had room"


def test_a_swath_without_geolocation_is_collected_and_then_unreadable(mill: Mill) -> None:
    path = granule(mill.archive, "MOD14.A2017001.*.hdf")
    collected = collect_spec(path, mill.archive, "MOD14", "6")
    mill.make(collected)
    spec = ReprojectSpec(
        inputs=(Input(key=collected.key, name=path.name),),
        product="MOD14",
        collection="6",
        layer="fire mask",
        day=date(2017, 1, 1),
        grid=grid_spec(),
        resampling="nearest",
    )
    said = failure(mill, spec)
    assert said.category is Category.UNREADABLE_INPUT_FILE, said
