"""Links between our pages lead somewhere, and commands and targets that pages name exist."""

import re
from pathlib import Path

import pytest

from swathmill.cli import application

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_make_targets_that_pages_name_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"`make ([a-z-]+)", page.read_text()):
        assert target in targets, target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_that_pages_name_exist(page: Path) -> None:
    commands = {
        one.name or getattr(one.callback, "__name__", "")
        for one in application().registered_commands
    }
    for command in re.findall(r"`swathmill ([a-z-]+)", page.read_text()):
        assert command in commands, command
