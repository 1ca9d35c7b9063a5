"""What goes with downloaded results: how to open and cite them, scripts, a QGIS project."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from shlex import quote as shell_quote
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from modis.collection import versioned
from portal.results.layers import ResultLayer, result_layers
from portal.results.result_files import ResultFile
from reprojection import catalogue
from reprojection.catalogue.layers import LayerKind
from reprojection.resampling import STATISTICS
from reprojection.write.meanings import attribute_table
from reprojection.write.palette import colours_of
from tasks.packages.rasters import is_raster
from tasks.request import windows
from tasks.request.document import Request
from tasks.request.record_products import with_products
from tasks.requests.data_results import is_data
from tasks.requests.gaps import incomplete_lines, join_gaps
from tasks.requests.plan import Gap
from tasks.requests.request_table import RequestRow


def texts(
    row: RequestRow,
    request: Request,
    yaml: str,
    files: Mapping[str, ResultFile],
    gaps: Iterable[Gap],
    portal_url: str,
) -> dict[str, str]:
    """Return the texts that a ZIP of results holds beside them, by name."""
    found = tuple(gaps)
    return {
        "README.txt": _readme(row, files),
        "request.yaml": yaml,
        "summary.json": _summary(row, files, found),
        "CITATION.txt": citation(request),
        "SHA256SUMS": "".join(f"{one.file.sha256}  {path}\n" for path, one in files.items()),
        **{name: make(row, files, portal_url) for name, make in SCRIPTS.items()},
        **class_names(request, files),
    }


def class_names(request: Request, files: Mapping[str, ResultFile]) -> dict[str, str]:
    """Return the names of classes beside each raster of classes, as GDAL, QGIS and terra read."""
    found = dict[str, str]()
    for layer in result_layers(files.values()).values():
        place, _, name = layer.folder.rpartition("/")
        short_name, _, collection = place.rpartition("/")[2].partition(".")
        product = catalogue.product(short_name, collection) if collection else None
        entry = product.layer(name) if product else None
        said = request.resampling
        method = said.get(name) if isinstance(said, Mapping) else said
        if entry is None or entry.kind is not LayerKind.CLASS or method in STATISTICS:
            continue
        table = attribute_table({**entry.classes, **entry.codes}, colours_of(entry.classes))
        found |= {f"{one.path}.aux.xml": table for one in layer.rasters.values() if table}
    return found


def citation(request: Request) -> str:
    """Name what to cite: the products, from the archive they come from, and Swathmill."""
    lines = ["Cite the data products, with the DOI of each collection:", ""]
    for choice in with_products(request).products:
        if is_raster(choice.name):
            lines.append(f"  {choice.name}: a raster of a user of this installation.")
            continue
        known = catalogue.product(choice.name, choice.collection)
        title = f" {known.title}." if known else ""
        doi = known.doi(choice.collection) if known else ""
        search = f"https://search.earthdata.nasa.gov/search?q={quote(choice.name)}"
        where = f"https://doi.org/{doi}" if doi else f"DOI and authors: search {search}"
        lines.append(f"  {versioned(choice.name, choice.collection)}.{title} NASA. {where}")
    lines += [
        "",
        "Cite the software:",
        "",
        f"  Swathmill {version('swathmill')}. The Swathmill developers. Apache-2.0.",
        "",
        "The granules of each raster are in its STAC item, the file NAME.json beside NAME.tif, in",
        "swathmill:granules. The parameters are in swathmill:parameters and in request.yaml.",
        "",
    ]
    return "\n".join(lines)


def _readme(row: RequestRow, files: Mapping[str, ResultFile]) -> str:
    layers = result_layers(files.values()).values()
    lines = [
        row.title or f"Request {row.id}",
        "",
        "Layers",
        *(
            f"  {one.id}: {len(one.rasters)} raster{'s' * (len(one.rasters) != 1)}"
            for one in layers
        ),
        "",
        "Files",
        "  NAME.tif      Cloud Optimized GeoTIFF; QGIS, GDAL, R and Python open it",
        "  NAME.json     STAC item: granules, parameters, what the raster lacks",
        "  NAME.nc       all dates of a layer (CF NetCDF), where the request asked for a cube",
        "  request.yaml  the request; submit it again to get the same results",
        "  summary.json  what the request came to: missing inputs and incomplete results",
        "  CITATION.txt  what to cite",
        "  SHA256SUMS    check the files with: sha256sum --check SHA256SUMS",
        "",
        "Open them",
        "  QGIS          open results.qgs, or drag a .tif onto the map",
        "  Python        open_results.py reads a layer of all dates into xarray",
        "  Jupyter       results.ipynb draws a map and series with open_results.py",
        "  R             open_results.R reads a layer of all dates with terra",
        "  download.sh   fetches the files again, one by one, with curl",
        "",
        "Values",
        "  Pixels are usually stored as integers: value = stored * scale + offset. Both are in the",
        "  file. QGIS and terra apply them; open_results.py too.",
        "",
    ]
    return "\n".join(lines)


def _summary(row: RequestRow, files: Mapping[str, ResultFile], gaps: tuple[Gap, ...]) -> str:
    incomplete = incomplete_lines((path, one.file.completeness) for path, one in files.items())
    said = {
        "request": row.id,
        "title": row.title,
        "state": row.state.value,
        "files": len(files),
        "bytes": sum(one.file.size for one in files.values()),
        "incomplete": list(incomplete),
        "gaps": [{"what": gap.what, "why": gap.reason} for gap in join_gaps(gaps)],
    }
    return json.dumps(said, indent=2, ensure_ascii=False) + "\n"


def _curl(row: RequestRow, files: Mapping[str, ResultFile], portal_url: str) -> str:
    lines = [
        "#!/bin/sh",
        f"# Fetch the results of request {row.id}. Run it again after an interruption: files that",
        "# are there are left, and those that are there in part are completed.",
        "# Put your API token into SWATHMILL_TOKEN; whoever runs the portal can make you one.",
        "set -eu",
        ': "${SWATHMILL_TOKEN:?Set SWATHMILL_TOKEN to your API token.}"',
        "get() {",
        '    [ ! -f "$3" ] || [ "$(wc -c <"$3")" -ne "$1" ] || return 0',
        "    curl --fail --location --silent --show-error --retry 3 --continue-at - \\",
        '        --header "Authorization: Bearer $SWATHMILL_TOKEN" \\',
        '        --create-dirs --output "$3" "$2"',
        "}",
    ]
    base = f"{portal_url.rstrip('/')}/api/requests/{row.id}/results"
    lines += [
        f"get {one.file.size} {shell_quote(f'{base}/{quote(path)}')} {shell_quote(path)}"
        for path, one in files.items()
    ]
    return "\n".join(lines) + "\n"


def _data_first(files: Mapping[str, ResultFile]) -> list[ResultLayer]:
    """Return the layers, data before what says how well pixels were seen."""
    return sorted(result_layers(files.values()).values(), key=lambda one: not is_data(one.folder))


def _layers(files: Mapping[str, ResultFile]) -> dict[str, dict[str, str]]:
    """Return the path of each raster by layer and date, in the order of time."""
    return {layer.id: _dated(layer) for layer in _data_first(files)}


def _dated(layer: ResultLayer) -> dict[str, str]:
    """Return a layer's paths by the time at which each begins; by window, if of all years."""
    names = {day: windows.begin(day) for day in layer.dates}
    begins = {name: _clock(begin) for name, begin in names.items()}
    are_times = all(re.match(r"[1-9]\d{3}", one) for one in begins.values())
    differ = are_times and len(set(begins.values())) == len(begins)
    return {begins[day] if differ else day: layer.rasters[day].path for day in layer.dates}


