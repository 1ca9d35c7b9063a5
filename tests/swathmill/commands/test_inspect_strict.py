"""`swathmill inspect --strict`: what does not agree with the catalogue, a line each."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reprojection.inspect.strict import hold_strictly
from swathmill.cli import application
from tests.reprojection.leaf_area import leaf_area


def inspect(path: Path, *more: str) -> tuple[int, str]:
    said = CliRunner().invoke(application(), ["inspect", "--strict", str(path), *more])
    return said.exit_code, said.stdout


def test_a_granule_that_agrees_says_so(tmp_path: Path) -> None:
    code, said = inspect(leaf_area(tmp_path))
    assert (code, "agrees with the catalogue and with itself" in said) == (0, True), said


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"Lai_1km": {"valid_range": "from nothing to much"}},
            "Lai_1km: ",
        ),
        ({"FparLai_QC": None}, "Lai_1km: its quality layer FparLai_QC is not in the file"),
        (
            {"LaiStdDev_1km": None},
            "LaiStdDev_1km: the catalogue names it, and the file does not have it",
        ),
        ({"days": 16}, "it covers 2012-01-01 to 2012-01-16; the catalogue says until 2012-01-08"),
        ({"name": "MCD15A2.A2012009.h18v04.005.2012017000000.hdf"}, "give it its own name"),
    ],
)
def test_each_disagreement_is_a_line(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    (found,) = {one for one in hold_strictly(leaf_area(tmp_path, **changes)) if line in one}
    problem, _, remedy = found.partition("; ")
    assert problem
    assert remedy
    assert "\n" not in found


def test_the_command_ends_with_1_if_anything_is_wrong(tmp_path: Path) -> None:
    path = leaf_area(tmp_path, LaiStdDev_1km=None, days=16)
    code, said = inspect(path)
    assert (code, len(said.splitlines())) == (1, 2)
    code, said = inspect(path, "--json")
    assert (code, json.loads(said)["wrong"]) == (1, [*hold_strictly(path)])


def test_several_files_are_held_one_after_the_other(tmp_path: Path) -> None:
    good, odd, broken = (tmp_path / name for name in ("good", "odd", "broken"))
    for folder in (good, odd, broken):
        folder.mkdir()
    right, wrong, half = leaf_area(good), leaf_area(odd, days=16), leaf_area(broken)
    half.write_bytes(half.read_bytes()[:3000])
    said = CliRunner().invoke(
        application(), ["inspect", "--strict", str(half), str(wrong), str(right)]
    )
    lines = said.stdout.splitlines()
    assert said.exit_code == 1
    assert [line.partition(":")[0] for line in lines[:2]] == [str(half), str(wrong)]
    assert "fetch it again" in lines[0]
    assert lines[2:] == [f"{right.name} agrees with the catalogue and with itself"]
    code, alone = inspect(half)
    assert (code, "fetch it again" in alone) == (1, True)
    assert inspect(right, str(right))[0] == 0
