"""Links between our pages lead somewhere, and commands and targets that pages name exist."""

import re
from pathlib import Path

import pytest

from bench.__main__ import MEASUREMENTS
from tests.proofs import PROOFS
from tests.swathmill.command_names import command_names

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]


def slugs(page: Path) -> set[str]:
    """The names by which links reach the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        other = page.parent / target if target else page
        assert heading in slugs(other), f"{target}#{heading}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_that_pages_name_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"`make ([a-z-]+)", page.read_text()):
        assert target in targets, target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_proofs_and_measurements_that_pages_name_exist(page: Path) -> None:
    known = {"bench": {*MEASUREMENTS, "NAME"}, "proofs": {*PROOFS, "list", "fuzz", "NAME"}}
    for target, name in re.findall(r"make (bench|proofs) ONLY=([\w-]+)", page.read_text()):
        assert name in known[target], name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_pages_name_exist(page: Path) -> None:
    commands = command_names()
    for command in re.findall(r"`swathmill ([a-z-]+)", page.read_text()):
        assert command in commands, command


def test_tests_that_pages_name_exist() -> None:
    named = {
        (page.name, *match)
        for page in PAGES
        for match in re.findall(r"`(tests/[a-z_0-9/]+\.py)::(test_[a-z_0-9]+)", page.read_text())
    }
    for page, file, test in sorted(named):
        assert f"def {test}(" in (ROOT / file).read_text(), f"{page}: {file}::{test}"
