"""A folder on a map: what is read of it, its page, and who may call."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from portal.viewer.app import viewer_app
from portal.viewer.folder import FolderRead, read_folder
from tests.portal.scripted import client_of, live_runtime, settings
from tests.serving import serving_app


@pytest.fixture(scope="module")
def folder(sample_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiles and a swath of the sample, a tile that is cut off, and a file of no granule."""
    made = tmp_path_factory.mktemp("granules")
    tiles = sorted(sample_archive.rglob("MCD15A2.A2012065*.hdf"))
    swath = min(sample_archive.rglob("MYD04_L2*.hdf"))
    for path in (*tiles, swath):
        shutil.copy(path, made)
    cut = tiles[0].name.replace("A2012065", "A2012073")
    (made / cut).write_bytes(tiles[0].read_bytes()[:5000])
    (made / "notes.hdf").write_bytes(b"no granule")
    return made


@pytest.fixture(scope="module")
def opened(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, FolderRead]]:
    made = settings(
        archive=str(folder), data_dir=str(tmp_path_factory.mktemp("data")), sources="folder"
    )
    runtime = live_runtime()
    app = viewer_app(made, runtime)
    found = read_folder(made, runtime)
    with serving_app(app) as url, client_of(url) as client:
        yield client, found
    changing = [
        route.path
        for route in app.routes
        if isinstance(route, APIRoute) and (route.methods or set()) - {"GET", "HEAD"}
    ]
    assert changing == []


def test_a_folder_is_read_and_what_is_not_shown_is_named(
    opened: tuple[httpx.Client, FolderRead], folder: Path
) -> None:
    _, found = opened
    assert found.products == {"MCD15A2.005": 3, "MYD04_L2.061": 1}
    assert set(found.unreadable) == {"notes.hdf", *(one.name for one in folder.glob("*A2012073*"))}
    assert found.unnamed == ("notes.hdf",)


def test_the_page_offers_what_the_granules_have(opened: tuple[httpx.Client, FolderRead]) -> None:
    client, _ = opened
    page = client.get("/").text
    for one in (
        '<option value="MCD15A2.005" selected>',
        '<option value="MYD04_L2.061">',
        '<option value="MCD15A2.005|Lai_1km">',
        "<option>2012-03-05</option><option>2012-03-13</option>",
        'value="FparLai_QC|MODLAND|0"',
    ):
        assert one in page
    assert "FparExtra_QC</option>" not in page  # the sample's granules lack it
    assert "Sign in" not in page
    assert "/service-notice" not in page
    missing = client.get("/", params={"product": "MOD09.1"})
    assert missing.status_code == 404
    assert "It has MCD15A2.005, MYD04_L2.061" in missing.text


def test_tiles_and_places_need_no_sign_in(opened: tuple[httpx.Client, FolderRead]) -> None:
    client, _ = opened
    found = client.get("/place.json", params={"product": "MCD15A2.5", "day": "2012-03-05"}).json()
    assert found == {"bbox": [-20.0, 50.0, 20.0, 60.0]}
    tile = client.get("/tiles/MCD15A2.5/Lai_1km/2012-03-05/4/7/5.png", params={"rescale": "0,7"})
    assert tile.headers["content-type"] == "image/png"
    cut = client.get("/tiles/MCD15A2.5/Lai_1km/2012-03-13/4/7/5.npy")
    assert cut.status_code == 502
    assert "A2012073" in cut.json()["detail"]


def test_a_name_of_another_site_reads_nothing(opened: tuple[httpx.Client, FolderRead]) -> None:
    client, _ = opened
    answer = client.get("/", headers={"Host": "elsewhere.example"})
    assert answer.status_code == 400
    assert "MCD15A2" not in answer.text
    assert client.get("/requests").status_code == 404
