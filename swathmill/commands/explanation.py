"""`swathmill explain`: find where one pixel of a result came from."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter

from reprojection.explain.explain import Explanation, explain
from reprojection.explain.origins import InputOrigin, PixelOrigin
from reprojection.isolation import Rights, run_in_fork
from swathmill.commands.shared.paths import input_files
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError


def register(app: typer.Typer) -> None:
    """Add the command; words such as -3.5 are not options, because a longitude may be negative."""
    app.command("explain", context_settings={"ignore_unknown_options": True})(explain_pixel)


def explain_pixel(
    raster: Annotated[Path, typer.Argument(help="GeoTIFF that Swathmill wrote.")],
    longitude: Annotated[float, typer.Argument(help="Degrees east.")],
    latitude: Annotated[float, typer.Argument(help="Degrees north.")],
    granules: Annotated[
        list[Path] | None,
        typer.Option(help="Granules, or folders to look for them in; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The explanation as JSON.")] = False,
) -> None:
    """Show which granule, row and column a pixel came from, its stored value and quality."""
    input_files([raster], "RASTER")
    # A damaged granule can crash the HDF4 library; that must end in a message.
    places = granules or []
    for place in places:
        if not place.exists():
            raise ArgumentError(f"--granules {place}: there is no such place.", "Correct the path.")
    rights = Rights((raster, *places))
    found = run_in_fork(rights, explain, raster, longitude, latitude, granules=places)
    console = PlainConsole()
    if as_json:
        text = TypeAdapter(Explanation).dump_json(found, indent=1).decode()
        console.print(text, markup=False)
        return
    for line in lines_of(found):
        console.print(line, markup=False)


def lines_of(found: Explanation) -> list[str]:
    """Write an explanation as lines of text."""
    value = "no value" if found.value is None else f"{found.value:.8g} {found.units}".rstrip()
    lines = [f"{found.layer}, row {found.row}, column {found.column}: {value}"]
    lines.append(f"stored     {found.stored}")
    if found.origin is not None:
        lines += _origin_lines(found.origin)
    if found.made:
        lines.append(f"made by    {found.made}")
    for one in found.inputs:
        lines += _input_lines(one, "")
    if found.note:
        lines.append(f"note       {found.note}")
    lines.append(f"granules   {', '.join(found.granules)}")
    if found.gdalwarp:
        lines.append(f"gdalwarp   {found.gdalwarp}")
    if found.gdalwarp_note:
        label = "but" if found.gdalwarp else "gdalwarp"
        lines.append(f"{label:<10} {found.gdalwarp_note}")
    return lines


def _input_lines(one: InputOrigin, indent: str) -> list[str]:
    """Write what a run was given as lines of text, and below it what that was made of."""
    when = f"window {one.window}" if one.window else f"{one.date}{one.time and 'T'}{one.time}"
    value = ""
    if one.stored is not None:
        told = "no value" if one.value is None else f"{one.value:.8g} {one.units}".rstrip()
        value = f": {told}, stored {one.stored}"
    lines = [f"input      {one.product} {one.layer} {when}, weight {one.weight:g}{value}"]
    lines += _origin_lines(one.origin) if one.origin is not None else []
    lines += [f"note       {one.note}"] if one.note else []
    lines += [line for inner in one.inputs for line in _input_lines(inner, "  ")]
    return [f"{indent}{line}" for line in lines]


def _origin_lines(origin: PixelOrigin) -> list[str]:
    lines = [
        f"from       {origin.granule}, row {origin.row}, column {origin.column}",
        f"           stored {origin.stored}; {origin.reason}",
    ]
    if origin.sensor_zenith is not None:
        lines.append(f"           sensor zenith {origin.sensor_zenith:.2f} degrees")
    for quality in origin.quality:
        fields = "; ".join(
            f"{field.name} {field.value}" + (f" ({field.meaning})" if field.meaning else "")
            for field in quality.fields
        )
        meaning = f": {fields}" if fields else ""
        lines.append(f"quality    {quality.layer} {quality.stored}{meaning}")
    return lines
