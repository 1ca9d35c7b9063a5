"""The commands about packages, against a real portal."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from portal.core import tokens
from swathmill import cli
from tests.portal.scripted import SECRET, LivePortal, live_portal, live_runtime, settings
from tests.tasks.package_files import folder_of

Command = Callable[..., str]


@pytest.fixture
def portal() -> Iterator[LivePortal]:
    with live_portal(live_runtime(), settings()) as running:
        yield running


@pytest.fixture
def command(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    def run(*words: str, owner: str = "ada@example.org", status: int = 0) -> str:
        monkeypatch.setenv("SWATHMILL_PORTAL_URL", portal.url)
        monkeypatch.setenv("SWATHMILL_TOKEN", tokens.issue(SECRET, owner))
        monkeypatch.setattr("sys.argv", ["swathmill", "package", *words])
        ended = 0
        try:
            cli.main()
        except SystemExit as end:
            ended = int(end.code or 0)
        shown = capsys.readouterr()
        said = shown.out + shown.err
        assert ended == status, said
        return said

    return run


def test_a_package_goes_its_way_by_commands(command: Command, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "own")
    said = command("push", str(folder))
    assert "ada@example.org/own@1" in said
    assert "reduction: {package: own}" in said
    assert "own" in command("list")
    folder_of(tmp_path / "own", version="2", program="echo two")
    assert "http://127.0.0.1/packages/open?link=" in command("push", str(folder), "--share", "link")
    shown = command("show", "own")
    link = next(word for word in shown.split() if "open?link=" in word)
    assert "own@1" not in command("list", owner="ben@example.org")
    assert command("open", link, owner="ben@example.org").strip() == "ada@example.org/own"
    assert "is now version 1" in command("deprecate", "own@2", "--why", "wrong")
    assert "deprecated: wrong" in command("show", "own")
    command("download", "own@1", str(tmp_path / "one.tar"))
    assert (tmp_path / "one.tar").stat().st_size > 1000
    assert "you alone" in command("share", "own", "--with", "private")
    assert "no package" in command("show", "ada@example.org/own", owner="ben@example.org", status=2)
    assert "version 2" in command("rm", "own@2", "--yes")
    assert "own with all versions" in command("rm", "own", "--yes")
    assert "no package" in command("show", "own", status=2)


def test_what_cannot_be_pushed_is_said(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "package.yaml" in command("push", str(tmp_path / "empty"), status=2)
    (tmp_path / "x.zip").write_bytes(b"no archive")
    assert "neither a zip nor a tar" in command("push", str(tmp_path / "x.zip"), status=2)
    folder_of(tmp_path / "own")
    command("push", str(tmp_path / "own"))
    assert "names no version" in command("deprecate", "own", "--why", "x", status=2)
