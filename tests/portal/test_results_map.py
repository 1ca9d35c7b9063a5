"""The map of results, the matrix of dates and layers, and what goes with a download."""

import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import numpy as np
import pytest
from rasterio.io import MemoryFile

from portal.core.layers import Arranged, matrix, result_layers, selected
from portal.core.results import ResultFile
from portal.core.takeaway import SCRIPTS, citation, class_names
from portal.web.map_page import Series
from reprojection.grid.grids import Grid
from reprojection.read.completeness import WHOLE, Completeness, Missing
from reprojection.read.raster import Band, Kind, Pixels, Provenance, Raster
from reprojection.write.write import write_cog
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile, Phase, RequestState, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.request.document import parse_request
from tasks.requests.plan import Gap
from tasks.requests.request_table import RequestRow
from tests.portal.scripted import LivePortal, put_result, raster_bytes, set_row
from tests.portal.submissions import DOCUMENT, submitted

LAI = "MCD15A2.005/Lai_1km"
LAYER = f"{LAI}/MCD15A2.005.Lai_1km"


def result(path: str, completeness: Completeness = WHOLE) -> ResultFile:
    raster = path.endswith(".tif")
    file = ArtifactFile(
        name=path.rpartition("/")[2],
        blob="b",
        size=1,
        sha256="0" * 64,
        completeness=completeness,
        valid_share=0.5 if raster else None,
    )
    return ResultFile(path=path, file=file, key="k")


def test_a_matrix_says_what_is_complete_partial_or_missing_and_why() -> None:
    lacks = Completeness(share=0.5, missing=(Missing(what="h17v03", why="unreadable"),))
    files = [
        result(f"{LAYER}.2012-01-01.tif"),
        result(f"{LAYER}.2012-01-09.tif", lacks),
        result("mean/Lai/mean.2012-01.tif"),
    ]
    gap = Gap(what="MCD15A2.005 2012-01-17", reason="the archive has no granule of this date")
    found = matrix(list(result_layers(files).values()), [gap], (), 1, 50)
    rows = dict(found.rows)
    assert [layer.title for layer in found.columns] == ["MCD15A2.005 Lai_1km", "mean Lai mean"]
    assert [cell.state for cell in rows["2012-01-01"]] == ["complete", ""]
    assert [cell.state for cell in rows["2012-01"]] == ["", "complete"]
    assert (rows["2012-01-09"][0].state, rows["2012-01-09"][0].text) == ("partial", "50%")
    assert rows["2012-01-17"][0].state == "missing"
    assert found.notes[rows["2012-01-09"][0].note - 1] == "h17v03: unreadable"
    assert found.notes[rows["2012-01-17"][0].note - 1] == gap.reason


def test_stac_items_of_rasters_are_left_out_and_other_files_are_not() -> None:
    paths = ("L/a.tif", "L/a.json", "L/table.json", "L/a.nc")
    listed = Arranged.of({path: result(path) for path in paths}).listed
    assert list(listed) == ["L/a.tif", "L/table.json", "L/a.nc"]


def test_results_are_selected_by_layer_and_date() -> None:
    paths = [f"{LAYER}.2012-01-{day}.tif" for day in ("01", "09", "17")]
    paths += ["other/X/other.2012-01-09.tif", f"{LAYER}.nc"]
    files = {path: result(path) for path in paths}
    assert list(selected(files, [LAYER], "2012-01-02", "2012-01-09")) == [paths[1], paths[4]]
    assert list(selected(files, [], "", "")) == paths


