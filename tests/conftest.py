"""Fixtures every room's tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def granules() -> Path:
    """The folder of real MODIS granules, or a skip that says how to name one."""
    folder = os.environ.get("SWATHMILL_TEST_GRANULES", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SWATHMILL_TEST_GRANULES names no folder of real MODIS granules")
    return Path(folder)