def _clock(begin: str) -> str:
    """Write "2012-01-09T1035" with a colon, and the first day of a month or year."""
    day, _, clock = begin.partition("T")
    day += "-01" * (3 - len(day.split("-")))
    return f"{day}T{clock[:2]}:{clock[2:]}" if clock else day


def _python(row: RequestRow, files: Mapping[str, ResultFile], portal_url: str) -> str:
    del portal_url  # the script reads the downloaded files
    layers = _layers(files)
    return f'''"""Read a layer of the results of request {row.id}, all dates, into xarray.

Needs: pip install rasterio xarray
"""

from pathlib import Path

import numpy
import rasterio
import xarray

HERE = Path(__file__).parent
FILES = {json.dumps(layers, indent=4, ensure_ascii=False)}  # by layer and date
LAYER = {next(iter(layers), "")!r}


def read(layer=LAYER):
    """Return the first band of all dates along `time`, in units, NaN where there is no value.

    Dates whose file you did not download are left out.
    """
    found = {{time: HERE / path for time, path in FILES[layer].items() if (HERE / path).exists()}}
    planes = []
    for path in found.values():
        with rasterio.open(path) as raster:
            stored = raster.read(1, masked=True).astype("float64")
            values = stored * raster.scales[0] + raster.offsets[0]
            planes.append(values.filled(numpy.nan))
            rows, columns = raster.shape
            at = raster.transform
            x = [at.c + at.a * (column + 0.5) for column in range(columns)]
            y = [at.f + at.e * (row + 0.5) for row in range(rows)]
            about = {{"crs": str(raster.crs), "units": raster.units[0] or ""}}
    coords = {{"time": times(found), "y": y, "x": x}}
    return xarray.DataArray(
        numpy.stack(planes), coords, ("time", "y", "x"), name=Path(layer).name, attrs=about
    )


def times(names):
    """Return the times at which dates or windows begin; names of windows of all years stay text."""
    try:
        return numpy.array(list(names), "datetime64[ns]")
    except ValueError:
        return list(names)


if __name__ == "__main__":
    values = read()
    print(values)
    print(values.mean(("x", "y")).to_series())
'''


