"""Commands about rasters of one's own: upload, list, show, share, take up, delete."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column

from portal.serving.quantities import size_text
from swathmill.access import client_for
from swathmill.answers import RasterVersion, SharedRaster
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    TokenOption,
    data_folder,
    print_json,
)
from swathmill.commands.shared.uploads import (
    SEEN_BY,
    Cells,
    UploadCommands,
    add_upload_commands,
    tell_pushed,
)
from swathmill.errors import ArgumentError
from tasks.answers.uploads import Visibility


def register(app: typer.Typer) -> None:
    """Add the group of commands to the application."""
    group = typer.Typer(
        name="raster",
        help="Rasters of your own, such as elevation, which requests name like products.",
        no_args_is_help=True,
    )
    group.command()(push)
    add_upload_commands(group, _SHARED)
    app.add_typer(group, name="raster")


def push(
    files: Annotated[
        list[str],
        typer.Argument(
            help="A GeoTIFF or netCDF-4 file, or its https address; several GeoTIFFs are the dates "
            "of one raster, each with its date in its name."
        ),
    ],
    name: Annotated[
        str, typer.Option(help="Its name; by default that of the file.", show_default=False)
    ] = "",
    version: Annotated[
        str, typer.Option(help="By default the next number.", show_default=False)
    ] = "",
    layer: Annotated[
        list[str] | None,
        typer.Option(help="A name for each layer, in their order; may be repeated."),
    ] = None,
    class_: Annotated[
        list[str] | None,
        typer.Option("--class", help="A layer of classes, never blended; may be repeated."),
    ] = None,
    units: Annotated[list[str] | None, typer.Option(help="LAYER=UNIT; may be repeated.")] = None,
    date: Annotated[
        list[str] | None,
        typer.Option(help="The date of each file, like 2012-04-01; may be repeated."),
    ] = None,
    period: Annotated[
        int, typer.Option(help="Days that each date stands for.", min=0, max=366)
    ] = 0,
    visibility: Annotated[
        Visibility | None,
        typer.Option("--share", help="Who sees it; a new raster is private.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Upload a raster: elevation, a land mask, climate zones, a reanalysis."""
    address = files[0] if len(files) == 1 and "://" in files[0] else ""
    paths = [] if address else [Path(one) for one in files]
    absent = next((one for one in paths if not one.is_file()), None)
    if absent is not None:
        raise ArgumentError(f"{absent} is not a file.", "Name files, or one https address.")
    said = {
        "name": name or _name_of(files[0]),
        "version": version,
        "url": address,
        "layers": ",".join(layer or []),
        "classes": ",".join(class_ or []),
        "units": ",".join(units or []),
        "dates": ",".join(date or []),
        "period": str(period or ""),
    }
    client = client_for(data_folder(data), token)
    pushed = client.push_raster(paths, {key: text for key, text in said.items() if text})
    if visibility is not None:
        pushed = client.share(pushed, visibility.value)
    if as_json:
        print_json(pushed)
        return
    newest = next(one for one in pushed.versions if one.version == pushed.newest)
    first = newest.layers[0]["name"]
    use = "" if newest.dates else ", use: static"
    tell_pushed(
        pushed,
        f"{_grid(newest)}; {_dates(newest)}",
        f'In a request: products: [{{name: "{pushed.reference}", layers: [{first}]{use}}}]',
    )


def _name_of(file: str) -> str:
    """Make a raster's name of a file's or an address's: elevation of Elevation.tif."""
    stem = Path(file.partition("?")[0]).name.partition(".")[0].lower()
    return "".join(char if char.isalnum() and char.isascii() else "-" for char in stem).strip("-")


def _grid(version: RasterVersion) -> str:
    crs = version.crs if len(version.crs) < 40 else version.crs.split('"')[1]
    return f"{version.width:,} x {version.height:,} in {crs}"


def _dates(version: RasterVersion) -> str:
    if not version.dates:
        return "of no date"
    if len(version.dates) == 1:
        return str(version.dates[0])
    return f"{len(version.dates):,} dates, {version.dates[0]} to {version.dates[-1]}"


def _version_rows(found: SharedRaster) -> Sequence[Cells]:
    return [
        (
            one.version,
            f"{one.pushed:%Y-%m-%d %H:%M}" if one.pushed else "",
            size_text(one.size),
            one.digest[:16],
            _grid(one),
            _dates(one),
            escape(", ".join(f"{layer['name']} {layer['units']}".strip() for layer in one.layers)),
        )
        for one in found.versions
    ]


_SHARED = UploadCommands(
    kind=SharedRaster,
    word="raster",
    use="name",
    sharing="Who sees it, and may name it in requests.",
    goes_on="requests that use it by now go on",
    heads=("raster", "version", "seen by", "layers"),
    row=lambda one: (
        one.reference,
        one.newest,
        SEEN_BY.get(one.visibility, ""),
        escape(one.layers),
    ),
    about=lambda found: found.reference,
    version_heads=(
        "version",
        "pushed",
        "size",
        Column("SHA-256", min_width=16),  # it is there to be copied: whole
        "grid",
        "dates",
        "layers",
    ),
    version_rows=_version_rows,
)
