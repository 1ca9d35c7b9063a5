"""The map of results: values, series, legends, statistics."""

import re
from pathlib import Path

import numpy as np
import pytest
from rasterio.io import MemoryFile

from portal.results import layer_legends, map_page, pictures
from portal.results.state import MOST_EXPLAINING, Results
from reprojection.grid.grids import Grid
from reprojection.read.description import Band, Provenance
from reprojection.read.lineage import Kind
from reprojection.read.raster import Pixels, Raster
from reprojection.write.write import write_cog
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tests.portal.deliveries import LAI, LAYER
from tests.portal.scripted import (
    FROM_SCRIPT,
    LivePortal,
    part,
    put_result,
    raster_bytes,
    set_row,
    take_all,
)
from tests.portal.submissions import submitted


def test_the_map_reads_values_series_legend_and_statistics(portal: LivePortal, mapped: str) -> None:
    at = {"layer": LAYER, "date": "2012-01-09"}
    place = {"lon": "-1.02", "lat": "55.02"}
    with portal.browser() as client, portal.browser("bob@example.org") as other:
        base = f"/requests/{mapped}/map"
        page = client.get(base, params=at)
        info = client.get(f"{base}/layer", params=at).json()
        legend = part(client, f"{base}/legend", at)
        statistics = part(client, f"{base}/statistics", at)
        point = part(client, f"{base}/point", {**at, **place})
        outside = part(client, f"{base}/point", {**at, "lon": "100", "lat": "0"})
        table = client.get(f"{base}/series.csv", params={"layer": LAYER, **place}).text
        assert (
            client.get(f"{base}/legend", params={"layer": "no"}, headers=FROM_SCRIPT).status_code
            == 404
        )
        assert other.get(base).status_code == 404
    assert "worker-src blob:" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert "+proj=longlat" in info["projection"]
    assert list(info["files"]) == ["2012-01-01", "2012-01-09"]
    assert 0 <= info["low"] < info["high"] <= 100, "the ends are stored values"
    assert "m² m⁻²" in legend
    assert "median" in statistics
    lines = table.splitlines()
    assert lines[0] == "date,lon,lat,MCD15A2.005.Lai_1km"
    assert len(lines) == 3
    value = lines[1].rpartition(",")[2]
    assert 0 < float(value) < 10
    assert value in point
    assert "2 of 2 dates have a value" in point
    assert "outside the results" in outside
    for said in (legend, statistics, point):  # a long name breaks between its parts
        assert "MCD15A2.<wbr>005 Lai_<wbr>1km" in said


def _statistics(portal: LivePortal, runtime: Runtime, data: bytes) -> str:
    """Return the part of the page with the statistics of a raster."""
    name = submitted(runtime)
    put_result(runtime, name, LAI, "MCD15A2.005.Lai_1km.2012-01-01.tif", data)
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=1, delivered=1, ended=1e9)
    with portal.client() as client:
        at = {"layer": LAYER, "date": "2012-01-01"}
        return part(client, f"/requests/{name}/map/statistics", at)


def test_statistics_are_of_all_pixels_not_of_the_picture(
    portal: LivePortal, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "WHOLE_PIXELS", 800 * 600 - 1)
    data = raster_bytes(tmp_path, width=800, height=600)
    said = _statistics(portal, runtime, data)
    with MemoryFile(data) as file, file.open() as dataset:
        stored = dataset.read(1, masked=True).compressed()
        pixels = dataset.width * dataset.height
    values = 0.1 * stored.astype(np.float64)
    for what, value in (
        ("mean", values.mean()),
        ("standard deviation", values.std()),
        ("median", np.median(values)),
        ("greatest", values.max()),
    ):
        assert f"<dt>{what}</dt><dd>{value:.5g}</dd>" in said
    assert f"{100 * values.size / pixels:.1f}% of pixels have a value" in said
    assert said.count("reduced") == said.count("The histogram is drawn from a reduced copy") == 1


