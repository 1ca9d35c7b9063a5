"""Tiles of results hold the pixels of their files, in the colours of the map of results."""

import io
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import httpx
import numpy as np
import pyproj
import pytest
import rasterio
from numpy.typing import NDArray
from PIL import Image
from rasterio.io import MemoryFile

from portal.serving import tokens
from portal.views.tile_matrix import WEB_MERCATOR, WORLD_CRS84
from reprojection.grid.grids import Grid
from reprojection.read.description import Band, Provenance
from reprojection.read.raster import Pixels, Raster
from reprojection.write.write import write_cog
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tests.portal.deliveries import LAI, LAYER
from tests.portal.scripted import LivePortal, put_result, set_row
from tests.portal.submissions import submitted

DAY = "2012-01-01"


def raster(
    folder: Path,
    plane: Pixels,
    corner: tuple[float, float] = (-8.0, 58.5),
    pixel: float = 0.01,
    **said: Any,
) -> bytes:
    """A COG in degrees, its values a tenth of what is stored, 0 is none."""
    height, width = plane.shape
    path = folder / "raster.tif"
    made = Raster(
        data=plane[np.newaxis],
        grid=Grid(
            crs="EPSG:4326",
            transform=(pixel, 0.0, corner[0], 0.0, -pixel, corner[1]),
            width=width,
            height=height,
        ),
        nodata=0,
        bands=(Band(name="v"),),
        provenance=Provenance(product="P", collection="1", layer="L", granules=()),
        **{"kind": "continuous", "scale": 0.1, "units": "K", **said},
    )
    write_cog(made, path)
    return path.read_bytes()


def delivered(runtime: Runtime, *rasters: bytes) -> str:
    """A running request with finished rasters of one layer on following days."""
    name = submitted(runtime)
    for number, data in enumerate(rasters):
        put_result(runtime, name, LAI, f"MCD15A2.005.Lai_1km.2012-01-0{number + 1}.tif", data)
    set_row(runtime, name, state=RequestState.RUNNING, outputs=9, delivered=len(rasters))
    return name


def address(name: str, day: str = DAY) -> str:
    return f"/api/requests/{name}/tiles/{LAYER}/{day}"


def numbers(client: httpx.Client, name: str, at: str, **query: str) -> NDArray[np.float32]:
    answer = client.get(f"{address(name)}/{at}.npy", params=query)
    assert answer.status_code == 200, answer.text
    values: NDArray[np.float32] = np.load(io.BytesIO(answer.content))
    return values


def nearest(data: bytes, grid: Grid, overview: int | None = None) -> tuple[Any, Any]:
    """The values of the pixels in which those of a grid have their centres, by pyproj and floor.

    The second array is true where a centre lies so near an edge that rounding decides.
    """
    a, _, c, _, e, f = grid.transform
    x, y = np.meshgrid(
        c + a * (np.arange(grid.width) + 0.5), f + e * (np.arange(grid.height) + 0.5)
    )
    to_degrees = pyproj.Transformer.from_crs(grid.crs, "EPSG:4326", always_xy=True)
    lon, lat = to_degrees.transform(x, y)
    level = {} if overview is None else {"overview_level": overview}
    halving = 1 if overview is None else 2 << overview
    with MemoryFile(data) as file, file.open() as whole, file.open(**level) as dataset:
        stored = dataset.read(1)
        col = (lon - whole.transform.c) / whole.transform.a / halving
        row = (lat - whole.transform.f) / whole.transform.e / halving
    near_edge = (np.abs(col - np.round(col)) < 0.02) | (np.abs(row - np.round(row)) < 0.02)
    inside = (col >= 0) & (row >= 0) & (col < stored.shape[1]) & (row < stored.shape[0])
    taken = np.zeros(grid.shape, stored.dtype)
    taken[inside] = stored[row[inside].astype(int), col[inside].astype(int)]
    return np.where(taken == 0, np.nan, np.float32(0.1 * taken.astype(np.float64))), near_edge


def hills(height: int, width: int) -> Pixels:
    rows, cols = np.mgrid[0:height, 0:width]
    found: Pixels = (20000 + 9000 * np.sin(cols / 37) * np.cos(rows / 23) + 7 * cols).astype(
        np.uint16
    )
    found[100:180, 200:260] = 0
    return found


