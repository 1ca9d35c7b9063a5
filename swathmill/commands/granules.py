"""Commands about granules alone: sample, reproject. No stack is needed."""

from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console

from reprojection.grids import Bounds, Grid, Lattice, project_bounds
from reprojection.picture import write_png
from reprojection.raster import Raster
from reprojection.reproject import ExtraBand, Merge, Options, reproject
from reprojection.sample import write_sample_archive
from reprojection.write import Compression, read_raster, write_cog
from swathmill.errors import RefusedError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(sample)
    app.command("reproject")(reproject_files)


def sample(
    folder: Annotated[Path, typer.Argument(help="Folder to write the granules into.")],
) -> None:
    """Make a small archive of true HDF4-EOS granules with synthetic values."""
    paths = write_sample_archive(folder)
    size = sum(path.stat().st_size for path in paths)
    _console().print(
        f"{len(paths)} synthetic granules, {size / 1e6:.1f} MB, in {folder}", markup=False
    )


def reproject_files(
    files: Annotated[list[Path], typer.Argument(help="Granules of one product and date.")],
    layer: Annotated[str, typer.Option(help="Layer; `Name[2]` names one of several bands.")],
    out: Annotated[Path, typer.Option(help="GeoTIFF to write.")],
    crs: Annotated[str, typer.Option(help="Target CRS, as in EPSG:4326.")] = "EPSG:4326",
    resolution: Annotated[float | None, typer.Option(help="Pixel side in the CRS's units.")] = None,
    bbox: Annotated[
        str | None, typer.Option(help="west,south,east,north in degrees, as in -8,50.5,6,58.5.")
    ] = None,
    like: Annotated[
        Path | None, typer.Option(help="Take the grid of this GeoTIFF of Swathmill's.")
    ] = None,
    resampling: Annotated[
        str | None, typer.Option(help="Method; by default the layer's own.")
    ] = None,
    merge: Annotated[
        str, typer.Option(help="Where granules overlap: nadir, latest, mean, first.")
    ] = "nadir",
    qa: Annotated[str | None, typer.Option(help="Quality preset: best or good.")] = None,
    physical: Annotated[bool, typer.Option("--physical", help="float32 in units.")] = False,
    no_mask: Annotated[bool, typer.Option("--no-mask", help="Keep all but fill values.")] = False,
    extra: Annotated[
        list[str] | None, typer.Option(help="Extra band: count, source or reason.")
    ] = None,
    compress: Annotated[str, typer.Option(help="deflate, zstd or none.")] = "deflate",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the kernels.")] = 1,
    picture: Annotated[Path | None, typer.Option(help="Write a PNG of the result too.")] = None,
) -> None:
    """Reproject one layer of granules of one date onto one grid, as a Cloud Optimized GeoTIFF."""
    _one_of("merge", merge, ("nadir", "latest", "mean", "first"))
    _one_of("compress", compress, ("deflate", "zstd", "none"))
    for band in extra or ():
        _one_of("extra", band, ("count", "source", "reason"))
    options = Options(
        resampling=resampling,
        merge=cast(Merge, merge),
        qa=qa,
        mask=not no_mask,
        units="physical" if physical else "stored",
        extra_bands=tuple(cast(ExtraBand, band) for band in extra or ()),
    )
    grid = _grid(crs, resolution, bbox, like)
    raster = reproject(files, layer, grid, options, threads=threads)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_cog(raster, out, compress=cast(Compression, compress))
    _tell(out, raster)
    if picture is not None:
        write_png(out, picture)
        _console().print(f"Picture  {picture}", markup=False)


def _grid(crs: str, resolution: float | None, bbox: str | None, like: Path | None) -> Grid:
    if like is not None:
        return read_raster(like).grid
    if bbox is None or resolution is None:
        raise _refused(
            "grid", "no target grid is given.", "Give --bbox and --resolution, or --like."
        )
    return Lattice(crs=crs, resolution=resolution).snap(project_bounds(_bounds(bbox), crs))


def _bounds(text: str) -> Bounds:
    try:
        west, south, east, north = (float(part) for part in text.split(","))
    except ValueError:
        raise _refused(
            "bbox", f"{text!r} is not four numbers.", "Write west,south,east,north in degrees."
        ) from None
    return Bounds(west, south, east, north)


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise _refused(name, f"{value!r} is not known.", f"Choose one of {', '.join(choices)}.")


def _refused(field: str, problem: str, remedy: str) -> RefusedError:
    return RefusedError(field=field, problem=problem, remedy=remedy, status=0)


def _tell(path: Path, raster: Raster) -> None:
    rows, columns = raster.grid.shape
    share = float(raster.valid(0).mean())
    _console().print(
        f"{path}: {columns} x {rows} pixels, {raster.data.dtype}, {share:.1%} with a value, "
        f"from {len(raster.provenance.granules)} granules",
        markup=False,
    )


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)
