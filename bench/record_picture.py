"""Draw the guide's example of a record and a bridge, from generated granules.

`python -m bench.record_picture docs/pictures` writes granules of the vegetation index of Terra,
Aqua and Suomi NPP over the turn of 2025/26, asks for the record and for the bridge with
`swathmill run`, and draws both series. The values are made up: a season, with 0.05 more as Suomi
NPP sees it. Matplotlib is needed.
"""

import argparse
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import matplotlib
import numpy as np
import rasterio
from matplotlib import pyplot

from tests.generated.record_granules import INDEX, every, write

REQUEST = """
products:
  - {{record: ndvi-16day, layers: [NDVI], overlap: {overlap}}}
region: {{bbox: [9.0, 44.0, 11.0, 46.0]}}
time: {{start: 2025-01-01, end: 2026-12-31}}
grid: {{crs: "EPSG:4326", resolution: 0.1}}
qa: good
"""
BRIDGE = """
reduction:
  package: bridge
  group_by: [cell, all]
  parameters: {method: offset, reference: VNP13A2}
deliver: results
"""
MORE = {"MOD13A2": -0.01, "MYD13A2": 0.0, "VNP13A2": 0.05}
COLOURS = {"Terra MODIS": "C1", "Aqua MODIS": "C0", "Suomi NPP VIIRS": "C2"}


def season(day: date, product: str) -> float:
    """Return what a sensor sees on a day: made up, the same each time."""
    number = day.timetuple().tm_yday
    weather = 0.02 * math.sin(1.7 * day.toordinal())
    return round(0.45 - 0.25 * math.cos(2 * math.pi * number / 365.25) + weather + MORE[product], 4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the granules, run both requests, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    given = parser.parse_args(arguments)
    matplotlib.use("Agg")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _granules(folder / "archive")
        _run(folder, "record", REQUEST.format(overlap="prefer"))
        _run(folder, "bridge", REQUEST.format(overlap="all") + BRIDGE)
        _draw(folder, given.out / "from-modis-to-viirs.png")
        _draw_fit(folder, given.out / "bridge.png")
    return 0


def _granules(archive: Path) -> None:
    of = {
        "MOD13A2": ("61", every(16, 2025, 1, 353)),
        "MYD13A2": ("61", [*every(16, 2025, 9, 361), *every(16, 2026, 9, 233)]),
        "VNP13A2": ("2", [*every(8, 2025, 1, 361), *every(8, 2026, 1, 361)]),
    }
    for product, (collection, days) in of.items():
        values = {day: season(day, product) for day in days}
        write(archive, product, collection, days, INDEX, values)


def _run(folder: Path, name: str, document: str) -> None:
    (folder / f"{name}.yaml").write_text(document, "utf-8")
    command = [
        str(Path(sys.executable).with_name("swathmill")),
        "run",
        str(folder / f"{name}.yaml"),
    ]
    more = ["--archive", str(folder / "archive"), "--out", str(folder / name)]
    found = subprocess.run(
        [*command, *more], cwd=folder, capture_output=True, text=True, check=False
    )
    if found.returncode not in (0, 3):
        raise SystemExit(found.stdout[-2000:] + found.stderr[-2000:])


def _series(folder: Path) -> list[tuple[date, float, str]]:
    found = []
    for path in sorted((folder / "record").rglob("ndvi-16day.NDVI.*.tif")):
        with rasterio.open(path) as image:
            value, sensor = float(np.nanmean(image.read(1))), image.tags(1)["SENSOR"]
        found.append((date.fromisoformat(path.name.split(".")[-2]), value, sensor))
    return found


def _bridged(folder: Path) -> list[tuple[date, float]]:
    (path,) = (folder / "bridge").rglob("bridged.*.tif")
    with rasterio.open(path) as image:
        values = np.nanmean(image.read(), axis=(1, 2))
        days = [date.fromisoformat(text.split()[-1]) for text in image.descriptions]
    return [*zip(days, map(float, values), strict=True)]


def _draw(folder: Path, to: Path) -> None:
    figure, axes = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    series = _series(folder)
    for sensor, colour in COLOURS.items():
        mine = [(day, value) for day, value, of in series if of == sensor]
        axes.plot(*zip(*mine, strict=True), "o", color=colour, label=sensor, markersize=4)
    axes.plot(*zip(*_bridged(folder), strict=True), "-", color="0.4", label="bridged", linewidth=1)
    axes.set_ylabel("NDVI")
    axes.set_title("Generated granules: made-up values, no data of NASA", fontsize=9)
    axes.legend(fontsize=8, ncols=2)
    figure.savefig(to, dpi=100)


def _draw_fit(folder: Path, to: Path) -> None:
    """Draw the pairs of two sensors, from the values that the granules were made of."""
    (path,) = (folder / "bridge").rglob("MYD13A2*_bridge.*.tif")
    with rasterio.open(path) as image:
        count, bias, rmse, r, _, offset = np.nanmean(image.read(), axis=(1, 2))
    days = [date(2025, 1, 9) + timedelta(days=16 * n) for n in range(23)]
    days += [date(2026, 1, 9) + timedelta(days=16 * n) for n in range(15)]
    figure, axes = pyplot.subplots(figsize=(4.4, 4), layout="constrained")
    x = [season(day, "MYD13A2") for day in days]
    axes.plot(x, [season(day, "VNP13A2") for day in days], ".", label=f"{count:.0f} dates of both")
    ends = np.array([min(x), max(x)])
    axes.plot(
        ends, ends + offset, label=f"{offset:+.3f}; bias {bias:.3f}, RMSE {rmse:.3f}, r {r:.3f}"
    )
    axes.set_xlabel("MYD13A2")
    axes.set_ylabel("VNP13A2")
    axes.set_title("Generated: made-up values", fontsize=9)
    axes.legend(fontsize=8)
    figure.savefig(to, dpi=100)


if __name__ == "__main__":
    sys.exit(main())
