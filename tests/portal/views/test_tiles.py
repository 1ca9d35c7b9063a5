"""Tiles of granules hold the pixels that a request makes on the same grid."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import httpx
import numpy as np
import pyproj
import pytest
import rasterio
from numpy.typing import NDArray
from PIL import Image

from portal.views import state, tiles_api
from portal.views.tile_matrix import SETS, WORLD_CRS84
from reprojection.isolation import ReadingProcess
from reprojection.reproject import Options, reproject
from tests.portal.scripted import live_portal, live_runtime, settings

LAYER = "/tiles/MCD15A2/Lai_1km/2012-03-07"
ZOOM, COL, ROW = 4, 7, 5
RULE = {"FparLai_QC": {"MODLAND": [0]}}


@pytest.fixture(scope="module")
def client(
    sample_archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    made = settings(
        archive=str(sample_archive), data_dir=str(tmp_path_factory.mktemp("data")), sources="folder"
    )
    with live_portal(live_runtime(), made) as portal, portal.client() as client:
        yield client


def numbers(client: httpx.Client, at: str, **query: str) -> NDArray[np.float32]:
    answer = client.get(f"{LAYER}/{at}.npy", params=query)
    assert answer.status_code == 200, answer.text
    values: NDArray[np.float32] = np.load(io.BytesIO(answer.content))
    return values


def opacities(answer: httpx.Response) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(answer.content)) as picture:
        return np.asarray(picture)[..., 3]


@pytest.mark.parametrize(
    ("matrix", "at", "rule"),
    [
        ("EuropeanETRS89_LAEAQuad", (2, 1, 1), None),
        ("WebMercatorQuad", (ZOOM, COL, ROW), RULE),
    ],
)
def test_a_tile_holds_the_pixels_of_a_request(
    client: httpx.Client,
    sample_archive: Path,
    matrix: str,
    at: tuple[int, int, int],
    rule: dict[str, dict[str, list[int]]] | None,
) -> None:
    query = {"qa": json.dumps(rule)} if rule else {}
    found = numbers(client, "/".join(map(str, at)), tms=matrix, **query)
    granules = sorted(sample_archive.rglob("MCD15A2.A2012065*"))
    grid = SETS[matrix].grid(*at)
    raster = reproject(granules, "Lai_1km", grid, Options(units="physical", qa=rule))
    assert np.isfinite(found).any()
    np.testing.assert_array_equal(found, raster.values(0).astype(np.float32))


def test_other_matrix_sets_and_forms(client: httpx.Client) -> None:
    grid = WORLD_CRS84.grid(4, 15, 3)
    answer = client.get(f"{LAYER}/4/15/3.tif", params={"tms": "WorldCRS84Quad"})
    assert answer.headers["content-type"] == "image/tiff"
    with rasterio.open(io.BytesIO(answer.content)) as raster:
        assert tuple(raster.bounds) == pytest.approx(grid.bounds)
        values = raster.read(1)
    np.testing.assert_array_equal(values, numbers(client, "4/15/3", tms="WorldCRS84Quad"))


def test_a_picture_is_transparent_where_there_is_no_value(client: httpx.Client) -> None:
    address = f"{LAYER}/{ZOOM}/{COL}/{ROW}.png"
    answer = client.get(address, params={"rescale": "0,7"})
    assert answer.headers["content-type"] == "image/png"
    opacity = opacities(answer)
    np.testing.assert_array_equal(opacity > 0, np.isfinite(numbers(client, f"{ZOOM}/{COL}/{ROW}")))
    again = client.get(
        address, params={"rescale": "0,7"}, headers={"If-None-Match": answer.headers["etag"]}
    )
    assert again.status_code == 304
    assert client.get(address, params={"rescale": "0,6"}).headers["etag"] != answer.headers["etag"]
    empty = client.get(f"{LAYER}/{ZOOM}/0/0.png")
    assert not opacities(empty).any()


def test_all_tiles_of_a_day_have_one_scale(client: httpx.Client) -> None:
    """Without ends in the address they are those of the day, not of the tile."""
    colours: dict[float, bytes] = {}
    for at in (f"{ZOOM}/{COL}/{ROW}", f"{ZOOM}/{COL + 1}/{ROW}"):
        with Image.open(io.BytesIO(client.get(f"{LAYER}/{at}.png").content)) as picture:
            pixels = np.asarray(picture).reshape(-1, 4)
        for value, pixel in zip(numbers(client, at).ravel().tolist(), pixels, strict=True):
            if np.isfinite(value):
                assert colours.setdefault(value, pixel.tobytes()) == pixel.tobytes()
    assert len(colours) > 20
    said = client.get(f"{LAYER}/survey.json", params={"bbox": "-10,50,10,60"}).json()
    assert said["kind"] == "continuous"
    assert 0 <= said["low"] < said["high"] <= 10


def test_a_day_without_granules_is_told(client: httpx.Client) -> None:
    answer = client.get(f"{LAYER.replace('2012-03-07', '2001-01-01')}/{ZOOM}/{COL}/{ROW}.png")
    assert answer.status_code == 404
    assert "no granule of MCD15A2 on 2001-01-01" in answer.text


def test_a_survey_counts_with_and_without_the_rule(client: httpx.Client) -> None:
    plain = client.get(f"{LAYER}/survey.json", params={"bbox": "-10,50,10,60"}).json()
    ruled = client.get(
        f"{LAYER}/survey.json", params={"bbox": "-10,50,10,60", "qa": json.dumps(RULE)}
    ).json()
    assert plain["valid"] == plain["covered"] == ruled["covered"]
    assert 0 < ruled["valid"] < ruled["covered"]
    assert plain["granules"] == 2
    assert ruled["mean_before"] == plain["mean"] == plain["mean_before"]
    assert plain["bins"] == plain["bins_before"]
    assert sum(ruled["bins"]) == pytest.approx(ruled["valid"])
    assert sum(ruled["bins_before"]) == pytest.approx(ruled["covered"])


def test_a_legend_shows_values_before_the_rule_and_with_it(client: httpx.Client) -> None:
    box = {"bbox": "-10,50,10,60"}
    plain = client.get(f"{LAYER}/legend", params=box).text
    ruled = client.get(f"{LAYER}/legend", params={**box, "qa": json.dumps(RULE)}).text
    none = client.get(
        f"{LAYER}/legend", params={**box, "qa": json.dumps({"FparLai_QC": {"SCF_QC": [4]}})}
    ).text
    classes = client.get(
        f"{LAYER.replace('Lai_1km', 'FparLai_QC')}/legend",
        params={**box, "qa": json.dumps(RULE)},
    ).text
    assert "of pixels with the rule," in ruled
    assert "with the rule" not in plain
    assert re.search(r"Mean [\d.]+ m² m⁻² with the rule, [\d.]+ m² m⁻² before it", ruled)
    assert re.search(r"The rule leaves out [\d.]+% of the values", ruled)
    assert "The rule leaves out every value" in none
    assert 'class="part behind"' in none
    assert re.search(r"100\.0%, before the rule|, before the rule [\d.]+%", classes)


def test_a_place_has_its_value_and_its_quality(client: httpx.Client) -> None:
    """It is that of the tile's pixel there."""
    values = numbers(client, f"{ZOOM}/{COL}/{ROW}", resampling="nearest")
    grid = SETS["WebMercatorQuad"].grid(ZOOM, COL, ROW)
    row, col = (int(one[0]) for one in np.nonzero(np.isfinite(values)))
    a, _, left, _, e, top = grid.transform
    to_degrees = pyproj.Transformer.from_crs(grid.crs, "EPSG:4326", always_xy=True)
    lon, lat = to_degrees.transform(left + a * (col + 0.5), top + e * (row + 0.5))
    place = {"lon": lon, "lat": lat, "resampling": "nearest"}
    answer = client.get(f"{LAYER}/value.json", params=place).json()
    assert answer["value"] == pytest.approx(values[row, col])
    assert answer["origin"]["granule"].startswith("MCD15A2.A2012065")
    (quality,) = answer["origin"]["quality"]
    assert quality["layer"] == "FparLai_QC"
    assert {"MODLAND", "SCF_QC"} <= {one["name"] for one in quality["fields"]}
    nowhere = client.get(f"{LAYER}/value.json", params={"lon": 100, "lat": -60})
    assert nowhere.status_code == 404


