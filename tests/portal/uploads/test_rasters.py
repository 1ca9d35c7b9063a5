"""Rasters by the API and by pages; what is private stays unknown to everybody else."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from portal.uploads import rasters as core
from portal.uploads.rasters import RasterUpload
from processes.reading_rights import can_shut_in
from reprojection.user_rasters import conversion
from reprojection.user_rasters.source import RasterChoices, RasterFile, RasterRefusedError
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.storage.blobs import RASTERS
from tasks.uploads import raster_operations, upload_operations
from tasks.uploads.raster_operations import RASTER_UPLOADS
from tasks.uploads.upload_table import UploadRow, upload_id
from tests.portal.scripted import LivePortal
from tests.portal.serving.test_documents import read
from tests.portal.submissions import DOCUMENT
from tests.reprojection.catalogue.test_user_raster import geotiff
from tests.reprojection.test_isolation import done

pytestmark = pytest.mark.slow

ADA, BEN = "ada@example.org", "ben@example.org"


@pytest.fixture
def dem(tmp_path: Path) -> Path:
    return geotiff(tmp_path / "dem.tif", np.arange(600, dtype=np.int16).reshape(20, 30))


def push(portal: LivePortal, file: Path, owner: str = ADA, **said: str) -> Any:
    with portal.client(owner) as client, file.open("rb") as opened:
        return client.post(
            "/api/rasters", data={"name": "hills", **said}, files={"file": (file.name, opened)}
        )


@pytest.mark.parametrize("count", [2, 3])
def test_so_many_files_of_a_raster_are_taken_at_once(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(core, "MOST_FILES", 2)
    sent = [("file", (f"{number}.tif", b"x")) for number in range(count)]
    made = httpx.Request("POST", "http://portal/rasters", data={"name": "hills"}, files=sent)
    pushed: list[UploadFile] = []

    def push(_: RasterUpload, files: Sequence[UploadFile]) -> UploadRow:
        pushed.extend(files)
        return Mock()

    if count > 2:
        with pytest.raises(HTTPException, match="Maximum number of files is 2"):
            read(made, lambda request: core.received(request, push))
    else:
        read(made, lambda request: core.received(request, push))
    assert len(pushed) == (count if count == 2 else 0)


def test_a_raster_is_pushed_listed_found_shared_and_deleted(portal: LivePortal, dem: Path) -> None:
    answer = push(portal, dem, units="hills=m")
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["reference"], made["visibility"], made["newest"]) == (
        "raster:hills",
        "private",
        "1",
    )
    (version,) = made["versions"]
    assert version["layers"][0]["units"] == "m"
    assert (version["dates"], version["width"], version["came_from"]) == ([], 30, "dem.tif")
    assert push(portal, dem, units="hills=m").json()["versions"] == [version]
    assert push(portal, dem).json()["newest"] == "2"
    assert push(portal, dem, version="1").status_code == 409
    with portal.client(BEN) as client:
        for address in ("/find?reference=hills", f"/find?reference={ADA}/hills", f"/{made['id']}"):
            assert client.get(f"/api/rasters{address}").status_code == 404, address
        assert client.get("/api/rasters").json() == []
        assert client.delete(f"/api/rasters/{made['id']}").status_code == 404
    with portal.client(ADA) as client:
        shared = client.post(f"/api/rasters/{made['id']}/share?visibility=link").json()
    with portal.client(BEN) as client:
        opened = client.post("/api/rasters/open", params={"link": shared["link"]}).json()
        assert (opened["reference"], opened["link"]) == (f"raster:{ADA}/hills", "")
        found = client.get("/api/rasters/find", params={"reference": f"raster:{ADA}/hills@1"})
        assert [one["digest"] for one in found.json()["versions"]] == [version["digest"]]
    assert push(portal, dem, version="3").status_code == 201  # with the content of version 2
    for number in ("2", "3"):
        with portal.client(ADA) as client:
            found = client.get("/api/rasters/find", params={"reference": f"hills@{number}"})
        assert [one["version"] for one in found.json()["versions"]] == [number]
    with portal.client(ADA) as client:
        for number in ("2", "3"):
            address = f"/api/rasters/{made['id']}/versions/{number}"
            assert client.delete(address).status_code == 204
        assert client.get(f"/api/rasters/{made['id']}").json()["newest"] == "1"
        assert client.delete(f"/api/rasters/{made['id']}").status_code == 204
        assert client.get(f"/api/rasters/{made['id']}").status_code == 404


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"name": "Hills"}, "is not a name of a raster"),
        ({"version": "a b"}, "is not a version"),
        ({"period": "400"}, "is not a number of days"),
        ({"period": "²"}, "is not a number of days"),
        ({"units": "m"}, "not written LAYER=UNIT"),
        ({"dates": "2012-04-01,2012-04-02"}, "2 dates are given for 1 files"),
        ({"dates": "April"}, "Write dates as 2012-04-01"),
        ({"url": "https://example.org/x.tif"}, "one of the two"),
    ],
)
def test_what_is_said_wrong_is_refused(
    portal: LivePortal, dem: Path, said: dict[str, str], words: str
) -> None:
    answer = push(portal, dem, **said)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_a_file_that_is_none_and_a_host_that_is_not_allowed(
    portal: LivePortal, tmp_path: Path
) -> None:
    vrt = tmp_path / "dem.tif"
    vrt.write_text("<VRTDataset><SourceFilename>/etc/passwd</SourceFilename></VRTDataset>")
    answer = push(portal, vrt)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("dem.tif is a VRT, which names other files")
    with portal.client() as client:
        fields = {"name": (None, "dem"), "url": (None, "https://example.org/dem.tif")}
        answer = client.post("/api/rasters", files=fields)
    assert answer.status_code == 422
    assert "SWATHMILL_NETWORK_HOSTS" in answer.json()["detail"]


def test_an_upload_that_is_too_large_is_refused(
    portal: LivePortal, dem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "MOST_UPLOADED", 100)
    monkeypatch.setattr(core, "_FORM_BYTES", 100)
    assert push(portal, dem).status_code == 413


def test_a_raster_that_grows_too_large_as_it_is_kept_is_refused(
    portal: LivePortal, dem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that writes it stops at the limit: nothing more lies on the disk meanwhile."""
    monkeypatch.setattr(core, "MOST_CONVERTED", 2 << 20)
    monkeypatch.setattr(core, "_NEAR_LIMIT", 1 << 19)
    noise = np.random.default_rng(1).integers(0, 2**16, (1500, 1500), dtype=np.uint16)
    answer = push(portal, geotiff(tmp_path / "noise.tif", noise))
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"] == (
        "noise.tif holds too much: the raster takes more than 2 MiB as it is kept. Cut it to your "
        "region, make it coarser, or upload its dates or layers as several rasters."
    )
    assert push(portal, dem).status_code == 201


