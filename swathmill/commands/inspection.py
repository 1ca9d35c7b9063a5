"""`swathmill inspect`: show what a granule contains, as text or JSON."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter
from rich.table import Table
from rich.text import Text

from modis.collection import versioned
from reprojection.catalogue.layers import LayerKind
from reprojection.errors import ReprojectionError
from reprojection.inspect.inspect import GranuleReport, GridReport, LayerReport, inspect
from reprojection.inspect.strict import hold_strictly
from reprojection.isolation import ReadingProcess
from swathmill.commands.shared.options import print_json
from swathmill.commands.shared.paths import input_files
from swathmill.console import PlainConsole

TABLE_WIDTH = 140
_COLUMNS = ("layer", "type", "size", "kind", "values", "units", "valid", "fill", "codes")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("inspect")(inspect_file)


def inspect_file(
    files: Annotated[list[Path], typer.Argument(help="Granules, HDF4-EOS or HDF5-EOS.")],
    as_json: Annotated[bool, typer.Option("--json", help="The whole report as JSON.")] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Name, in place of the report, all that does not agree with the catalogue or with "
            "itself: names, ranges, lengths, dates, quality layers, structure, values; a line "
            "each, with what to do. Exit code 1 if there is anything.",
        ),
    ] = False,
) -> None:
    """Show granules' layers, grids, value ranges and valid shares."""
    input_files(files, "FILE")
    if strict:
        _held_strictly(files, as_json=as_json)
        return
    # A damaged file can crash the HDF4 library; that must end in a message, not in a core dump.
    with ReadingProcess() as reader:
        reports = [reader.run(inspect, file) for file in files]
    console = PlainConsole()
    # A table that is too wide is easier to read if the terminal wraps it than if it is cut.
    console.width = max(console.width, TABLE_WIDTH)
    if as_json:
        of_all: object = reports[0] if len(reports) == 1 else reports
        text = TypeAdapter[object](GranuleReport | list[GranuleReport]).dump_json(of_all, indent=1)
        console.print(text.decode(), markup=False)
        return
    for report in reports:
        _show(console, report)


def _held_strictly(files: list[Path], *, as_json: bool) -> None:
    """Print what is wrong with granules, a line each; exit with 1 if anything is."""
    with ReadingProcess() as reader:
        found = {file: _wrong(reader, file) for file in dict.fromkeys(files)}
    if as_json:
        said = [{"file": file, "wrong": lines} for file, lines in found.items()]
        print_json(said[0] if len(said) == 1 else said)
    else:
        console = PlainConsole()
        for file, lines in found.items():
            before = f"{file}: " if len(found) > 1 else ""
            for line in lines:
                console.print(f"{before}{line}", markup=False, soft_wrap=True)
            if not lines:
                said_well = f"{file.name} agrees with the catalogue and with itself"
                console.print(said_well, markup=False, soft_wrap=True)
    if any(found.values()):
        raise typer.Exit(1)


def _wrong(reader: ReadingProcess, file: Path) -> list[str]:
    """Name what is wrong with a granule; of one that cannot be read, that alone."""
    try:
        return [*reader.run(hold_strictly, file)]
    except ReprojectionError as error:
        return [" ".join(str(error).split())]


def _show(console: PlainConsole, report: GranuleReport) -> None:
    title = f" ({report.catalogue_title})" if report.catalogue_title else ""
    console.print(f"{report.name}", markup=False)
    console.print(
        f"{versioned(report.product or 'unknown product', report.collection)}{title}",
        markup=False,
    )
    if report.start is not None:
        end = f" to {report.end:%Y-%m-%d %H:%M:%S}" if report.end is not None else ""
        console.print(f"{report.start:%Y-%m-%d %H:%M:%S}{end} UTC {report.day_night}", markup=False)
    for grid in report.grids:
        tile = f", tile {grid.tile.name}" if grid.tile else ""
        size = f"{grid.width} x {grid.height} pixels of {_pixel(grid)}"
        console.print(f"grid {grid.name}: {size}{tile}", markup=False)
    for swath in report.swaths:
        sizes = ", ".join(f"{name} {size}" for name, size in swath.dimensions)
        console.print(f"swath {swath.name}: {sizes}", markup=False)
        for dimensions in swath.maps:
            console.print(f"  {dimensions}", markup=False)
    table = Table(*_COLUMNS, box=None)
    for layer in report.layers:
        table.add_row(*map(Text, _row(layer)))
    console.print(table)
    for layer in report.layers:
        for note in layer.notes:
            console.print(f"{layer.name}: {note}", markup=False)
    for convention, names in _conventions(report).items():
        console.print(f"{convention}: {names}", markup=False)
    if report.others:
        console.print(f"not rasters: {', '.join(report.others)}", markup=False)


def _pixel(grid: GridReport) -> str:
    form = ".2f" if grid.units == "m" else ".6g"
    return f"{grid.pixel_size:{form}} {grid.units}"


def _conventions(report: GranuleReport) -> dict[str, str]:
    """Name the layers by the convention of their scale and offset; unknown ones last."""
    found: dict[str, list[str]] = {}
    for layer in sorted(report.layers, key=lambda layer: bool(layer.scale_problem)):
        if layer.convention:
            found.setdefault(f"values are {layer.convention}", []).append(layer.name)
        elif layer.scale_problem and layer.kind is LayerKind.CONTINUOUS:
            said = f"values are as stored, their physical units unknown: {layer.scale_problem}"
            found.setdefault(said, []).append(layer.name)
    return {convention: ", ".join(names) for convention, names in found.items()}


def _row(layer: LayerReport) -> tuple[str, ...]:
    size = "x".join(str(length) for length in (*(n for _, n in layer.bands), *layer.shape))
    if layer.problem:
        return layer.name, layer.dtype, size, layer.kind, layer.problem, "", "", "", ""
    values = "none valid"
    if layer.lowest is not None and layer.highest is not None:
        form = ".6g" if layer.kind is LayerKind.CONTINUOUS else ".0f"
        values = f"{layer.lowest:{form}} .. {layer.highest:{form}}"
    return (
        layer.name if layer.placeable else f"{layer.name} (no place)",
        layer.dtype,
        size,
        layer.kind,
        values,
        layer.units,
        f"{layer.valid_share:.1%}",
        f"{layer.fill_share:.1%}",
        f"{layer.code_share:.1%}",
    )
