"""The Bicep files, parsed once for all processes: the parser takes many seconds."""

import json
from pathlib import Path
from typing import Any

import pytest
from pycep import BicepParser

from tests.once import made_once

FOLDER = Path(__file__).parents[2] / "infra" / "bicep"


def parse(into: Path) -> None:
    parser = BicepParser()
    found = {path.name: parser.parse(file_path=path) for path in sorted(FOLDER.glob("*.bicep"))}
    into.write_text(json.dumps(found))


@pytest.fixture(scope="session")
def bicep(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Each Bicep file's content, by its file name."""
    found: dict[str, dict[str, Any]] = json.loads(
        made_once(tmp_path_factory, "bicep.json", parse).read_text()
    )
    return found
