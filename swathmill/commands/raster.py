"""Commands about rasters of one's own: upload, list, show, share, take up, delete."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from portal.serving.quantities import size_text
from swathmill.access import client_for
from swathmill.client import RasterVersion
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    TokenOption,
    data_folder,
    print_json,
)
from swathmill.commands.shared.sharing import (
    SEEN_BY,
    Reference,
    Visibility,
    confirm_deletion,
    names_version,
    tell_deleted,
    tell_link,
    tell_seen,
)
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError


def register(app: typer.Typer) -> None:
    """Add the group of commands to the application."""
    group = typer.Typer(
        name="raster",
        help="Rasters of your own, such as elevation, which requests name like products.",
        no_args_is_help=True,
    )
    group.command()(push)
    group.command("list")(list_rasters)
    group.command()(show)
    group.command()(share)
    group.command("open")(open_link)
    group.command()(rm)
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
        pushed = client.share_raster(pushed, visibility.value)
    if as_json:
        print_json(pushed)
        return
    newest = next(one for one in pushed.versions if one.version == pushed.newest)
    PlainConsole().print(
        f"{pushed.owner}/{pushed.name}@{newest.version}  {newest.digest}", markup=False
    )
    PlainConsole().print(f"{_grid(newest)}; {_dates(newest)}", markup=False)
    first = newest.layers[0]["name"]
    use = "" if newest.dates else ", use: static"
    PlainConsole().print(
        f'In a request: products: [{{name: "{pushed.reference}", layers: [{first}]{use}}}]',
        markup=False,
    )
    tell_link(pushed)


def list_rasters(
    as_json: JsonOption = False, data: DataOption = None, token: TokenOption = None
) -> None:
    """List the rasters that you may name."""
    found = client_for(data_folder(data), token).rasters()
    if as_json:
        print_json(found)
        return
    table = Table("raster", "version", "seen by", "layers", box=None)
    for one in found:
        table.add_row(
            one.reference, one.newest, SEEN_BY.get(one.visibility, ""), escape(one.layers)
        )
    PlainConsole().print(table)


def show(
    reference: Reference,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Show a raster and its versions."""
    found = client_for(data_folder(data), token).raster(reference)
    if as_json:
        print_json(found)
        return
    PlainConsole().print(f"{found.owner}/{found.name}: {found.reference}", markup=False)
    tell_seen(found)
    digest = Column("SHA-256", min_width=16)  # it is there to be copied: whole
    table = Table("version", "pushed", "size", digest, "grid", "dates", "layers", box=None)
    for one in found.versions:
        pushed = f"{one.pushed:%Y-%m-%d %H:%M}" if one.pushed else ""
        layers = ", ".join(f"{layer['name']} {layer['units']}".strip() for layer in one.layers)
        cells = (one.version, pushed, size_text(one.size), one.digest[:16], _grid(one), _dates(one))
        table.add_row(*cells, escape(layers))
    PlainConsole().print(table)


def share(
    reference: Reference,
    visibility: Annotated[
        Visibility, typer.Option("--with", help="Who sees it, and may name it in requests.")
    ],
    renew: Annotated[bool, typer.Option(help="Make a new link, and end the old one.")] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Say who sees your raster; print its link, if it has one."""
    client = client_for(data_folder(data), token)
    shared = client.share_raster(client.raster(reference), visibility.value, renew=renew)
    (print_json if as_json else tell_seen)(shared)


def open_link(
    link: Annotated[str, typer.Argument(help="The link that its owner gave you.")],
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Take up a raster that somebody shares by a link; print what a request names."""
    opened = client_for(data_folder(data), token).open_raster(link)
    if as_json:
        print_json(opened)
        return
    PlainConsole().print(opened.reference, markup=False)


def rm(
    reference: Reference,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Delete your raster, or with @VERSION one version; requests that use it by now go on."""
    client = client_for(data_folder(data), token)
    found = client.raster(reference)
    version = found.versions[0].version if names_version(reference) else ""
    what = confirm_deletion(found.name, version, yes=yes)
    client.delete_raster(found, version)
    tell_deleted(found, version, what, as_json=as_json)


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
