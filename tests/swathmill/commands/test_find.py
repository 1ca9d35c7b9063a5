"""`swathmill find` and what `doctor` says of the sources."""

import errno
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from swathmill.cli import application, main
from swathmill.commands.find import span_of
from swathmill.diagnosis import Verdict, sources_finding
from swathmill.errors import RefusedError
from swathmill.stack.folder import DataFolder, StackState
from tasks.settings import Settings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def archive(sample_archive: Path) -> Path:
    return sample_archive


def find(archive: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(application(), ["find", *arguments, "--archive", str(archive)])
    return result.exit_code, result.output


def test_granules_are_listed_and_fetched(archive: Path, tmp_path: Path) -> None:
    code, said = find(
        archive, "MCD15A2", "--days", "2012-01-01..2012-12-31", "--fetch", str(tmp_path / "got")
    )
    assert code == 0
    assert "granules of MCD15A2 5" in said
    names = {line.split()[0] for line in said.splitlines() if line.endswith("  folder")}
    assert names
    assert {path.name for path in (tmp_path / "got").iterdir()} == names


def test_granules_are_listed_as_json(archive: Path) -> None:
    code, said = find(archive, "MCD15A2", "--days", "2012-01-01..2012-12-31", "--json")
    listed = json.loads(said)
    assert code == 0
    assert {one["product"] for one in listed} == {"MCD15A2"}
    code, said = find(archive, "MCD15A2", "--days", "2011-01-01", "--json")
    assert (code, json.loads(said)) == (3, [])


def test_a_box_leaves_out_what_lies_elsewhere(archive: Path) -> None:
    everywhere = find(archive, "MYD04_L2", "--days", "2012-01-01..2012-12-31")
    nowhere = find(
        archive, "MYD04_L2", "--days", "2012-01-01..2012-12-31", "--box", "100", "-60", "110", "-50"
    )
    assert everywhere[0] == 0
    assert nowhere[0] == 3


def test_what_is_served_is_said_when_there_is_none(archive: Path) -> None:
    code, said = find(archive, "MCD15A2", "--collection", "061", "--days", "2012-04-13")
    assert code == 3
    assert "Sources serve MCD15A2 in collection 005 (2012-" in said


def test_without_a_source_the_last_archive_of_a_stack_is_listed(
    archive: Path, tmp_path: Path
) -> None:
    folder = DataFolder(path=tmp_path)
    folder.prepare()
    folder.write_state(StackState(archive=str(archive)))
    asked = ["find", "MCD15A2", "--days", "2012-04-14", "--data", str(tmp_path)]
    result = CliRunner().invoke(application(), asked)
    assert (result.exit_code, f"Sources  {archive}" in result.stderr) == (0, True)
    assert "2 granules of MCD15A2 5" in result.stdout


def test_a_full_disk_is_told_with_what_to_do(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/from", None, "/to")

    asked = ["find", "MCD15A2", "--days", "2012-04-14", "--archive", str(archive)]
    monkeypatch.setattr("swathmill.commands.find.open_sources", full)
    monkeypatch.setattr("sys.argv", ["swathmill", *asked])
    with pytest.raises(SystemExit) as left:
        main()
    said = "Error: /to: No space left on device.\n  Make room, or name another place.\n"
    assert (left.value.code, capsys.readouterr().err) == (1, said)


@pytest.mark.proof
def test_a_source_that_fails_is_told_beside_the_json(archive: Path) -> None:
    environment = {
        **os.environ,
        "SWATHMILL_SOURCES": "laads+http://127.0.0.1:9/archive,folder",
        "SWATHMILL_ARCHIVE": str(archive),
    }
    found = subprocess.run(
        [sys.executable, "-P", "-m", "swathmill.cli", "find", "MCD15A2", "--days", "2012-04-14",
         "--json"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert len(json.loads(found.stdout)) == 2
    assert "holdings not known" in found.stderr


def test_days_are_read() -> None:
    assert span_of("2018-01-01") == (date(2018, 1, 1), date(2018, 1, 1))
    assert span_of("2018-01-01..2018-02-01") == (date(2018, 1, 1), date(2018, 2, 1))
    for wrong in ("2018", "2018-01-32", "2018-02-01..2018-01-01"):
        with pytest.raises(RefusedError):
            span_of(wrong)


def test_the_doctor_tells_the_sources(tmp_path: Path) -> None:
    none = sources_finding(Settings(archive="", sources=""))
    assert (none.verdict, "SWATHMILL_SOURCES" in none.remedy) == (Verdict.NOTE, True)
    wrong = sources_finding(Settings(sources="nasa"))
    assert (wrong.verdict, "'nasa'" in wrong.found) == (Verdict.FAULT, True)
    folder = sources_finding(Settings(archive=str(tmp_path)))
    assert (folder.verdict, folder.found) == (Verdict.GOOD, "folder")
    chain = "cmr; MOD04_L2=ftp://me:secret@host/x"
    bare = sources_finding(Settings(sources=chain))
    assert (bare.verdict, "secret" in bare.found) == (Verdict.NOTE, False)
    ready = sources_finding(Settings(sources=chain, earthdata_token=SecretStr("hush")))
    assert ready.verdict is Verdict.GOOD
    assert ready.found == "cmr; MOD04_L2: ftp://host/x"
