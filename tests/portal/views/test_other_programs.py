"""QGIS and GDAL open the maps of `swathmill view` by their address, and show its tiles' pixels."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from portal.views.tile_matrix import WEB_MERCATOR, WORLD_CRS84, TileMatrixSet

pytestmark = [pytest.mark.proof, pytest.mark.slow]

LAYER = "MCD15A2.5/Lai_1km/2012-03-05"
COLLECTION = "maps/collections/MCD15A2.5:Lai_1km?datetime=2012-03-05&rescale=0,7"
PYTHON = "/usr/bin/python3"  # QGIS brings its modules for the system's own
RENDER = """
import sys
from qgis.core import (
    QgsApplication, QgsCoordinateReferenceSystem, QgsMapRendererSequentialJob, QgsMapSettings,
    QgsRasterLayer, QgsRectangle,
)
from qgis.PyQt.QtCore import QSize
from qgis.PyQt.QtGui import QColor

source, to, *box = sys.argv[1:]
application = QgsApplication([], False)
application.initQgis()
layer = QgsRasterLayer(source, "layer", "wms")
assert layer.isValid(), layer.error().message()
settings = QgsMapSettings()
settings.setLayers([layer])
settings.setDestinationCrs(QgsCoordinateReferenceSystem("EPSG:3857"))
settings.setBackgroundColor(QColor(255, 255, 255))
settings.setExtent(QgsRectangle(*map(float, box)))
settings.setOutputSize(QSize(256, 256))
job = QgsMapRendererSequentialJob(settings)
job.start()
job.waitForFinished()
assert not job.errors(), [one.message for one in job.errors()]
assert job.renderedImage().save(to)
"""


@pytest.fixture(scope="module")
def base(sample_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `swathmill view` over the tiles of the sample archive."""
    folder = tmp_path_factory.mktemp("granules")
    for path in sample_archive.rglob("MCD15A2*"):
        shutil.copy(path, folder)
    with _viewing(folder) as address:
        yield address


@contextmanager
def _viewing(folder: Path) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "swathmill.cli", "view", str(folder), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            text = ""
            while not text or text.count("{") > text.count("}"):
                line = process.stdout.readline()
                assert line, "swathmill view ended"
                text += line
            yield json.loads(text)["address"]
        finally:
            process.terminate()


def pixels(image: bytes | Path) -> NDArray[np.uint8]:
    """An image over white."""
    with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as picture:
        over = Image.new("RGBA", picture.size, "white")
        over.alpha_composite(picture.convert("RGBA"))
        return np.asarray(over)[..., :3]


def tile(base: str, query: str, at: tuple[int, int, int]) -> NDArray[np.uint8]:
    zoom, col, row = at
    found = httpx.get(f"{base}/tiles/{LAYER}/{zoom}/{col}/{row}.png?{query}", timeout=60)
    assert found.status_code == 200, found.text
    drawn = pixels(found.content)
    assert 0.1 < (drawn != 255).any(axis=2).mean() < 1.0
    return drawn


def sides(matrix: TileMatrixSet, at: tuple[int, int, int]) -> tuple[float, float, float, float]:
    box = matrix.grid(*at).bounds
    return box.west, box.south, box.east, box.north


def run(command: list[str], folder: Path) -> None:
    known = {"PATH": os.environ["PATH"], "HOME": str(folder), "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        command, env={**known, "GDAL_DEFAULT_WMS_CACHE_PATH": str(folder / "cache")},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("at", [(5, 15, 9), (7, 66, 41)])
def test_qgis_shows_the_tiles(base: str, tmp_path: Path, at: tuple[int, int, int]) -> None:
    """By XYZ and WMTS: a map of a tile's extent and size has the tile's pixels."""
    look = subprocess.run([PYTHON, "-c", "import qgis.core"], capture_output=True, check=False)
    if look.returncode != 0:
        pytest.skip("QGIS is not installed")
    box = list(map(repr, sides(WEB_MERCATOR, at)))
    capabilities = f"{base}/tiles/{LAYER}/WMTSCapabilities.xml?rescale=0,7"
    for number, source in enumerate(
        (
            f"type=xyz&url={base}/tiles/{LAYER}/{{z}}/{{x}}/{{y}}.png?rescale%3D0,7&zmax=9&zmin=0",
            "crs=EPSG:3857&format=image/png&layers=Lai_1km&styles=default"
            f"&tileMatrixSet=WebMercatorQuad&url={capabilities.replace('=', '%3D')}",
        )
    ):
        made = tmp_path / f"{number}.png"
        run([PYTHON, "-c", RENDER, source, str(made), *box], tmp_path)
        assert np.array_equal(pixels(made), tile(base, "rescale=0,7", at)), source


@pytest.mark.skipif(shutil.which("gdal_translate") is None, reason="gdal-bin is not installed")
@pytest.mark.parametrize(
    ("matrix", "source", "options"),
    [
        (
            WEB_MERCATOR,
            f"WMTS:{{0}}/tiles/{LAYER}/WMTSCapabilities.xml?rescale=0%2C7,tilematrixset=WebMercatorQuad",
            [],
        ),
        (WEB_MERCATOR, f"WMTS:{{0}}/tiles/{LAYER}/WMTSCapabilities.xml?rescale=0%2C7", []),
        (WORLD_CRS84, f"OGCAPI:{{0}}/{COLLECTION}", ["-oo", "API=TILES"]),
        (WORLD_CRS84, f"OGCAPI:{{0}}/{COLLECTION}", ["-oo", "API=MAP"]),
    ],
    ids=["WMTS", "WMTS of no set", "tiles", "map"],
)
def test_gdal_shows_the_tiles(
    base: str, tmp_path: Path, matrix: TileMatrixSet, source: str, options: list[str]
) -> None:
    at = (5, 15, 9) if matrix is WEB_MERCATOR else (5, 32, 6)
    west, south, east, north = map(repr, sides(matrix, at))
    made = tmp_path / "made.png"
    run(
        ["gdal_translate", "-q", *options, "-projwin", west, north, east, south,
         "-outsize", "256", "256", source.format(base), str(made)],
        tmp_path,
    )  # fmt: skip
    expected = tile(base, f"rescale=0,7&tms={matrix.name}", at)
    found = pixels(made)
    wrong = (found != expected).any(axis=2).mean()
    # A map it asks for in pixels of its own, which lie beside the tile's.
    assert wrong <= (0.1 if "API=MAP" in options else 0.0)
