"""What goes with a download: how to open and cite results, scripts, a QGIS project."""

import io
import json
import os
import runpy
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

from portal.elsewhere.takeaway import SCRIPTS, citation, class_names
from portal.results.result_files import ResultFile
from tasks.bag.model import RequestState
from tasks.request.document import parse_request
from tasks.requests.request_table import RequestRow
from tests.portal.deliveries import LAYER, result
from tests.portal.scripted import LivePortal, raster_bytes
from tests.portal.submissions import DOCUMENT


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
    assert "MCD15A2.005" in whole.read("CITATION.txt").decode()
    assert json.loads(whole.read("summary.json"))["files"] == 4
    assert b"products:" in whole.read("request.yaml")
    whole.extractall(tmp_path)
    assert (tmp_path / "open_results.py").read_text() == script
    values = runpy.run_path(str(tmp_path / "open_results.py"))["read"]()
    assert values.dims == ("time", "y", "x")
    assert list(values.time.dt.day.values) == [1, 9]
    assert values.sel(time=slice("2012-01-05", None)).sizes["time"] == 1
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
    assert [line.partition(",")[0] for line in lines] == ["time", "2012-01-01", "2012-01-09"]
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
    assert [str(day)[:10] for day in read().time.values] == ["2012-01-01"]
    assert float(read().mean()) != float(read("s/x/x_std").mean())


def test_a_script_opens_data_unasked_and_has_the_times_at_which_windows_begin() -> None:
    bits, lai = "MCD15A2.005/FparLai_QC/MCD15A2.005.FparLai_QC", "MCD15A2.005/Lai_1km/Lai"
    paths = [f"{bits}.2012-01-01.tif", f"{lai}.2012-01.tif", f"{lai}.2012-02.tif"]
    paths += ["m/s/s.DJF.tif", "m/s/s.MAM.tif", "o/o/o.2012-01-09T1035.tif", "d/d/d.2012-041.tif"]
    script = SCRIPTS["open_results.py"](ENDED, {path: result(path) for path in paths}, "")
    space: dict[str, object] = {"__file__": "open_results.py", "__name__": "script"}
    exec(script, space)
    files = space["FILES"]
    assert isinstance(files, dict)
    assert space["LAYER"] == lai
    assert [list(one) for one in files.values()] == [
        ["2012-01-01", "2012-02-01"],
        ["2012-02-10"],
        ["DJF", "MAM"],
        ["2012-01-09T10:35"],
        ["2012-01-01"],
    ]
    project = SCRIPTS["results.qgs"](ENDED, {path: result(path) for path in paths}, "")
    assert project.index(lai) < project.index(bits)


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
