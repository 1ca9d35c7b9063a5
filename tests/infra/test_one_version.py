"""The version is written in pyproject.toml; copies in files of other formats are equal to it."""

import json
import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_installed_version_is_that_of_pyproject() -> None:
    assert version("swathmill") == VERSION


def test_copies_of_the_version_are_equal() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == VERSION
    assert json.loads((ROOT / "package.json").read_text())["version"] == VERSION
    assert f"SWATHMILL_TAG:-{VERSION}}}" in (ROOT / "docker-compose.yml").read_text()