def test_every_class_is_counted_also_one_that_no_picture_shows(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    """One pixel of 2,000 x 1,200 is in no picture of 512."""
    plane = np.ones((1200, 2000), np.uint8)
    plane[:, :400] = 255
    plane[7, 1501] = 9
    said = _statistics(portal, runtime, _written(tmp_path, plane, "class"))
    assert "80.0% of pixels have a value" in said
    assert "<span>9 rare</span>" in said
    assert "reduced" not in said


def test_numbers_are_told_where_the_picture_has_no_value(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    plane = np.full((1200, 2000), 255, np.uint8)
    said = _statistics(portal, runtime, _written(tmp_path, plane, "continuous"))
    assert "0.0% of pixels have a value" in said
    assert "reduced" not in said  # it is of all pixels that none has a value


def _written(folder: Path, plane: Pixels, kind: Kind) -> bytes:
    height, width = plane.shape
    raster = Raster(
        data=plane[np.newaxis],
        grid=Grid(
            crs="EPSG:4326", transform=(0.01, 0, -8, 0, -0.01, 58), width=width, height=height
        ),
        nodata=255,
        kind=kind,
        bands=(Band(name="v"),),
        codes={1: "common", 9: "rare"} if kind == "class" else {},
        provenance=Provenance(product="P", collection="1", layer="L", granules=()),
        scale=1.0,
        offset=0.0,
        units="",
    )
    write_cog(raster, folder / "a.tif")
    return (folder / "a.tif").read_bytes()


def test_each_band_has_a_legend_and_statistics_of_its_own(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    name = submitted(runtime)
    data = raster_bytes(tmp_path, counted=True)
    put_result(runtime, name, LAI, "MCD15A2.005.Lai_1km.2012-01-01.tif", data)
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=1, delivered=1, ended=1e9)
    with portal.client() as client:
        base, of_counts = f"/requests/{name}/map", {"layer": LAYER, "band": "1"}
        first = client.get(f"{base}/layer", params={"layer": LAYER}).json()
        second = client.get(f"{base}/layer", params=of_counts).json()
        assert first["bands"] == second["bands"] == ["Lai_1km", "count"]
        assert (first["continuous"], first["band"]) == (True, 0)
        assert (second["continuous"], second["band"]) == (False, 1)
        assert [value for value, _ in second["classes"]] == [0, 1]
        legend = part(client, f"{base}/legend", of_counts)
        assert "granules with a value" in legend
        assert "m² m⁻²" not in legend
        said = part(client, f"{base}/statistics", {**of_counts, "date": "2012-01-01"})
        shares = re.findall(r"<b>([\d.]+)%</b>", said)
        assert sum(map(float, shares)) == 100.0
        at = {"layer": LAYER, "date": "2012-01-01", "lon": "-7.9", "lat": "58.4"}
        assert ">sample</li>" in part(client, f"{base}/point", at)
        said = part(client, f"{base}/explained", at)
        assert "made of few granules" in said  # this one is made of none
    with portal.client("eve@example.org") as client:
        assert client.get(f"{base}/explained", params=at, headers=FROM_SCRIPT).status_code == 404
        assert len(shares) == 2
        assert client.get(f"{base}/layer", params={"layer": LAYER, "band": 2}).status_code == 404


def test_few_pixels_are_explained_at_once(portal: LivePortal, mapped: str) -> None:
    at = {"layer": LAYER, "date": "2012-01-01", "lon": "-7.9", "lat": "58.4"}
    turns = portal.inner.state(Results).explaining
    take_all(turns, MOST_EXPLAINING)
    with portal.client() as client:
        address = f"/requests/{mapped}/map/explained"
        assert "Other pixels are being explained." in part(client, address, at)
        turns.release()
        for _ in range(2):  # a turn is given back
            assert "made of few granules" in part(client, address, at)


def test_a_series_that_is_cut_says_so_and_its_file_has_all(
    portal: LivePortal,
    runtime: Runtime,
    mapped: str,
    raster: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_result(runtime, mapped, LAI, "MCD15A2.005.Lai_1km.2012-01-17.tif", raster)
    at = {"layer": LAYER, "date": "2012-01-01", "lon": "-1.02", "lat": "55.02"}
    base = f"/requests/{mapped}/map"
    with portal.client() as client:
        monkeypatch.setattr(map_page, "_MOST_DATES", 3)
        assert "3 of 3 dates have a value here" in part(client, f"{base}/point", at)
        monkeypatch.setattr(map_page, "_MOST_DATES", 2)
        said = part(client, f"{base}/point", at)
        assert "2 of 2 dates have a value here, of the first 2 dates; the CSV has all" in said
        assert len(client.get(f"{base}/series.csv", params=at).text.splitlines()) == 4


def test_a_legend_has_the_most_frequent_values_in_order(
    portal: LivePortal, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = np.repeat(np.array([9, 1, 5], np.uint8), (30, 10, 20)).reshape(6, 10)
    name = submitted(runtime)
    data = _written(tmp_path, plane, "class")
    put_result(runtime, name, LAI, "MCD15A2.005.Lai_1km.2012-01-01.tif", data)
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=1, delivered=1, ended=1e9)
    monkeypatch.setattr(layer_legends, "_MOST_VALUES", 2)
    with portal.client() as client:
        info = client.get(f"/requests/{name}/map/layer", params={"layer": LAYER}).json()
    assert [value for value, _ in info["classes"]] == [5, 9]


def test_a_legend_follows_the_colours_and_the_range_that_are_asked_for(
    portal: LivePortal, mapped: str
) -> None:
    base, at = f"/requests/{mapped}/map", {"layer": LAYER}
    with portal.client() as client:
        own = part(client, f"{base}/legend", at)
        said = part(client, f"{base}/legend", {**at, "rescale": "0.5,2.25", "colormap": "heat"})
        page = client.get(base, params={**at, "rescale": "0.5,2.25", "colormap": "heat"}).text
        asked = {**at, "rescale": "2,0.5"}
        refused = [client.get(address, params=asked) for address in (base, f"{base}/legend")]
        unknown = client.get(base, params={**at, "colormap": "loud"})
    assert "from low to high values: dark blue, green, yellow" in own
    assert "Your range" not in own
    assert "<span>0.5</span>" in said
    assert "<span>2.25 m² m⁻²</span>" in said
    assert "from low to high values: black, red, yellow" in said
    assert re.search(r"Your range; the layer's own is [\d.]+ to [\d.]+", said)
    assert re.search(r'id="low"[^>]* value="0.5"', page)
    assert re.search(r'<option value="heat"[^>]* selected', page)
    for answer in refused:
        assert answer.status_code == 400
        assert "the lower one first" in answer.text
    assert unknown.status_code == 400


def test_the_map_opens_on_the_comparison_that_its_address_names(
    portal: LivePortal, mapped: str
) -> None:
    asked = {"layer": LAYER, "date": "2012-01-01", "other": LAYER, "other_date": "2012-01-10"}
    with portal.client() as client:
        page = client.get(f"/requests/{mapped}/map", params=asked).text
        plain = client.get(f"/requests/{mapped}/map", params={**asked, "other": "no"}).text
    other = page[page.index('id="other"') :]
    assert re.search(rf'<option value="{LAYER}" selected', other)
    assert ">2012-01-09</output>" in other
    assert " selected" not in plain[plain.index('id="other"') : plain.index('id="other-when"')]


def test_names_of_places_lie_within_the_box(portal: LivePortal, mapped: str) -> None:
    box = {"west": "-8", "south": "50", "east": "2", "north": "58"}
    with portal.client() as client, portal.client("eve@example.org") as other:
        address = f"/requests/{mapped}/map/names"
        found = client.get(address, params={"layer": LAYER, **box}).json()
        assert other.get(address, params={"layer": LAYER, **box}).status_code == 404
    # The largest city has no larger one beside it, so that it goes before the largest country.
    assert [(one["name"], one["city"]) for one in found[:2]] == [
        ("London", True),
        ("United Kingdom", False),
    ]
    assert {"Glasgow", "Cornwall"} <= {one["name"] for one in found}
    sizes = [one["size"] for one in found]
    assert sizes == sorted(sizes, reverse=True)
    for one in found:
        lon, lat = one["at"]
        assert -8 <= lon <= 2
        assert 50 <= lat <= 58


def test_a_request_without_rasters_has_no_map(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        assert client.get(f"/requests/{name}/map").status_code == 404