def test_overpasses_are_dates_of_a_layer_and_belong_to_their_day() -> None:
    whens = ("2012-01-08", "2012-01-09T0430", "2012-01-09T1310", "2012-01-10T0005")
    files = {path: result(path) for path in (f"{LAYER}.{when}.tif" for when in whens)}
    (layer,) = result_layers(files.values()).values()
    assert layer.dates == whens
    assert layer.nearest("2012-01-09T0500") == "2012-01-09T0430"
    assert [*selected(files, [], "2012-01-09", "2012-01-09")] == [*files][1:3]
    assert [*selected(files, [], "2012-01", "2012-01")] == [*files]
    failed = Interest(
        request="r",
        key="k",
        phase=Phase.AGGREGATION,
        name=f"{LAYER.rpartition('/')[2]}.2012-01-10T0140",
        output=LAYER.rpartition("/")[0],
        outcome=TaskOutcome.FAILED,
    )
    rows = dict(matrix([layer], [], [failed], 1, 50).rows)
    assert [*rows] == [*whens, "2012-01-10T0140"]
    assert rows["2012-01-10T0140"][0].state == "failed"


@pytest.mark.parametrize(
    ("category", "said"),
    [
        (Category.UNKNOWN, "unknown: a.hdf: cut off"),
        (Category.UPSTREAM_FAILED, "a.hdf: cut off"),  # the message says what failed upstream
    ],
)
def test_a_failed_cell_says_its_cause_once(category: Category, said: str) -> None:
    (layer,) = result_layers([result(f"{LAYER}.2012-01-08.tif")]).values()
    failed = Interest(
        request="r",
        key="k",
        phase=Phase.AGGREGATION,
        name=f"{LAYER.rpartition('/')[2]}.2012-01-09",
        output=LAYER.rpartition("/")[0],
        outcome=TaskOutcome.FAILED,
        category=category,
        message="a.hdf: cut off",
    )
    assert matrix([layer], [], [failed], 1, 50).notes == (said,)


@pytest.mark.parametrize(
    ("whens", "taken"),
    [
        (("2012-001", "2012-097", "2012-105"), 1),  # 8 days, from 6 April
        (("2012-DJF", "2012-MAM", "2012-JJA", "2012-SON"), 1),  # from March
        (("DJF", "MAM", "JJA", "SON"), 4),  # of all years
        (("day-001", "day-097", "day-361"), 3),
        (("month-01", "month-10"), 2),
        (("2012-01-01_2012-04-30",), 0),
        (("2012-03", "2012-04"), 2),
    ],
)
def test_windows_are_dates_of_a_layer_in_the_order_of_time(
    whens: tuple[str, ...], taken: int
) -> None:
    files = {path: result(path) for path in (f"{LAYER}.{when}.tif" for when in reversed(whens))}
    (layer,) = result_layers(files.values()).values()
    assert layer.dates == whens
    assert [when for when, _ in matrix([layer], [], [], 1, 50).rows] == [*whens]
    assert layer.nearest(whens[-1]) == whens[-1]
    assert len(selected(files, [], "2012-03-01", "2012-04-10")) == taken
    series = Series(dates=whens, values=tuple(float(n) for n, _ in enumerate(whens)))
    places = [x for _, _, x, _ in series.points(100, 50)]
    assert places == sorted(places)


def test_a_series_places_overpasses_by_their_minute() -> None:
    dates = ("2012-01-09T0000", "2012-01-09T1200", "2012-01-10")
    points = Series(dates=dates, values=(1.0, 2.0, 3.0)).points(100, 10)
    assert [x for _, _, x, _ in points] == [0.0, 50.0, 100.0]


@pytest.fixture
def mapped(runtime: Runtime, raster: bytes) -> str:
    name = submitted(runtime)
    for day in ("2012-01-01", "2012-01-09"):
        put_result(runtime, name, LAI, f"MCD15A2.005.Lai_1km.{day}.tif", raster)
        put_result(runtime, name, LAI, f"MCD15A2.005.Lai_1km.{day}.json", b"{}")
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=2, delivered=2, ended=1e9)
    return name


def test_the_map_reads_values_series_legend_and_statistics(portal: LivePortal, mapped: str) -> None:
    at = {"layer": LAYER, "date": "2012-01-09"}
    place = {"lon": "-1.02", "lat": "55.02"}
    with portal.browser() as client, portal.browser("bob@example.org") as other:
        base = f"/requests/{mapped}/map"
        page = client.get(base, params=at)
        info = client.get(f"{base}/layer", params=at).json()
        legend = client.get(f"{base}/legend", params=at).text
        statistics = client.get(f"{base}/statistics", params=at).text
        point = client.get(f"{base}/point", params={**at, **place}).text
        outside = client.get(f"{base}/point", params={**at, "lon": "100", "lat": "0"}).text
        table = client.get(f"{base}/series.csv", params={"layer": LAYER, **place}).text
        assert client.get(f"{base}/legend", params={"layer": "no"}).status_code == 404
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


