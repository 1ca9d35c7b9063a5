"""The command that signs somebody in."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from swathmill.cli import application
from swathmill.commands import sign_in
from swathmill.stack.folder import DataFolder, StackState

URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize("runs", [True, False])
def test_a_link_to_a_portal_that_does_not_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    monkeypatch.setattr(sign_in, "is_running", lambda _: runs)
    monkeypatch.setenv("SWATHMILL_SECRET", "s" * 40)
    folder = DataFolder(path=tmp_path)
    folder.prepare()
    folder.write_state(StackState(portal_url=URL))
    asked = ["sign-in", "ada@example.org", "--data", str(tmp_path)]
    result = CliRunner().invoke(application(), asked)
    assert f"{URL}/sign-in?token=" in result.stdout
    assert ("Nobody answers there now" in result.stderr) != runs
