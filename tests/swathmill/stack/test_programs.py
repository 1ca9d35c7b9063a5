"""Where the stack finds Azurite, and what it says where there is none."""

import json
from pathlib import Path

import pytest

from swathmill.errors import StackError
from swathmill.stack import programs


def install(folder: Path) -> Path:
    """What `npm install` leaves of Azurite in a folder `node_modules`."""
    script = folder / "azurite" / "dist" / "src" / "azurite.js"
    script.parent.mkdir(parents=True)
    script.write_text("#!/usr/bin/env node\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Swathmill outside a checkout, nothing on PATH."""
    monkeypatch.setattr(programs, "checkout", lambda: None)
    monkeypatch.delenv("SWATHMILL_NODE_MODULES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.usefixtures("_installed")
def test_azurite_is_found_where_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = install(tmp_path / "node_modules")
    monkeypatch.setenv("SWATHMILL_NODE_MODULES", str(tmp_path / "node_modules"))
    assert programs.azurite() == script
    monkeypatch.setenv("SWATHMILL_NODE_MODULES", str(tmp_path / "elsewhere"))
    with pytest.raises(StackError, match=r"elsewhere/azurite/dist/src/azurite\.js is absent"):
        programs.azurite()


@pytest.mark.usefixtures("_installed")
def test_azurite_is_found_behind_npms_link_on_path(tmp_path: Path) -> None:
    script = install(tmp_path / "lib" / "node_modules")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "azurite").symlink_to(script)
    assert programs.azurite() == script


@pytest.mark.usefixtures("_installed")
def test_azurite_in_the_current_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "node_modules")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StackError, match="is not installed") as caught:
        programs.azurite()
    assert "npm install --global azurite@3.35" in caught.value.remedy
    assert "SWATHMILL_NODE_MODULES=FOLDER/node_modules" in caught.value.remedy


def test_the_version_of_azurite_is_the_one_that_npm_installs() -> None:
    root = programs.checkout()
    assert root is not None
    named = json.loads((root / "package.json").read_text())["devDependencies"]["azurite"]
    assert named.startswith(f"{programs.AZURITE}.")
