"""Draw what each shipped package makes of real granules, for the pages in docs/shipped.

`python -m bench.package_pictures GRANULES docs/pictures` takes the tiles below a folder (MCD15A2 of
spring 2012 and a MOD09A1), puts each on a grid, runs every package over the days as a worker does,
and draws one band of what it made. `anomaly` takes April of three years, which is made up. It needs
matplotlib.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import matplotlib
import numpy as np
import rasterio
from matplotlib import pyplot

from modis.granule_name import parse_granule_name
from reprojection.grid.grids import Grid, Lattice
from reprojection.read.window_time import WindowTime
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import GridToWrite, write_granule
from reprojection.sample.sample import tile_granules
from reprojection.write.write import Opened, open_raster, write_cog
from swathmill.package_kit import try_package
from tasks.bag.spec import GridSpec, GroupSpec
from tasks.packages.packages import SHIPPED, Packages
from tasks.spec_parts import Band
from worker.phases.group import MANIFEST, manifest, sort_layers, stack

LEAVES = (-6.0, 50.0, 3.0, 56.0)
ZONE = {
    "type": "Polygon",
    "coordinates": [[[-4.0, 51.0], [0.5, 51.0], [1.0, 53.0], [-2.5, 54.0], [-4.0, 51.0]]],
}
# What is drawn: the file, its band from 0, and how it is called.
DRAWN = {
    "linear-trend": ("Lai_1km_trend.tif", 0),
    "climatology": ("Lai_1km_climatology.tif", 3),
    "phenology": ("Lai_1km_phenology.tif", 1),
    "savitzky-golay": ("Lai_1km_smooth.tif", 8),
    "whittaker": ("Lai_1km_smooth.tif", 8),
    "eight-day-composite": ("Lai_1km_composite.tif", 8),
    "seasonal-composite": ("Lai_1km_composite.tif", 1),
    "maximum-value-composite": ("day_of_maximum.tif", 0),
    "ndvi": ("ndvi.tif", 0),
    "evi": ("evi.tif", 0),
    "difference": ("difference.tif", 0),
}
PARAMETERS = {
    "zonal-statistics": {"zones": json.dumps(ZONE)},
    "anomaly": {"month": "2012-04"},
    "difference": {"of": "b02", "less": "b01"},
}
# The years of the made-up granules, and by how many pixels what grows there is moved east.
YEARS = {2010: 60, 2011: -90, 2012: 0}


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw all packages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("granules", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("only", nargs="*", help="packages to draw; without any, all")
    given = parser.parse_args(arguments)
    only: list[str] = given.only
    matplotlib.use("Agg")
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiles = sorted(given.granules.rglob("MCD15A2.A2012*.hdf"))
        grid = Lattice(crs="EPSG:4326", resolution=0.03).snap(LEAVES)
        window = date(2012, 1, 1), date(2012, 12, 31)
        leaves = write_group(folder / "leaves", tiles, ("Lai_1km", "Fpar_1km"), grid, window)
        (colours,) = given.granules.rglob("MOD09A1.*.hdf")
        bands = tuple(f"sur_refl_b0{n}" for n in (1, 2, 3))
        part = Lattice(crs="EPSG:4326", resolution=0.01).snap(valid_box(colours))
        days = date(2017, 7, 12), date(2017, 7, 12)
        reflectances = write_group(folder / "colours", [colours], bands, part, days)
        years = write_years(folder / "years")
        window = date(2010, 1, 1), date(2012, 12, 31)
        aprils = write_group(folder / "aprils", years, ("Lai_1km",), grid, window)
        for found in Packages((SHIPPED, SHIPPED / "series")).every():
            package = found.package.name
            if package == "bridge" or (only and package not in only):
                continue  # `bench.record_picture` draws it
            group = {
                **dict.fromkeys(("ndvi", "evi", "difference"), reflectances),
                "anomaly": aprils,
            }.get(package, leaves)
            assert found.folder is not None
            out = folder / package
            try_package(found.folder, group, PARAMETERS.get(package, {}), out)
            draw(package, out, given.out / f"{package}.png")
    return 0


def write_years(folder: Path) -> list[Path]:
    """Write made-up tiles of leaf area of April in several years."""
    folder.mkdir()
    written = []
    with chdir(folder):  # HDF4 stores the path that it is given
        for year, east in YEARS.items():
            for granule in tile_granules([datetime(2012, 4, 6, tzinfo=UTC)]):
                day = granule.start.replace(year=year)
                assert isinstance(granule.structure, GridToWrite)
                fields = [
                    replace(one, values=np.roll(one.values, east, axis=1))
                    for one in granule.structure.fields
                ]
                moved = replace(
                    granule,
                    local_name=granule.local_name.replace("A2012097", f"A{day:%Y%j}"),
                    start=day,
                    end=day + timedelta(days=8),
                    structure=replace(granule.structure, fields=fields),
                )
                write_granule(Path(moved.local_name), moved)
                written.append(folder / moved.local_name)
    return written


def valid_box(granule: Path) -> tuple[float, float, float, float]:
    """Return the degrees within which a part of a tile has values."""
    whole = Lattice(crs="EPSG:4326", resolution=0.05).snap((-2.0, 39.0, 16.0, 51.0))
    raster = reproject([granule], "sur_refl_b01", whole, Options(resampling="nearest"))
    rows, columns = np.nonzero(raster.valid())
    a, _, west, _, e, north = whole.transform
    return (
        west + a * int(columns.min()),
        north + e * int(rows.max() + 1),
        west + a * int(columns.max() + 1),
        north + e * int(rows.min()),
    )


def day_of(granule: Path) -> date:
    """Return the day that a granule's name has."""
    name = parse_granule_name(granule.name)
    if name is None:
        raise ValueError(f"{granule.name} is no granule's name")
    return name.start.date()


