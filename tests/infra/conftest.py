"""The Bicep files, parsed once: the parser takes seconds."""

from pathlib import Path
from typing import Any

import pytest
from pycep import BicepParser

FOLDER = Path(__file__).parents[2] / "infra" / "bicep"


@pytest.fixture(scope="session")
def bicep() -> dict[str, dict[str, Any]]:
    """Each Bicep file's content, by its file name."""
    parser = BicepParser()
    return {path.name: {**parser.parse(file_path=path)} for path in sorted(FOLDER.glob("*.bicep"))}
