"""The commands about packages, against a real portal."""

import json
from pathlib import Path
from typing import Any

from tests.swathmill.conftest import Command
from tests.tasks.package_files import folder_of


def test_a_package_goes_its_way_by_commands(command: Command, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "own")
    said = command("package", "push", str(folder))
    assert "ada@example.org/own@1" in said
    assert "reduction: {package: own}" in said
    assert "own" in command("package", "list")
    folder_of(tmp_path / "own", version="2", program="echo two")
    assert "http://127.0.0.1/packages/open?link=" in command(
        "package", "push", str(folder), "--share", "link"
    )
    shown = command("package", "show", "own")
    link = next(word for word in shown.split() if "open?link=" in word)
    assert "own@1" not in command("package", "list", owner="ben@example.org")
    assert (
        command("package", "open", link, owner="ben@example.org").strip() == "ada@example.org/own"
    )
    assert "is now version 1" in command("package", "deprecate", "own@2", "--why", "wrong")
    assert "deprecated: wrong" in command("package", "show", "own")
    command("package", "download", "own@1", str(tmp_path / "one.tar"))
    assert (tmp_path / "one.tar").stat().st_size > 1000
    assert "you alone" in command("package", "share", "own", "--with", "private")
    assert "no package" in command(
        "package", "show", "ada@example.org/own", owner="ben@example.org", status=2
    )
    assert "version 2" in command("package", "rm", "own@2", "--yes")
    command("package", "deprecate", "own@1", "--why", "old")
    said = command("package", "show", "own", status=2)
    assert "All versions of own are deprecated. Name one: own@VERSION." in " ".join(said.split())
    command("package", "deprecate", "own@1", "--why", "")
    assert "own with all versions" in command("package", "rm", "own", "--yes")
    assert "no package" in command("package", "show", "own", status=2)


def test_commands_about_packages_answer_in_json(command: Command, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "own")
    command("package", "push", str(folder))

    def said(*words: str, owner: str = "ada@example.org") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(command("package", *words, "--json", owner=owner))
        return found

    shared = said("share", "own", "--with", "link")
    assert said("open", shared["link"], owner="ben@example.org")["owner"] == "ada@example.org"
    assert said("deprecate", "own@1", "--why", "wrong")["versions"][0]["deprecated"] == "wrong"
    to = tmp_path / "one.tar"
    assert said("download", "own@1", str(to))["version"]["size"] == to.stat().st_size
    assert said("rm", "own@1", "--yes")["version"] == "1"


def test_what_cannot_be_pushed_is_said(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "package.yaml" in command("package", "push", str(tmp_path / "empty"), status=2)
    (tmp_path / "x.zip").write_bytes(b"no archive")
    assert "neither a zip nor a tar" in command(
        "package", "push", str(tmp_path / "x.zip"), status=2
    )
    folder_of(tmp_path / "own")
    command("package", "push", str(tmp_path / "own"))
    assert "names no version" in command("package", "deprecate", "own", "--why", "x", status=2)
