"""Maps by OGC API - Maps and Tiles: each link leads on, to the pixels of the tile routes."""

import io
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyproj
import pytest
import rasterio
from PIL import Image

from portal.serving import tokens
from portal.views.ogc import CONFORMANCE
from portal.views.tile_matrix import SETS
from tasks.bag.runtime import Runtime
from tests.portal.deliveries import LAYER
from tests.portal.scripted import LivePortal, live_portal, live_runtime, settings
from tests.portal.views.test_result_tiles import address, delivered, hills, raster, refused

REL = "http://www.opengis.net/def/rel/ogc/1.0/"


def follow(client: httpx.Client, said: Any, rel: str, media: str = "application/json") -> Any:
    """Return what the one link of a kind leads to."""
    (link,) = (one for one in said["links"] if (one["rel"], one["type"]) == (rel, media))
    answer = client.get(link["href"])
    assert answer.status_code == 200, answer.text
    return answer.json() if media == "application/json" else answer


def tiles_of(client: httpx.Client, collection: Any) -> dict[str, Any]:
    """Return the tile sets of a collection by name, with the tile matrix set of each."""
    listed = follow(client, collection, f"{REL}tilesets-map")["tilesets"]
    found = {}
    for one in listed:
        assert one["dataType"] == "map"
        said = follow(client, one, "self")
        assert said["tileMatrixSetURI"] == one["tileMatrixSetURI"]
        found[one["tileMatrixSetURI"].rpartition("/")[2]] = (
            said, follow(client, said, f"{REL}tiling-scheme")
        )  # fmt: skip
    return found


def template(said: Any) -> str:
    (link,) = (one for one in said["links"] if one["rel"] == "item")
    assert link["templated"]
    return str(link["href"])