def _statistics(portal: LivePortal, runtime: Runtime, data: bytes) -> str:
    """Return the part of the page with the statistics of a raster."""
    name = submitted(runtime)
    put_result(runtime, name, LAI, "MCD15A2.005.Lai_1km.2012-01-01.tif", data)
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=1, delivered=1, ended=1e9)
    with portal.client() as client:
        at = {"layer": LAYER, "date": "2012-01-01"}
        return client.get(f"/requests/{name}/map/statistics", params=at).text


def test_statistics_are_of_all_pixels_not_of_the_picture(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    data = raster_bytes(tmp_path, width=1300, height=900)
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
        legend = client.get(f"{base}/legend", params=of_counts).text
        assert "granules with a value" in legend
        assert "m² m⁻²" not in legend
        said = client.get(f"{base}/statistics", params={**of_counts, "date": "2012-01-01"}).text
        shares = re.findall(r"<b>([\d.]+)%</b>", said)
        assert sum(map(float, shares)) == 100.0
        at = {"layer": LAYER, "date": "2012-01-01", "lon": "-7.9", "lat": "58.4"}
        assert ">sample</li>" in client.get(f"{base}/point", params=at).text
        said = client.get(f"{base}/explained", params=at).text
        assert "made of few granules" in said  # this one is made of none
    with portal.client("eve@example.org") as client:
        assert client.get(f"{base}/explained", params=at).status_code == 404
        assert len(shares) == 2
        assert client.get(f"{base}/layer", params={"layer": LAYER, "band": 2}).status_code == 404


def test_a_request_without_rasters_has_no_map(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        assert client.get(f"/requests/{name}/map").status_code == 404


def test_a_zip_says_what_it_holds_how_to_open_and_what_to_cite(
    portal: LivePortal, mapped: str, tmp_path: Path
) -> None:
    with portal.client() as client:
        address = f"/api/requests/{mapped}/archive.zip"
        whole = zipfile.ZipFile(io.BytesIO(client.get(address).content))
        one = {"layer": LAYER, "start": "2012-01-09", "end": "2012-01-09"}
        part = zipfile.ZipFile(io.BytesIO(client.get(address, params=one).content))
        none = client.get(address, params={"start": "2030-01-01"})
        script = client.get(f"/api/requests/{mapped}/scripts/open_results.py").text
        assert client.get(f"/api/requests/{mapped}/scripts/no.py").status_code == 404
    assert none.status_code == 404
    assert [name for name in part.namelist() if name.endswith(".tif")] == [
        f"{LAYER}.2012-01-09.tif"
    ]
    assert {"README.txt", "request.yaml", "CITATION.txt"} <= set(whole.namelist())
    assert "MCD15A2 collection 5" in whole.read("CITATION.txt").decode()
    assert json.loads(whole.read("summary.json"))["files"] == 4
    assert b"products:" in whole.read("request.yaml")
    whole.extractall(tmp_path)
    assert (tmp_path / "open_results.py").read_text() == script
    values = runpy.run_path(str(tmp_path / "open_results.py"))["read"]()
    assert values.dims == ("date", "y", "x")
    assert list(values.date.values) == ["2012-01-01", "2012-01-09"]
    assert values.attrs == {"crs": "EPSG:4326", "units": "m2 m-2"}
    assert 0 < float(values.mean()) < 10
    assert bool(values.isnull().any())
    book = json.loads(whole.read("results.ipynb"))
    assert (book["nbformat"], book["metadata"]["kernelspec"]["name"]) == (4, "python3")
    code = ["".join(one["source"]) for one in book["cells"] if one["cell_type"] == "code"]
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    lines = (tmp_path / "series.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["date", "2012-01-01", "2012-01-09"]
    project = ET.fromstring(whole.read("results.qgs").decode().split("\n", 1)[1])
    sources = [node.text for node in project.iter("datasource")]
    assert sources == [f"./{LAYER}.2012-01-{day}.tif" for day in ("01", "09")]
    shell = whole.read("download.sh").decode()
    assert subprocess.run(["sh", "-n"], input=shell, text=True, check=False).returncode == 0
    assert shell.count(f"/api/requests/{mapped}/results/") == 4
    in_part = tmp_path / f"{LAYER}.2012-01-09.tif"
    in_part.write_bytes(in_part.read_bytes()[:-1])
    assert fetched_by_script(tmp_path) == [f"{LAYER}.2012-01-09.tif"]


def fetched_by_script(folder: Path) -> list[str]:
    """Run a ZIP's download.sh; return the files that it has curl fetch."""
    programs = folder / "programs"
    programs.mkdir()
    curl = programs / "curl"
    curl.write_text('#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\necho "$2"\n')
    curl.chmod(0o755)
    ran = subprocess.run(
        ["sh", "download.sh"],
        cwd=folder,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SWATHMILL_TOKEN": "t"},
        check=True,
        capture_output=True,
        text=True,
    )
    return ran.stdout.split()


@pytest.fixture
def alike(tmp_path: Path) -> dict[str, ResultFile]:
    """Two dates of layer x, one of them downloaded, and a layer whose name begins with x."""
    paths = ("s/x/x.2012-01-01.tif", "s/x/x.2012-01-09.tif", "s/x/x_std.2012-01-01.tif")
    (tmp_path / "s" / "x").mkdir(parents=True)
    for seed, path in enumerate(paths):
        if seed != 1:
            (tmp_path / path).write_bytes(raster_bytes(tmp_path, seed))
    return {path: result(path) for path in paths}


ENDED = RequestRow(id="r1", owner="o", state=RequestState.COMPLETE, submitted=0.0)


def test_the_python_script_reads_the_downloaded_files_of_its_layer_alone(
    alike: dict[str, ResultFile], tmp_path: Path
) -> None:
    script = tmp_path / "open_results.py"
    script.write_text(SCRIPTS[script.name](ENDED, alike, ""))
    read = runpy.run_path(str(script))["read"]
    assert list(read().date.values) == ["2012-01-01"]
    assert float(read().mean()) != float(read("s/x/x_std").mean())


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="Rscript is not installed")
def test_the_r_script_reads_the_downloaded_files_of_its_layer_alone(
    alike: dict[str, ResultFile], tmp_path: Path
) -> None:
    code = SCRIPTS["open_results.R"](ENDED, alike, "").partition("values <-")[0]
    code = code.replace("library(terra)", "") + "cat(names(files), files)\n"
    ran = subprocess.run(
        ["Rscript", "-"], cwd=tmp_path, input=code, text=True, capture_output=True, check=True
    )
    assert ran.stdout.split() == ["2012-01-01", "s/x/x.2012-01-01.tif"]


def test_a_zip_names_classes_beside_each_raster_of_classes() -> None:
    request = parse_request(
        {
            **DOCUMENT,
            "products": [
                {"name": "MCD12Q1", "collection": "61", "layers": ["LC_Type1"]},
                {"name": "MCD15A2H", "collection": "61", "layers": ["Lai_500m"]},
            ],
        }
    )
    paths = ("MCD12Q1.061/LC_Type1/MCD12Q1.061.LC_Type1.2012-01-01.tif", f"{LAYER}.2012-01-01.tif")
    files = {path: result(path) for path in paths}
    found = class_names(request, files)
    assert list(found) == [f"{paths[0]}.aux.xml"]
    rows = ET.fromstring(found[f"{paths[0]}.aux.xml"]).iter("Row")
    names = {int(row[0].text or ""): row[1].text for row in rows}
    assert names[10] == "grasslands"
    assert "https://doi.org/10.5067/MODIS/MCD12Q1.061" in citation(request)