def write_group(
    folder: Path,
    granules: Sequence[Path],
    layers: Sequence[str],
    grid: Grid,
    span: tuple[date, date],
) -> Path:
    """Write a group's folder as a worker does; its window lasts from one day to another."""
    folder.mkdir()
    window = f"{span[0]}_{span[1]}" if span[0] < span[1] else span[0].isoformat()
    days: dict[date, list[Path]] = {}
    for granule in granules:
        days.setdefault(day_of(granule), []).append(granule)
    bands: list[Band] = []
    rasters: dict[int, Opened] = {}
    for day, files in sorted(days.items()):
        for layer in layers:
            cell = folder.parent / f"{folder.name}.{layer}.{day}.tif"
            raster = reproject(files, layer, grid, Options(resampling="nearest"))
            write_cog(raster, cell, overviews=False)
            rasters[len(bands)] = open_raster(cell)
            said = raster.provenance
            bands.append(
                Band(
                    product=said.product,
                    collection=said.collection,
                    layer=layer,
                    day=day,
                    cell="one",
                )
            )
    a = GridSpec(crs=grid.crs, transform=grid.transform, width=grid.width, height=grid.height)
    spec = GroupSpec(
        group=f"one {window}",
        cell="one",
        window=window,
        grid=a,
        bands=tuple(bands),
        time=WindowTime(days=(span,)),
    )
    sorted_layers = sort_layers(spec, rasters)
    shares = {
        file: stack(one, number, folder / file)
        for one in sorted_layers
        for number, file in one.files
    }
    (folder / MANIFEST).write_text(manifest(spec, sorted_layers, shares).model_dump_json(), "utf-8")
    return folder


def draw(package: str, made: Path, to: Path) -> None:
    """Draw one band of what a package made, or the course of its table."""
    figure, axes = pyplot.subplots(figsize=(4.2, 3.0), dpi=80, layout="constrained")
    if package == "zonal-statistics":
        rows = [line.split(",") for line in (made / "zones.csv").read_text().splitlines()[1:]]
        mine = [row for row in rows if row[1] == "Lai_1km"]
        axes.plot(
            np.array([row[2] for row in mine], "datetime64[D]"), [float(row[6]) for row in mine]
        )
        axes.set_ylabel("mean of Lai_1km")
        axes.tick_params(axis="x", rotation=30, labelsize=7)
        title = "zones.csv: one polygon"
    else:
        file, band = DRAWN.get(package, ("", 0))
        path = made / file if file else next(made.glob("Lai_1km_*.tif"))
        with rasterio.open(path) as raster:
            values = raster.read(band + 1, masked=True).filled(np.nan)
            described = (raster.descriptions[band] or "").partition(" 2012")[0]
            title = f"{path.name}, band {band + 1}: {described}"
        known = values[np.isfinite(values)]
        low, high = np.percentile(known, (2, 98)) if known.size else (0, 1)
        picture = axes.imshow(values, vmin=low, vmax=high, interpolation="nearest")
        figure.colorbar(picture, shrink=0.8)
        axes.set_axis_off()
    axes.set_title(title, fontsize=8)
    figure.savefig(to, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    raise SystemExit(main())