def test_maps_and_programs_find_the_tiles(client: httpx.Client) -> None:
    said = client.get(f"{LAYER}/tilejson.json", params={"qa": "good"}).json()
    (template,) = said["tiles"]
    address = template.format(z=ZOOM, x=COL, y=ROW)
    assert address.endswith("?qa=good")
    assert client.get(address).headers["content-type"] == "image/png"
    text = client.get(f"{LAYER}/WMTSCapabilities.xml", params={"qa": "good"}).text
    space = {"w": "http://www.opengis.net/wmts/1.0"}
    (resource,) = ElementTree.fromstring(text).findall(".//w:ResourceURL", space)
    filled = resource.attrib["template"]
    named = ElementTree.fromstring(text).iterfind(".//w:TileMatrixSetLink/w:TileMatrixSet", space)
    assert [one.text for one in named] == [*SETS]
    europe = "{http://www.opengis.net/ows/1.1}BoundingBox[@crs='urn:ogc:def:crs:EPSG::3035']"
    (bounds,) = ElementTree.fromstring(text).iterfind(f".//{europe}")  # north first
    corners = [one.text for one in bounds]
    assert corners == ["1000000.0 2000000.0", "5500000.0 6500000.0"]
    at = {"TileMatrix": ZOOM, "TileCol": COL, "TileRow": ROW, "TileMatrixSet": "WebMercatorQuad"}
    for name, value in at.items():
        filled = filled.replace(f"{{{name}}}", str(value))
    assert filled == address.replace("?", "?tms=WebMercatorQuad&")
    assert client.get(filled).content == client.get(address).content


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/tiles/MCD15A2/Nothing/2012-03-07/4/7/5.png", 404, "no layer 'Nothing'"),
        ("/tiles/MCD99Z9/Lai_1km/2012-03-07/4/7/5.png", 404, "The archive has no MCD99Z9"),
        (f"{LAYER}/40/7/5.png", 404, "There is no zoom 40"),
        (f"{LAYER}/4/70/5.png", 404, "There is no tile 4/70/5"),
        (f"{LAYER}/4/7/5.png?tms=UTM", 404, "no tile matrix set"),
        (f"{LAYER}/4/0/0.npy", 404, "No granule of MCD15A2 lies here"),
        (f"{LAYER}/4/7/5.png?qa=fine", 400, "is no quality rule"),
        (f"{LAYER}/4/7/5.png?qa={{}}x", 400, "is no quality rule"),
        (f'{LAYER}/4/7/5.png?qa={{"FparLai_QC": {{"MODLAND": 0}}}}', 400, "is no quality rule"),
        (f'{LAYER}/4/7/5.png?qa={{"Nothing": {{"MODLAND": [0]}}}}', 400, "Nothing"),
        (f"{LAYER}/4/7/5.png?rescale=3,1", 400, "are no ends of a scale"),
        (f"{LAYER}/4/7/5.png?rescale=0,inf", 400, "are no ends of a scale"),
        (f"{LAYER}/4/7/5.png?rescale=nan,1", 400, "are no ends of a scale"),
        (f"{LAYER}/4/7/5.png?resampling=mean", 400, "mean"),
        (f"{LAYER}/survey.json?bbox=1,2,3", 400, "is no box"),
        (f"{LAYER}/4/7/5.jpg", 400, "form"),
    ],
)
def test_what_cannot_be_shown_says_why(
    client: httpx.Client, address: str, status: int, words: str
) -> None:
    answer = client.get(address)
    assert answer.status_code == status, answer.text
    assert words in answer.text