def hostile(files: Sequence[RasterFile], choices: RasterChoices, out: Path) -> None:
    """Stand for a decoder that an upload took over, in place of `convert`."""
    possible = done(files[0].path, choices.units["hills"], 9)
    out.write_bytes(b"made")
    for place in (files[0].path.parent, files[0].path.parent.parent):
        with suppress(OSError):
            possible += [str(one) for one in place.iterdir()]
        with suppress(OSError):
            (place / "new").touch()
            possible.append(f"write into {place}")
    raise RasterRefusedError(f"Possible: {possible}.")


def test_an_upload_that_takes_over_its_reader_reaches_nothing(
    portal: LivePortal, dem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_shut_in():
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setenv("SWATHMILL_SECRET", "key")
    monkeypatch.setattr(conversion, "convert", hostile)
    secret = tmp_path / "secrets.json"
    secret.write_text("key")
    answer = push(portal, dem, units=f"hills={secret}")
    assert answer.status_code == 422
    assert "Possible: []." in answer.text


def test_the_page_uploads_shares_and_deletes(portal: LivePortal, dem: Path) -> None:
    with portal.browser() as browser:
        page = browser.post(
            "/rasters", data={"name": "hills"}, files={"file": (dem.name, dem.read_bytes())}
        )
        at = page.url.path
        assert "Raster hills" in page.text
        assert "raster:hills" in page.text
        linked = browser.post(f"{at}/share", data={"visibility": "link"}).text
        assert "/rasters/open?link=" in linked
        wrong = browser.post("/rasters", data={"name": "hills"}, files={"file": ("a.tif", b"PK")})
        assert wrong.status_code == 422
        assert "a.tif is a zip" in wrong.text
        assert browser.post(f"{at}/delete").url.path == "/rasters"
        assert browser.get(at).status_code == 404


def test_a_refused_upload_keeps_what_was_typed(portal: LivePortal, dem: Path) -> None:
    typed = {"name": "hills", "units": "hills=m", "dates": "2012-04-01, 2012-04-02", "period": "8"}
    with portal.browser() as browser:
        page = browser.post("/rasters", data=typed, files={"file": (dem.name, dem.read_bytes())})
        assert page.status_code == 422
        assert "2 dates are given for 1 files" in page.text
        for name, value in typed.items():
            assert f'name="{name}" value="{value}"' in page.text, name
        assert "<details open><summary>More about it" in page.text
        assert "<details open><summary>More" not in browser.get("/rasters").text


def test_the_form_offers_rasters_with_their_layers(portal: LivePortal, dem: Path) -> None:
    assert push(portal, dem, units="hills=m").status_code == 201
    with portal.browser(ADA) as browser:
        assert 'aria-label="Add raster:hills"' in browser.get("/new").text
        browser.headers["hx-request"] = "true"
        card = browser.get("/new/product", params={"name": "raster:hills"}).text
        assert "a raster of your own" in card
        assert 'value="hills"' in card  # a layer to tick
        assert '<option value="static" selected>' in card  # of no date
        assert "In the archive" not in card
    with portal.browser(BEN) as browser:
        assert "raster:hills" not in browser.get("/new").text
        browser.headers["hx-request"] = "true"
        card = browser.get("/new/product", params={"name": f"raster:{ADA}/hills"}).text
        assert "You have no raster of this name" in card


def test_only_its_owner_changes_a_raster_that_everyone_sees(portal: LivePortal, dem: Path) -> None:
    at = f"/rasters/{push(portal, dem).json()['id']}"
    with portal.client() as ada, portal.client(BEN) as ben, portal.browser(BEN) as page:
        ada.post(f"/api{at}/share?visibility=everyone").raise_for_status()
        before = ada.get(f"/api{at}").json()
        assert page.get(at).is_success
        for refused in (
            ben.post(f"/api{at}/share?visibility=private"),
            ben.delete(f"/api{at}"),
            ben.delete(f"/api{at}/versions/1"),
            page.post(f"{at}/share", data={"visibility": "private"}),
            page.post(f"{at}/delete"),
        ):
            assert refused.status_code == 404, refused.url
            assert ada.get(f"/api{at}").json() == before


def test_a_request_names_a_raster(portal: LivePortal, dem: Path) -> None:
    assert push(portal, dem).status_code == 201
    products = [*DOCUMENT["products"], {"name": "raster:hills", "layers": ["hills"]}]
    with portal.client() as client:
        made = client.post("/api/requests", json={**DOCUMENT, "products": products})
        assert made.status_code == 202, made.text
    with portal.client(BEN) as client:
        for name in ("raster:hills", f"raster:{ADA}/hills"):
            products[-1] = {"name": name, "layers": ["hills"]}
            answer = client.post("/api/requests", json={**DOCUMENT, "products": products})
            assert answer.status_code == 422, name
            assert answer.json()["field"] == "products.1.name"
            assert "there is no raster" in answer.json()["detail"]


def test_files_of_deleted_rasters_go(portal: LivePortal, runtime: Runtime, dem: Path) -> None:
    digest = push(portal, dem).json()["versions"][0]["digest"]
    row = upload_operations.own(RASTER_UPLOADS.table(runtime), ADA, upload_id(ADA, "hills"))
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 0
    upload_operations.delete(RASTER_UPLOADS.table(runtime), row)
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 1
    assert not runtime.blobs.exists(RASTERS, f"{digest}.h5")


def test_files_of_deleted_rasters_stay_while_a_request_names_rasters(
    portal: LivePortal, runtime: Runtime, dem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = push(portal, dem).json()
    row = upload_operations.own(RASTER_UPLOADS.table(runtime), ADA, upload_id(ADA, "hills"))
    name = f"{made['versions'][0]['digest']}.h5"
    document = parse_request(
        {**DOCUMENT, "products": [{"name": "raster:hills", "layers": ["hills"]}]}
    )
    request_operations.submit(runtime, ADA, document)
    upload_operations.delete(RASTER_UPLOADS.table(runtime), row)
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 0
    monkeypatch.setattr(RequestState, "unplanned", property(lambda _: False))
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 0
    assert runtime.blobs.exists(RASTERS, name)
    with pytest.raises(RequestRefusedError, match="there is no raster"):
        raster_operations.described(runtime, ADA, document)


def test_a_signature_in_an_address_is_told_nobody(
    portal: LivePortal, dem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(_url: str, _reach: object, to: Path, _most: int) -> None:
        to.write_bytes(dem.read_bytes())

    monkeypatch.setattr(core, "fetch", fetched)
    address = "https://store.example.org/dem.tif"
    said = {"name": (None, "dem"), "url": (None, f"{address}?sv=1&sig=secret")}
    with portal.client() as client:
        made = client.post("/api/rasters", files=said).json()
    assert made["versions"][0]["came_from"] == address
    assert "secret" not in str(made)