def test_a_tile_holds_the_nearest_pixels_of_the_fitting_overview(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    data = raster(tmp_path, hills(1201, 1403))
    name = delivered(runtime, data)
    with portal.client() as client:
        for at, matrix, overview in (
            ("10/500/327", WEB_MERCATOR, None),
            ("4/15/2", WORLD_CRS84, 1),
            ("5/15/9", WEB_MERCATOR, 0),
            ("6/30/19", WEB_MERCATOR, None),
        ):
            found = numbers(client, name, at, tms=matrix.name)
            zoom, col, row = map(int, at.split("/"))
            expected, undecided = nearest(data, matrix.grid(zoom, col, row), overview)
            assert np.isfinite(expected).mean() > 0.1, at
            assert undecided.mean() < 0.1, at
            np.testing.assert_array_equal(found[~undecided], expected[~undecided], at)


def test_a_raster_that_passes_180_degrees_is_seen_on_both_sides(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    plane = np.full((200, 200), 11, np.uint16)
    plane[:, 100:] = 22  # beyond 180 degrees
    name = delivered(runtime, raster(tmp_path, plane, corner=(175.0, 5.0), pixel=0.05))
    with portal.client() as client:
        east, west = (numbers(client, name, at) for at in ("3/7/3", "3/0/3"))
    assert np.nanmax(east) == np.nanmin(east) == np.float32(1.1)
    assert np.nanmax(west) == np.nanmin(west) == np.float32(2.2)


def test_a_tile_has_the_colours_of_the_map_on_all_dates(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    low, high = np.full((64, 64), 10, np.uint16), np.full((64, 64), 60, np.uint16)
    name = delivered(runtime, raster(tmp_path, low), raster(tmp_path, high))
    at = "9/245/153.png"
    with portal.client() as client:
        found = [client.get(f"{address(name, f'2012-01-0{day}')}/{at}") for day in (1, 2)]
        scale = client.get(f"{address(name)}/legend.json").json()
        grey = client.get(f"{address(name)}/{at}", params={"rescale": "0,2", "colormap": "grey"})
        again = client.get(
            f"{address(name)}/{at}", headers={"If-None-Match": found[0].headers["etag"]}
        )
    assert (scale["low"], scale["high"], scale["units"]) == (1.0, 6.0, "K")
    assert colours(found[0]) == {(46, 20, 84)}
    assert colours(found[1]) == {(250, 232, 70)}
    assert colours(grey) == {(128, 128, 128)}
    assert again.status_code == 304


def test_classes_have_their_colours(portal: LivePortal, runtime: Runtime, tmp_path: Path) -> None:
    plane = np.full((64, 64), 3, np.uint16)
    data = raster(
        tmp_path, plane, kind="class", codes={3: "forest"}, colours={3: (1, 2, 3, 255)}, scale=1.0
    )
    name = delivered(runtime, data)
    with portal.client() as client:
        assert colours(client.get(f"{address(name)}/9/245/153.png")) == {(1, 2, 3)}
        told = client.get(f"{address(name)}/legend.json").json()
    assert told["classes"] == [{"value": 3, "meaning": "forest", "colour": "#010203"}]


def colours(answer: httpx.Response) -> set[tuple[int, ...]]:
    """All colours of pixels with a value."""
    assert answer.status_code == 200, answer.text
    with Image.open(io.BytesIO(answer.content)) as picture:
        pixels = np.asarray(picture).reshape(-1, 4)
    return {tuple(one[:3].tolist()) for one in np.unique(pixels[pixels[:, 3] > 0], axis=0)}


def test_maps_and_programs_find_the_tiles(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    """GDAL opens the WMTS as it is, where it is on this machine."""
    data = raster(tmp_path, hills(300, 300))
    name = delivered(runtime, data, data)
    with portal.client() as client:
        told = client.get(f"{address(name)}/tilejson.json", params={"rescale": "0,9"}).json()
        (template,) = told["tiles"]
        assert template.endswith("/{z}/{x}/{y}.png?rescale=0%2C9")
        assert client.get(template.format(z=8, x=123, y=78)).status_code == 200
        assert told["bounds"] == pytest.approx([-8.0, 55.5, -5.0, 58.5])
        assert told["maxzoom"] == 8
        text = client.get(f"/api/requests/{name}/tiles/WMTSCapabilities.xml").text
    space = {"w": "http://www.opengis.net/wmts/1.0"}
    tree = ElementTree.fromstring(text)
    dates = [one.text for one in tree.findall(".//w:Dimension/w:Value", space)]
    assert dates == ["2012-01-01", "2012-01-02"]
    if shutil.which("gdal_translate") is None:
        pytest.skip("gdal_translate is not installed")
    made = tmp_path / "map.tif"
    token = tokens.issue("s" * 40, "ada@example.org", "scientist")
    run = subprocess.run(
        ["gdal_translate", "-q", "-projwin", "-890555", "8064000", "-556600", "7600000",
         "-outsize", "60", "60",
         f"WMTS:{portal.url}/api/requests/{name}/tiles/WMTSCapabilities.xml,layer={LAYER}",
         str(made)],
        env={**os.environ, "HOME": str(tmp_path),
             "GDAL_HTTP_HEADERS": f"Authorization: Bearer {token}"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    with rasterio.open(made) as picture:
        assert (picture.read(4) == 255).mean() > 0.5


def refused(portal: LivePortal, place: str, said: Mapping[str, tuple[int, str]]) -> None:
    """See the status and words with which addresses below a place are refused."""
    with portal.client() as client:
        for rest, (status, words) in said.items():
            answer = client.get(f"{place}{rest}")
            assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_what_cannot_be_shown_says_why(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    name = delivered(runtime, raster(tmp_path, hills(300, 300)))
    refused(
        portal,
        f"/api/requests/{name}/tiles/",
        {
            f"{LAYER}/2012-01-09/4/7/5.png": (404, "no finished raster of '2012-01-09'"),
            f"{LAYER}/all/4/7/5.png": (404, "It has 1, from 2012-01-01"),
            "Nothing/2012-01-01/4/7/5.png": (404, "no layer 'Nothing'"),
            f"{LAYER}/{DAY}/4/70/5.png": (404, "There is no tile 4/70/5"),
            f"{LAYER}/{DAY}/4/7/5.png?band=3": (404, "it has no band 4"),
            f"{LAYER}/{DAY}/4/7/5.png?rescale=3,1": (400, "are no ends of a scale"),
            f"{LAYER}/{DAY}/4/7/5.png?colormap=loud": (400, "colormap"),
        },
    )


def test_a_link_to_the_request_shows_its_tiles(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    name = delivered(runtime, raster(tmp_path, hills(300, 300)))
    with portal.client() as owner:
        link = urlsplit(owner.post(f"/api/requests/{name}/links").json()["url"])
    with portal.visitor() as guest:
        assert guest.get(f"{address(name)}/4/7/5.png").status_code == 401
        guest.get(f"{link.path}?{link.query}")
        assert guest.get(f"{address(name)}/4/7/5.png").status_code == 200
