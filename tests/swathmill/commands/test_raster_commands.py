"""The commands about rasters, against a real portal."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.reprojection.catalogue.test_user_raster import geotiff
from tests.swathmill.conftest import Command

pytestmark = pytest.mark.slow


@pytest.fixture
def hills(tmp_path: Path) -> Path:
    return geotiff(tmp_path / "Hills.tif", np.arange(600, dtype=np.int16).reshape(20, 30))


def test_a_raster_goes_its_way_by_commands(command: Command, hills: Path) -> None:
    said = command("raster", "push", str(hills), "--units", "hills=m")
    assert "ada@example.org/hills@1" in said
    assert "30 x 20 in" in said
    assert "of no date" in said
    assert 'products: [{name: "raster:hills", layers: [hills], use: static}]' in said
    assert "raster:hills" in command("raster", "list")
    assert "hills m" in command("raster", "show", "hills")
    assert "raster:" not in command("raster", "list", owner="ben@example.org")
    shared = command("raster", "push", str(hills), "--version", "two", "--share", "link")
    assert "hills@two" in shared
    link = next(word for word in shared.split() if "open?link=" in word)
    opened = command("raster", "open", link, owner="ben@example.org").strip()
    assert opened == "raster:ada@example.org/hills"
    assert "you alone" in command("raster", "share", "hills", "--with", "private")
    command("raster", "show", "ada@example.org/hills", owner="ben@example.org", status=2)
    assert "version two" in command("raster", "rm", "hills@two", "--yes")
    (version,) = json.loads(command("raster", "show", "hills", "--json"))["versions"]
    assert version["version"] == "1"
    assert "hills with all versions" in command("raster", "rm", "hills", "--yes")
    assert "no raster" in command("raster", "show", "hills", status=2)


def test_what_is_no_raster_is_refused_with_its_name(command: Command, tmp_path: Path) -> None:
    (tmp_path / "text.tif").write_text("no raster")
    assert "text.tif" in command("raster", "push", str(tmp_path / "text.tif"), status=2)
