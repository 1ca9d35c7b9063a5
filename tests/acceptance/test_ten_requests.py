"""Ten requests of ten kinds through a whole stack: runs, files and gaps as counted by hand.

The numbers were written down from the archive's calendar before anything ran. All lie in one cell
of one tile. The archive has temperature of each day from 1 to 10 April 2012 but the 5th, leaf area
each 8 days of three summers, one winter and that April, production of the year 2012, and aerosol
of two overpasses on each of two days, the second of which says that it was by night.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from rasterio import Affine

from reprojection.sample.hdfeos_write import FieldToWrite, GranuleToWrite, write_granule
from tasks.bag.model import Phase
from tasks.request.document import parse_request
from tests.acceptance.running import Running, started, write_package
from tests.options.granules import ORBITS, swaths
from tests.reprojection.catalogue.test_user_raster import geotiff
from tests.reprojection.reading_samples import small_tile

pytestmark = [pytest.mark.slow, pytest.mark.integration]

LACKING = dt.date(2012, 4, 5)
DIFFERENCE = """import json, pathlib, sys
import rasterio
given, made = map(pathlib.Path, sys.argv[1:])
manifest = json.loads((given / "manifest.json").read_text())
bands = {band["product"]: band for band in manifest["bands"]}
with rasterio.open(given / bands["monthly"]["file"]) as month:
    with rasterio.open(given / bands["usual"]["file"]) as usual:
        with rasterio.open(made / "anomaly.tif", "w", **month.profile) as out:
            out.write(month.read(1) - usual.read(1), 1)
"""
TOWERS = "id,latitude,longitude\nA,52.5,4.5\nB,53.5,6.5\n"
MEASURED = "site,date,t\n" + "".join(
    f"{site},2012-04-{day:02d},{280 + day}\n" for site in "AB" for day in range(2, 7)
)


def days(first: str, last: str, step: int = 1) -> list[dt.date]:
    start, end = dt.date.fromisoformat(first), dt.date.fromisoformat(last)
    return [start + dt.timedelta(days=n) for n in range(0, (end - start).days + 1, step)]


def tile(
    product: str, day: dt.date, span: int, layer: str, value: int, fill: int
) -> GranuleToWrite:
    stored = np.full((24, 24), value, np.uint16)
    stored[:2] = fill
    layers = [
        FieldToWrite(
            name=layer,
            values=stored,
            dims=("YDim", "XDim"),
            typed={"valid_range": (1, 65000), "_FillValue": fill},
            attributes={"scale_factor": 0.02, "add_offset": 0.0, "units": "K"},
        )
    ]
    made = small_tile((18, 3), 24, product, 61, f"{day:%Y%j}", "2013001000000", layers)
    start = dt.datetime.combine(day, dt.time(), dt.UTC)
    return replace(made, start=start, end=start + dt.timedelta(days=span, seconds=-1))


def granules() -> Iterator[GranuleToWrite]:
    for day in days("2012-04-01", "2012-04-10"):
        if day != LACKING:
            yield tile("MOD11A1", day, 1, "LST_Day_1km", 14000 + day.day, 0)
    eighths = [
        *(d for y in (2010, 2011, 2012) for d in days(f"{y}-01-01", f"{y}-12-27", 8)),
    ]
    summers = [day for day in eighths if day.month in (6, 7)]
    winter = [day for day in eighths if dt.date(2011, 12, 1) <= day <= dt.date(2012, 2, 29)]
    april = [day for day in eighths if day in (dt.date(2012, 3, 29), dt.date(2012, 4, 6))]
    for day in [*summers, *winter, *april]:
        yield tile("MCD15A2H", day, 8, "Lai_500m", 20 + day.year - 2010 + day.month, 255)
    yield tile("MOD17A3HGF", dt.date(2012, 1, 1), 366, "Npp_500m", 500, 65535)
    for granule in swaths():
        is_second = f".{ORBITS[1][2] // 60:02d}{ORBITS[1][2] % 60:02d}." in granule.local_name
        yield replace(granule, day_night="Night") if is_second else granule


TEMPERATURE = {"name": "MOD11A1", "collection": "6.1", "layers": ["LST_Day_1km"]}
LEAVES = {"name": "MCD15A2H", "collection": "6.1", "layers": ["Lai_500m"]}
PRODUCTION = {"name": "MOD17A3HGF", "collection": "6.1", "layers": ["Npp_500m"]}
AEROSOL = {
    "name": "MYD04_L2",
    "collection": "6.1",
    "layers": ["Optical_Depth_Land_And_Ocean"],
    "overpasses": "all",
}
HILLS = {"name": "raster:hills", "layers": ["hills"], "use": "static"}
SUMMERS = {"start": "2010-06-01", "end": "2012-07-31", "every": {"from": "06-01", "to": "07-31"}}


def of_days(first: int, last: int) -> dict[str, Any]:
    return {"time": {"start": f"2012-04-{first:02d}", "end": f"2012-04-{last:02d}"}}


def mean(window: str, **more: Any) -> dict[str, Any]:
    return {"package": "mean", "group_by": ["cell", window], **more}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A request, and what a person counted: runs, files handed over by their ending, gaps."""

    document: dict[str, Any]
    runs: int
    files: dict[str, int]
    gaps: tuple[str, ...] = ()


