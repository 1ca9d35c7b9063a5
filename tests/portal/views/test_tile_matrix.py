"""Tiles of a map cover the world once, and lie where a transformation of their corners has them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.app import create_app
from portal.serving.problems import NotFoundError
from portal.views import tile_matrix
from portal.views.state import MATRIX_SETS, Views
from portal.views.tile_matrix import DEEPEST, SETS, WEB_MERCATOR, TileMatrixSet, read_set
from tasks.settings import WrongSettingError
from tests.portal.scripted import live_runtime, settings

MATRICES = st.sampled_from(sorted(SETS.values(), key=lambda one: one.name))
DOCUMENT: dict[str, Any] = {
    "id": "Coarse", "crs": "urn:ogc:def:crs:EPSG::2193", "orderedAxes": ["Y", "X"],
    "tileMatrices": [
        {"id": str(zoom), "cellSize": cell, "pointOfOrigin": [6_300_000.0, 1_000_000.0],
         "tileWidth": 512, "tileHeight": 512, "matrixWidth": across, "matrixHeight": down}
        for zoom, cell, across, down in ((1, 3000.0, 1, 2), (2, 1000.0, 2, 4), (3, 400.0, 5, 9))
    ],
}  # fmt: skip


@st.composite
def tiles(draw: st.DrawFn) -> tuple[TileMatrixSet, int, int, int]:
    one = draw(MATRICES)
    zoom = draw(st.sampled_from(one.zooms))
    matrix = one.at(zoom)
    col = draw(st.integers(0, matrix.columns - 1))
    return one, zoom, col, draw(st.integers(0, matrix.rows - 1))


@given(tiles(), st.floats(0, 1), st.floats(0, 1))
def test_a_tile_lies_in_its_box(
    tile: tuple[TileMatrixSet, int, int, int], across: float, down: float
) -> None:
    """Each point of it; the box of a Mercator or lattice tile is that of its corners."""
    matrix, *at = tile
    west, south, east, north = matrix.grid(*at).bounds
    to_degrees = pyproj.Transformer.from_crs(matrix.crs, "EPSG:4326", always_xy=True)
    lon, lat = to_degrees.transform(west + across * (east - west), south + down * (north - south))
    try:
        box = matrix.box(*at)
    except NotFoundError:
        assert not np.isfinite(lon)
        return
    if np.isfinite(lon) and np.isfinite(lat):
        assert box.west - 1e-9 <= lon <= box.east + 1e-9
        assert box.south - 1e-9 <= lat <= box.north + 1e-9
    if matrix.crs in ("EPSG:3857", "EPSG:4326"):
        for corner, told in (
            ((west, south), (box.west, box.south)),
            ((east, north), (box.east, box.north)),
        ):
            assert to_degrees.transform(*corner) == pytest.approx(told, abs=1e-9)


@given(tiles())
def test_four_tiles_of_the_next_zoom_cover_a_tile(
    tile: tuple[TileMatrixSet, int, int, int],
) -> None:
    matrix, zoom, col, row = tile
    if zoom == matrix.zooms[-1]:
        return
    whole = matrix.grid(zoom, col, row).bounds
    first = matrix.grid(zoom + 1, 2 * col, 2 * row).bounds
    last = matrix.grid(zoom + 1, 2 * col + 1, 2 * row + 1).bounds
    assert (first.west, first.north) == pytest.approx((whole.west, whole.north), abs=1e-6)
    assert (last.east, last.south) == pytest.approx((whole.east, whole.south), abs=1e-6)
    assert (first.east, first.south) == pytest.approx((last.west, last.north), abs=1e-6)


def test_a_document_gives_a_set_with_any_scales() -> None:
    one = read_set(json.dumps(DOCUMENT))
    assert (one.name, one.crs, one.zooms) == ("Coarse", "EPSG:2193", range(1, 4))
    assert one.origin(2) == (6_300_000.0, 1_000_000.0)
    grid = one.grid(3, 4, 8)
    assert grid.shape == (512, 512)
    assert grid.bounds.west == 1_000_000 + 4 * 512 * 400
    assert grid.bounds.north == 6_300_000 - 8 * 512 * 400
    assert one.box(3, 4, 8).north < -40


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"crs": "http://www.opengis.net/def/crs/IAU/2015/30100"}, "neither of EPSG nor CRS84"),
        ({"id": "x" * (tile_matrix._LONGEST_NAME + 1)}, "id: "),
        ({"tileMatrices": []}, "tileMatrices: "),
        ({"matrix": {"tileWidth": tile_matrix.MOST_SIDE + 1}}, "tileWidth: "),
        ({"matrix": {"tileWidth": 256}}, "not square"),
        ({"matrix": {"id": "EPSG:2193:1"}}, "id: "),
        ({"tileMatrices": 2 * DOCUMENT["tileMatrices"]}, "no consecutive numbers"),
        ({"matrix": {"cornerOfOrigin": "bottomLeft"}}, "cornerOfOrigin: "),
        ({"matrix": {"variableMatrixWidths": []}}, "variableMatrixWidths: "),
    ],
)
def test_a_document_that_is_not_understood_is_refused(change: dict[str, Any], problem: str) -> None:
    document = {**DOCUMENT, **change}
    if matrix := document.pop("matrix", None):
        first = DOCUMENT["tileMatrices"][0]
        document["tileMatrices"] = [{**first, **matrix}]
    with pytest.raises(ValueError, match=problem):
        read_set(json.dumps(document))
    whole = {**DOCUMENT, "id": "x" * tile_matrix._LONGEST_NAME}
    assert read_set(json.dumps(whole)).zooms == range(1, 4)


def test_documents_of_the_data_folder_are_sets_too(tmp_path: Path) -> None:
    folder = tmp_path / MATRIX_SETS
    folder.mkdir()
    (folder / "coarse.json").write_text(json.dumps(DOCUMENT), "utf-8")
    made = settings(data_dir=str(tmp_path))
    views: Views = create_app(made, live_runtime()).state.portal.state(Views)
    assert views.matrix_set("Coarse") == read_set(json.dumps(DOCUMENT))
    assert [*views.matrix_sets] == [*SETS, "Coarse"]
    (folder / "coarse.json").write_text("{}", "utf-8")
    with pytest.raises(WrongSettingError, match=r"coarse\.json is no tile matrix set: id: "):
        create_app(made, live_runtime())


@pytest.mark.parametrize("at", [(-1, 0, 0), (DEEPEST + 1, 0, 0), (2, 4, 0), (2, 0, 4), (0, -1, 0)])
def test_a_tile_that_there_is_not_is_told(at: tuple[int, int, int]) -> None:
    with pytest.raises(NotFoundError, match="There is no"):
        WEB_MERCATOR.grid(*at)