def _r(row: RequestRow, files: Mapping[str, ResultFile], portal_url: str) -> str:
    del portal_url
    layers = _layers(files)
    entries = ",\n".join(
        f"  {_r_text(layer)} = c(\n"
        + ",\n".join(
            f"    {_r_text(day or layer)} = {_r_text(path)}" for day, path in paths.items()
        )
        + "\n  )"
        for layer, paths in layers.items()
    )
    return f"""# Read a layer of the results of request {row.id}, all dates, with terra.
# Needs: install.packages("terra"). Run it in the folder that holds it.
library(terra)

layers <- list(  # files by layer and date
{entries}
)
layer <- {_r_text(next(iter(layers), ""))}
files <- layers[[layer]]
files <- files[file.exists(files)]  # those that you downloaded
values <- rast(lapply(unname(files), function(file) rast(file)[[1]]))
names(values) <- names(files)
days <- as.Date(names(files), format = "%Y-%m-%d")
if (!anyNA(days)) time(values) <- days
print(values)
print(global(values, "mean", na.rm = TRUE))
"""


def _r_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _notebook(row: RequestRow, files: Mapping[str, ResultFile], portal_url: str) -> str:
    del portal_url
    layers = [layer.id for layer in _data_first(files)]
    title = row.title or f"Request {row.id}"
    cells: list[tuple[str, str]] = [
        (
            "markdown",
            f"# {title}\n\nNeeds `pip install rasterio xarray matplotlib`, and `open_results.py` "
            "beside this notebook. `CITATION.txt` says what to cite.",
        ),
        (
            "code",
            f"from open_results import read\n\nLAYERS = {layers!r}\n"
            "values = read(LAYERS[0])\nvalues",
        ),
        ("markdown", "The last date as a map."),
        ("code", "values[-1].plot(robust=True);"),
        ("markdown", "The mean of all pixels by date."),
        ("code", 'values.mean(("x", "y")).to_series().plot(style="o-", rot=45);'),
        ("markdown", "The series of one pixel: write its place in the units of the grid."),
        (
            "code",
            "x, y = float(values.x.mean()), float(values.y.mean())\n"
            'series = values.sel(x=x, y=y, method="nearest").to_series()\n'
            'series.to_csv("series.csv")\nseries',
        ),
    ]
    made: list[dict[str, object]] = [
        {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": text.splitlines(keepends=True),
            **({"execution_count": None, "outputs": []} if kind == "code" else {}),
        }
        for number, (kind, text) in enumerate(cells)
    ]
    about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = {"cells": made, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def _qgis(row: RequestRow, files: Mapping[str, ResultFile], portal_url: str) -> str:
    del portal_url
    layers = _data_first(files)
    tree: list[str] = []
    maps: list[str] = []
    for number, layer in enumerate(layers):
        nodes = []
        for day in layer.dates:
            name = f"layer_{len(maps)}"
            path = "./" + layer.rasters[day].path
            shown = number == 0 and day == layer.best
            title = f"{layer.name} {day}".strip()
            nodes.append(
                f'<layer-tree-layer id={quoteattr(name)} name={quoteattr(title)} providerKey="gdal"'
                f' source={quoteattr(path)} checked="{"Qt::Checked" if shown else "Qt::Unchecked"}"'
                ' expanded="0"/>'
            )
            maps.append(
                f'<maplayer type="raster"><id>{escape(name)}</id><datasource>{escape(path)}'
                f"</datasource><layername>{escape(title)}</layername>"
                "<provider>gdal</provider></maplayer>"
            )
        tree.append(
            f'<layer-tree-group name={quoteattr(layer.title)} checked="Qt::Checked" '
            f'expanded="{int(number == 0)}">{"".join(nodes)}</layer-tree-group>'
        )
    return (
        "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n"
        f'<qgis projectname={quoteattr(row.title or row.id)} version="3.22.0">'
        f"<title>{escape(row.title or row.id)}</title>"
        f"<layer-tree-group>{''.join(tree)}</layer-tree-group>"
        '<properties><Paths><Absolute type="bool">false</Absolute></Paths></properties>'
        f"<projectlayers>{''.join(maps)}</projectlayers></qgis>\n"
    )


_Make = Callable[[RequestRow, Mapping[str, ResultFile], str], str]
SCRIPTS: dict[str, _Make] = {
    "download.sh": _curl,
    "open_results.py": _python,
    "open_results.R": _r,
    "results.ipynb": _notebook,
    "results.qgs": _qgis,
}
"""The files that are made for a program, by name: curl, Python, R, Jupyter and QGIS."""
