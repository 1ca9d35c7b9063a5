"""`swathmill archive check` names what is wrong with the files of a folder."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from archives.formats.checksums import Cksum
from reprojection.sample.hdfeos_write import write_granule
from swathmill.cli import application
from tests.archives.servers import with_damaged_values, without_structure
from tests.archives.test_folder_archive import SIDECAR
from tests.reprojection.reading_samples import small_tile

TILES = [small_tile(side=240, date=f"2012{day:03d}") for day in (1, 9, 17, 25, 33, 41, 49)]
GOOD, FLIPPED, BROKEN, CUT, OTHER, PAGE, UNLIKE = (tile.local_name for tile in TILES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    below = tmp_path / "archive" / "2012"
    below.mkdir(parents=True)
    for tile in TILES:
        write_granule(below / tile.local_name, tile)
    return below.parent


def check(folder: Path, *more: str) -> tuple[int, str]:
    said = CliRunner().invoke(application(), ["archive", "check", str(folder), *more])
    return said.exit_code, said.stdout


def test_a_folder_of_good_granules_passes(folder: Path) -> None:
    code, said = check(folder)
    assert (code, said) == (0, "7 granules read: all whole, and what their names say\n")


def test_each_damage_is_named(folder: Path) -> None:
    below = folder / "2012"
    data = (below / GOOD).read_bytes()
    (below / FLIPPED).write_bytes(with_damaged_values(data))
    (below / BROKEN).write_bytes(without_structure(data))
    (below / CUT).write_bytes(data[:-4000])
    shutil.copy(below / GOOD, below / OTHER)
    (below / PAGE).write_text("HTTP Basic: Access denied.\n")
    running = Cksum()
    running.update(data)
    (below / f"{UNLIKE}.xml").write_text(SIDECAR.format(size=1, checksum=running.hexdigest()))
    code, said = check(folder, "--json")
    found = json.loads(said)
    assert (code, found["granules"]) == (1, 7)
    kinds = {Path(one["file"]).name: one["kind"] for one in found["flaws"]}
    assert kinds == {
        FLIPPED: "damaged",
        BROKEN: "damaged",
        CUT: "truncated",
        OTHER: "another granule",
        PAGE: "no granule",
        UNLIKE: "damaged",
    }
    told = {Path(one["file"]).name: one["found"] for one in found["flaws"]}
    assert GOOD in told[OTHER]
    assert "27 bytes of text: HTTP Basic: Access denied." in told[PAGE]
    assert "its sidecar says otherwise" in told[UNLIKE]
    code, said = check(folder)
    assert code == 1
    assert "7 granules read: 3 damaged, " in said
    assert f"2012/{CUT}  truncated: " in said


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    said = CliRunner().invoke(application(), ["archive", "check", str(tmp_path / "none")])
    assert "is not a folder" in str(said.exception)