CASES = {
    # Three days; each takes that day, the 8 days around it, the year. A mean of each layer.
    "daily x 8-day x yearly": Case(
        document={
            "products": [
                TEMPERATURE,
                {**LEAVES, "use": "covering"},
                {**PRODUCTION, "use": "covering"},
            ],
            **of_days(2, 4),
            "reduction": mean("date", requires="all"),
            "deliver": "results",
        },
        runs=3,
        files={"tif": 3 * 3},
    ),
    # June and July of three years: two windows, not six.
    "climatology of month over 3 years": Case(
        document={
            "products": [LEAVES],
            "time": SUMMERS,
            "reduction": mean("month-of-year"),
            "deliver": "results",
        },
        runs=2,
        files={"tif": 2},
    ),
    # Six months, their two usual months, six differences; only what no step takes is handed over.
    "anomaly": Case(
        document={
            "products": [LEAVES],
            "time": SUMMERS,
            "reduction": [
                mean("month", name="monthly"),
                mean("month-of-year", name="usual"),
                {
                    "package": "difference",
                    "name": "unusual",
                    "group_by": ["cell", "month"],
                    "takes": ["monthly", "usual"],
                    "requires": "all",
                    "rehearse": False,
                },
            ],
            "deliver": "results",
        },
        runs=6 + 2 + 6,
        files={"tif": 6},
    ),
    # December to February are one window.
    "season across New Year": Case(
        document={
            "products": [LEAVES],
            "time": {"start": "2011-12-01", "end": "2012-02-29"},
            "reduction": mean("season"),
            "deliver": "results",
        },
        runs=1,
        files={"tif": 1},
    ),
    # A table twice, and a picture of the layer.
    "sites alone": Case(
        document={
            "products": [TEMPERATURE],
            "region": {"sites": TOWERS},
            **of_days(2, 6),
            "grid": None,
        },
        runs=0,
        files={"csv": 1, "parquet": 1, "png": 1},
        gaps=("MOD11A1.061 2012-04-05",),
    ),
    # Also the pairs twice, the statistics, and a scatter plot.
    "sites with a tower table": Case(
        document={
            "products": [TEMPERATURE],
            "region": {"sites": TOWERS},
            **of_days(2, 6),
            "grid": None,
            "measurements": {"table": MEASURED, "compare": {"LST_Day_1km": "t"}},
        },
        runs=0,
        files={"csv": 1 + 1 + 1, "parquet": 1 + 1, "png": 1 + 1},
        gaps=("MOD11A1.061 2012-04-05",),
    ),
    # The 5th lacks temperature: not run, and named; the 4th and 6th have two layers each.
    "a window that lacks a product": Case(
        document={
            "products": [TEMPERATURE, {**LEAVES, "use": "covering"}],
            **of_days(4, 6),
            "reduction": mean("date", requires="all"),
            "deliver": "results",
        },
        runs=2,
        files={"tif": 2 * 2},
        gaps=("MOD11A1.061 2012-04-05", "mean 2012-04-05"),
    ),
    # One overpass by day and one by night on each of two days: four rasters of the layer, and of
    # each day a mean of each half.
    "overpasses by day and night": Case(
        document={
            "products": [{**AEROSOL, "day_night": "day"}, {**AEROSOL, "day_night": "night"}],
            "region": {"bbox": [-6.0, 51.0, -1.0, 56.0]},  # both orbits see it
            "time": {"start": "2012-03-31", "end": "2012-04-01"},
            "reduction": mean("date"),
        },
        runs=2,
        files={"tif": 2 * 2 + 2 * 2},
    ),
    # Nine days in one month, and no raster of a day.
    "deliver: results": Case(
        document={
            "products": [TEMPERATURE],
            **of_days(1, 10),
            "reduction": mean("month"),
            "deliver": "results",
        },
        runs=1,
        files={"tif": 1},
        gaps=("MOD11A1.061 2012-04-05",),
    ),
    # The raster of no date is in each of two days, beside the temperature.
    "a static raster": Case(
        document={
            "products": [TEMPERATURE, HILLS],
            **of_days(2, 3),
            "reduction": mean("date", requires="all"),
            "deliver": "results",
        },
        runs=2,
        files={"tif": 2 * 2},
    ),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("ten")
    archive = folder / "archive"
    archive.mkdir()
    for granule in granules():
        write_granule(archive / granule.local_name, granule)
    write_package(folder / "packages", "difference", DIFFERENCE)
    manifest = folder / "packages" / "difference" / "package.yaml"
    manifest.write_text(manifest.read_text().replace("'{layer}_difference.tif'", "anomaly.tif"))
    values = np.arange(10_000, dtype=np.int16).reshape(100, 100)
    where = Affine(0.05, 0.0, 3.0, 0.0, -0.05, 55.0)
    hills = geotiff(folder / "hills.tif", values, crs="EPSG:4326", transform=where)
    with started(folder, archive, {}) as running:
        running.client.push_raster([hills], {"name": "hills", "layers": "hills"})
        yield running


@pytest.fixture(scope="module")
def submitted(stack: Running) -> dict[str, str]:
    """The requests by name: all at once, as ten people would."""
    base = {
        "region": {"bbox": [4.0, 52.0, 7.0, 54.0]},
        "grid": {"crs": "EPSG:4326", "resolution": 0.1},
    }
    found = {}
    for name, case in CASES.items():
        document = {"title": name, **base, **case.document}
        plain = {field: value for field, value in document.items() if value is not None}
        found[name] = stack.client.submit(parse_request(plain)).id
    return found


@pytest.mark.proof
@pytest.mark.parametrize("name", CASES)
def test_runs_files_and_gaps_are_those_of_a_person(
    stack: Running, submitted: dict[str, str], name: str
) -> None:
    case = CASES[name]
    status = stack.until_ended(submitted[name])
    assert not status.failures
    phase = status.phases.get(Phase.REDUCTION)
    assert (phase.done if phase else 0, phase.total if phase else 0) == (case.runs, case.runs)
    endings = [file.name.rpartition(".")[2] for file in stack.client.results(submitted[name])]
    counted = {ending: endings.count(ending) for ending in endings if ending != "json"}
    assert counted == case.files
    assert tuple(gap.what for gap in status.gaps) == case.gaps
    assert status.state.value == ("complete with gaps" if case.gaps else "complete")