def test_the_links_lead_from_the_landing_page_to_the_tiles_of_a_result(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    name = delivered(runtime, raster(tmp_path, hills(300, 300)))
    with portal.client() as client:
        landing = client.get("/maps").json()
        told = follow(client, landing, f"{REL}conformance")["conformsTo"]
        assert told == list(CONFORMANCE)
        (listed,) = follow(client, landing, "data")["collections"]
        collection = follow(client, listed, "self")
        assert collection == listed
        (box,) = collection["extent"]["spatial"]["bbox"]
        assert box == pytest.approx([-8.0, 55.5, -5.0, 58.5])
        ((first, last),) = collection["extent"]["temporal"]["interval"]
        assert (first, last) == ("2012-01-01T00:00:00Z", "2012-01-01T23:59:59Z")
        sets = tiles_of(client, collection)
        assert set(sets) == set(SETS)
        at = {"WebMercatorQuad": (8, 123, 78), "WorldCRS84Quad": (7, 123, 23)}
        for set_name, (said, _) in sets.items():
            if set_name not in at:
                continue
            zoom, col, row = at[set_name]
            limits = said["tileMatrixSetLimits"][zoom]
            assert limits["tileMatrix"] == str(zoom)
            assert 0 == limits["minTileRow"] <= row <= limits["maxTileRow"]
            assert 0 == limits["minTileCol"] <= col <= limits["maxTileCol"]
            href = template(said).format(tileMatrix=zoom, tileCol=col, tileRow=row)
            mine = client.get(href)
            known = client.get(f"{address(name)}/{zoom}/{col}/{row}.png", params={"tms": set_name})
            assert mine.headers["content-type"] == "image/png"
            assert mine.content == known.content
            assert opaque(mine) > 0.2
        listed_sets = follow(client, landing, f"{REL}tiling-schemes")["tileMatrixSets"]
        assert [follow(client, one, "self") for one in listed_sets] == [
            scheme for _, scheme in sets.values()
        ]


def opaque(answer: httpx.Response) -> float:
    with Image.open(io.BytesIO(answer.content)) as picture:
        return float((np.asarray(picture)[..., 3] == 255).mean())


def test_a_tile_matrix_set_says_where_the_tiles_lie(portal: LivePortal) -> None:
    with portal.client() as client:
        for matrix in SETS.values():
            said = client.get(f"/maps/tileMatrixSets/{matrix.name}").json()
            # The corner has the axes of the CRS in their order.
            turned = pyproj.CRS(matrix.official).axis_info[0].direction == "north"
            turned = turned and not matrix.name.startswith("UPS")
            for zoom in (0, 5, matrix.zooms[-1]):
                told = said["tileMatrices"][zoom]
                col, row = told["matrixWidth"] - 1, told["matrixHeight"] // 3
                grid = matrix.grid(zoom, col, row)
                left, top = told["pointOfOrigin"][:: -1 if turned else 1]
                side = told["cellSize"] * told["tileWidth"]
                assert grid.bounds.west == pytest.approx(left + col * side)
                assert grid.bounds.north == pytest.approx(top - row * side)
                assert grid.shape == (told["tileHeight"], told["tileWidth"])
            if matrix.crs == "EPSG:4326":
                assert said["tileMatrices"][0]["scaleDenominator"] == pytest.approx(
                    279541132.0143589
                )
        assert client.get("/maps/tileMatrixSets/UTM").status_code == 404


def test_a_map_has_the_size_and_the_place_that_are_asked_for(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    plane = np.full((100, 200), 20, np.uint16)
    plane[:, 100:] = 0
    name = delivered(runtime, raster(tmp_path, plane))
    place = f"/maps/collections/{name}:{LAYER.replace('/', ':')}/map"
    with portal.client() as client:
        sizes = {
            query: size(client.get(f"{place}?{query}"))
            for query in ("", "width=100", "height=10", "width=30&height=40", "width=2048")
        }
        half = client.get(f"{place}?bbox=-8,57.5,-7,58.5&width=64")
        none = client.get(f"{place}?bbox=-7,57.5,-6,58.5&width=64")
        long = client.get(f"{place}?bbox=-8,57.5,-7.9999,58.5&width=64")
        large = client.get(f"{place}?width=2049")
    assert sizes == {
        "": (1024, 512), "width=100": (100, 50), "height=10": (20, 10),
        "width=30&height=40": (30, 40), "width=2048": (2048, 1024),
    }  # fmt: skip
    assert (opaque(half), opaque(none)) == (1.0, 0.0)
    assert (long.status_code, large.status_code) == (400, 400)


def size(answer: httpx.Response) -> tuple[int, int]:
    assert answer.status_code == 200, answer.text
    with Image.open(io.BytesIO(answer.content)) as picture:
        return picture.size


def test_each_class_that_is_listed_is_held(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    """What each class requires: a class that is listed has its line here, and no other."""
    name = f"{delivered(runtime, raster(tmp_path, hills(300, 300)))}:{LAYER.replace('/', ':')}"
    with portal.client() as client:

        def said(place: str) -> Any:
            answer = client.get(f"/maps{place}")
            assert answer.headers["content-type"] == "application/json"
            return answer.json()

        landing, one, place = said(""), said(f"/collections/{name}"), f"/collections/{name}/map"
        sets, chosen = said(f"{place}/tiles"), said(f"{place}/tiles/WorldCRS84Quad")
        matrix = said("/tileMatrixSets/WorldCRS84Quad")
        drawn = client.get(f"/maps{place}?bbox=-8,57,-7,58&width=64")
        tiles = [client.get(f"/maps{place}/tiles/WorldCRS84Quad/7/{row}/123") for row in (23, 999)]
        relations = {link["rel"] for link in landing["links"]}
        of_one = {link["rel"]: link for link in one["links"]}
        of_chosen = {link["rel"]: link for link in chosen["links"]}
        wanted = {
            "common-1/core": follow(client, landing, "service-desc")["openapi"] > "3.0",
            "common-1/landing-page": {"self", "service-desc", "conformance"} <= relations,
            "common-1/json": follow(client, landing, "conformance") == said("/conformance"),
            "common-2/collections": one in said("/collections")["collections"]
            and {"id", "extent", "links"} <= one.keys(),
            "tiles-1/core": [answer.status_code for answer in tiles] == [200, 404],
            "tiles-1/tileset": chosen["dataType"] == "map"
            and chosen["tileMatrixSetURI"].endswith("/WorldCRS84Quad")
            and client.get(of_chosen[f"{REL}tiling-scheme"]["href"]).json() == matrix
            and {"{tileMatrix}", "{tileRow}", "{tileCol}"}
            <= {part for part in template(chosen).partition("?")[0].split("/") if "{" in part},
            "tiles-1/tilesets-list": len(sets["tilesets"]) == len(SETS)
            and all({"crs", "dataType", "links"} <= found.keys() for found in sets["tilesets"]),
            "tiles-1/geodata-tilesets": client.get(of_one[f"{REL}tilesets-map"]["href"]).json()
            == sets,
            "tiles-1/png": opaque(tiles[0]) > 0.2,
            "maps-1/core": (drawn.status_code, drawn.headers["content-bbox"]) ==
            (200, "-8.0,57.0,-7.0,58.0") and drawn.headers["content-datetime"] == "2012-01-01"
            and "content-crs" not in drawn.headers and "storageCrs" not in one,
            "maps-1/collection-map": of_one[f"{REL}map"]["href"].endswith(place)
            and one["crs"] == ["http://www.opengis.net/def/crs/OGC/1.3/CRS84"],
            "maps-1/tilesets": f"{REL}tilesets-map" in of_one,
            "maps-1/png": size(drawn) == (64, 64) and drawn.headers["content-type"] == "image/png",
            "2.0/tilematrixset": {"id", "crs", "orderedAxes", "tileMatrices"} <= matrix.keys(),
            "2.0/json-tilematrixset": {
                "id", "scaleDenominator", "cellSize", "pointOfOrigin", "tileWidth", "tileHeight",
                "matrixWidth", "matrixHeight",
            } <= matrix["tileMatrices"][0].keys(),
        }  # fmt: skip
    listed = [one.partition("/spec/")[2].removeprefix("ogcapi-") for one in CONFORMANCE]
    short = {
        one.replace("/1.0/conf", "").replace("tms/", "").replace("/conf", "") for one in listed
    }
    assert short == wanted.keys()
    assert [one for one, held in wanted.items() if not held] == []


def test_what_ogcs_suites_ask_is_answered(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    """As ets-ogcapi-tiles10 and ets-ogcapi-maps10 ask it, for the classes that are listed.

    They were read in November 2026, not run: they send no token.
    """
    delivered(runtime, raster(tmp_path, hills(300, 300)))
    with portal.client() as client:
        landing = client.get("/maps/", follow_redirects=True).json()  # as Tiles A.9 asks
        told = follow(client, landing, "conformance")["conformsTo"]
        for core in (
            "http://www.opengis.net/spec/ogcapi-tiles-1/1.0/conf/core",  # Tiles A.1
            "https://www.opengis.net/spec/ogcapi-maps-1/1.0/conf/core",  # Maps A.1.3
        ):
            assert core in told
        for listed in client.get("/maps/collections").json()["collections"]:
            one = follow(client, listed, "self")
            assert one["crs"][0].endswith("/OGC/1.3/CRS84")  # Maps A.13.2, and that of maps: A.1.2
            drawn = follow(client, one, f"{REL}map", "image/png")  # Maps A.1.1, A.1.2, A.13.3
            assert drawn.headers["content-type"] == "image/png"
            assert len([*map(float, drawn.headers["content-bbox"].split(","))]) == 4
            assert ("temporal" in one["extent"]) == ("content-datetime" in drawn.headers)
            with Image.open(io.BytesIO(drawn.content)) as picture:  # Maps A.16.1
                assert picture.mode == "RGBA"
                assert len(picture.getcolors(10**6) or [0, 0]) > 1
            href = next(x["href"] for x in one["links"] if x["rel"] == f"{REL}tilesets-map")
            assert href.partition("?")[0].endswith("/tiles")  # Tiles A.9, A.13
            for said, matrix in tiles_of(client, one).values():
                assert matrix["id"] in said["tileMatrixSetURI"]
                item = template(said)  # Maps A.2.2; Tiles A.2, A.6, A.7
                first, most = {"tileMatrix": "0", "tileRow": 0, "tileCol": 0}, 2**31 - 1
                assert client.get(item.format_map(first)).status_code == 200
                for wrong in ({"tileRow": most, "tileCol": most}, {"tileMatrix": "99"}):
                    answer = client.get(item.format_map({**first, **wrong}))
                    assert answer.status_code in (400, 404)


def test_a_layer_of_granules_is_a_collection_too(sample_archive: Path, tmp_path: Path) -> None:
    made = settings(archive=str(sample_archive), data_dir=str(tmp_path), sources="folder")
    day = "2012-03-07"
    with live_portal(live_runtime(), made) as portal, portal.client() as client:
        place = "/maps/collections/MCD15A2.005:Lai_1km"
        collection = client.get(
            place, params={"datetime": f"{day}T12:00:00Z", "rescale": "0,7"}
        ).json()
        said, _ = tiles_of(client, collection)["WebMercatorQuad"]
        mine = client.get(template(said).format(tileMatrix=4, tileRow=5, tileCol=7))
        known = client.get(f"/tiles/MCD15A2.5/Lai_1km/{day}/4/7/5.png?rescale=0,7")
        assert mine.content == known.content
        assert opaque(mine) > 0.05
        assert client.get(place).status_code == 400  # it is not known what the archive has


def test_what_cannot_be_shown_says_why(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    name = delivered(runtime, raster(tmp_path, hills(300, 300)))
    place = f"/maps/collections/{name}:{LAYER.replace('/', ':')}"
    refused(
        portal,
        place,
        {
            "?datetime=2012-01-05": (404, "no finished raster of '2012-01-05'"),
            "?datetime=soon": (400, "is no day"),
            "?qa=best": (400, "Leave it out"),
            ":x": (404, "There is no collection"),
            "/map/tiles/UTM": (404, "no tile matrix set"),
            "/map?bbox=3": (400, "is no box"),
        },
    )


@pytest.mark.skipif(shutil.which("gdal_translate") is None, reason="gdal-bin is not installed")
def test_gdal_opens_maps_and_tiles(portal: LivePortal, runtime: Runtime, tmp_path: Path) -> None:
    name = delivered(runtime, raster(tmp_path, hills(300, 300)))
    token = tokens.issue("s" * 40, "ada@example.org", "scientist")
    reading = {
        "PATH": os.environ["PATH"],  # other variables may lead it to another library's PROJ data
        "GDAL_DEFAULT_WMS_CACHE_PATH": str(tmp_path / "cache"),
        "GDAL_HTTP_HEADERS": f"Authorization: Bearer {token}",
    }
    place = f"OGCAPI:{portal.url}/maps/collections/{name}:{LAYER.replace('/', ':')}"
    listed = run(["gdalinfo", f"OGCAPI:{portal.url}/maps"], reading)
    assert place in listed
    for way in ("MAP", "TILES"):
        made = tmp_path / f"{way}.tif"
        run(
            ["gdal_translate", "-q", "-oo", f"API={way}", "-projwin", "-7.9", "58.4", "-5.1",
             "55.6", "-outsize", "60", "60", place, str(made)],
            reading,
        )  # fmt: skip
        with rasterio.open(made) as picture:
            assert picture.shape == (60, 60)
            assert (picture.read(4) == 255).mean() > 0.5


def run(command: list[str], reading: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=reading, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