def test_a_tile_of_too_many_granules_is_refused(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.views.tiles_api.MOST_GRANULES", 1)
    answer = client.get(f"{LAYER}/3/3/2.png")
    assert answer.status_code == 422
    assert "Zoom in" in answer.text
    assert state.MOST_GRANULES > 1


def test_a_survey_counts_so_many_granules_and_no_more(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = {"bbox": "-10,50,10,60"}
    answers = {}
    for most in (2, 1):  # there are two
        monkeypatch.setattr(tiles_api, "_MOST_OF_A_SURVEY", most)
        answers[most] = [
            client.get(f"{LAYER}/{name}", params=box) for name in ("survey.json", "picture.png")
        ]
    assert [one.status_code for one in answers[2]] == [200, 200]
    assert answers[2][0].json()["granules"] == 2
    for one in answers[1]:
        assert one.status_code == 422
        assert "More than 1 granules of MCD15A2 lie here" in one.text


def test_only_who_is_signed_in_sees_tiles(client: httpx.Client) -> None:
    answer = httpx.get(f"{client.base_url}{LAYER}/4/7/5.png")
    assert answer.status_code == 401


def test_what_draws_is_started_once_when_a_form_is_open(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(ReadingProcess, "begin", lambda process: begun.append(process))
    for _ in range(2):
        assert client.get("/tiles/readers").status_code == 204
    assert len({id(one) for one in begun}) == len(begun) == state._AT_ONCE
