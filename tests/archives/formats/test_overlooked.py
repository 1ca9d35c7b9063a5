"""Files that are near to a granule, said to be what they are."""

from pathlib import Path

import fsspec
import pytest
from typer.testing import CliRunner

from archives.fetch.files import RemoteFiles
from archives.formats.overlooked import overlooked
from archives.kinds.folder import FolderArchive
from swathmill.cli import application
from swathmill.errors import RefusedError
from tests.acceptance.in_process import Work
from tests.acceptance.test_no_granule import DOCUMENT

NAME = "MCD15A2.A2012001.h17v03.005.2012017211237.hdf"
SMALL = NAME.lower()


def test_packed_files_and_small_letters_are_told() -> None:
    names = [f"{NAME}.gz", f"{NAME}.Z", SMALL, "MCD15A2.a2012009.h17v03.005.HDF", NAME]
    assert overlooked(names, "MCD15A2") == [
        f"2 files, such as {NAME}.Z, are packed, and granules are read as HDF or netCDF: unpack "
        "what is packed.",
        "2 files, such as MCD15A2.a2012009.h17v03.005.HDF, are not named as data centres name "
        "granules: that name is MCD15A2.A2012009.h17v03.005.hdf.",
    ]
    (one,) = overlooked([SMALL, "notes.hdf.gz", "MOD13A2.txt"], "MCD15A2")
    assert one.startswith(f"The file {SMALL} is not named")
    assert one.endswith(f"that name is {NAME}.")
    assert overlooked([NAME, f"{NAME}.xml", f"{NAME}.gz.txt"], "MCD15A2") == []
    assert overlooked([SMALL], "MOD13A2") == []


def test_a_folder_and_a_remote_one_tell_them(tmp_path: Path) -> None:
    (tmp_path / "archive" / "2012").mkdir(parents=True)
    (tmp_path / "archive" / "2012" / f"{NAME}.gz").write_bytes(b"\x1f\x8b")
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/packed/2012/{NAME}.gz", b"\x1f\x8b")
    for place in (tmp_path / "archive", RemoteFiles("memory://packed")):
        said = FolderArchive(place, tmp_path / "index.sqlite").overlooked("MCD15A2")
        assert [NAME in one for one in said] == [True]
    memory.rm("/packed", recursive=True)


def test_find_and_a_request_say_it(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / f"{NAME}.gz").write_bytes(b"\x1f\x8b")
    asked = ["find", "MCD15A2", "--days", "2012-01-01", "--archive", str(archive)]
    found = CliRunner().invoke(application(), asked)
    assert found.exit_code == 3
    assert f"The file {NAME}.gz is packed" in found.output
    work = Work(folder=tmp_path / "data", archive=archive)
    assert f"The file {NAME}.gz is packed" in work.row(work.run(DOCUMENT)).message


def test_find_names_near_real_time_beside_a_product(tmp_path: Path) -> None:
    for product in ("VNP09GA", "VNP09GA_NRT"):
        name = f"{product}.A2024001.h17v03.002.2024002010203.h5"
        (tmp_path / name).write_bytes(b"\x89HDF\r\n\x1a\n")

    def said(product: str) -> str:
        asked = ["find", product, "--days", "2024-01-01", "--archive", str(tmp_path)]
        return CliRunner().invoke(application(), asked).output

    assert "also have VNP09GA_NRT (near real time)" in said("VNP09GA")
    assert "also have VNP09GA (the standard product)" in said("VNP09GA_NRT")
    assert "also have" not in said("VNP13A2")


def test_quotes_of_a_word_processor_are_no_collection(tmp_path: Path) -> None:
    asked = ["find", "MCD15A2", "--days", "2012-01-01", "--collection", "\u201c5\u201d"]
    found = CliRunner().invoke(application(), [*asked, "--archive", str(tmp_path)])
    assert isinstance(found.exception, RefusedError)
    assert "word processor" in found.exception.remedy


@pytest.mark.parametrize("collection", ["6.1", "061", "6", "5.0"])
def test_collections_in_each_spelling_are_taken(collection: str, tmp_path: Path) -> None:
    asked = ["find", "MCD15A2", "--days", "2012-01-01", "--collection", collection]
    found = CliRunner().invoke(application(), [*asked, "--archive", str(tmp_path)])
    assert found.exit_code == 3
