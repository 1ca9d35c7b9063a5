"""`swathmill remake`: make a delivered file again from its own provenance, and compare."""

from pathlib import Path
from typing import Annotated

import typer

from swathmill.commands.remake.making import remake
from swathmill.commands.shared.options import JsonOption, print_json
from swathmill.commands.shared.paths import input_files, output_file
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError

_DIFFERS = 1


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("remake")(remake_file)


def remake_file(
    file: Annotated[
        Path, typer.Argument(help="Raster of a request's results, or its STAC item (.json).")
    ],
    granules: Annotated[
        list[Path] | None,
        typer.Option(help="Granules, or folders to look for them in; may be repeated."),
    ] = None,
    packages: Annotated[
        list[Path] | None,
        typer.Option(
            help="Packages, or folders to look for them in; may be repeated. Those that come with "
            "Swathmill are known."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Keep the file that was made, here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a delivered file again from its own provenance, and compare the bytes.

    Exits 0 if they are equal, 1 if they differ, 2 if the file cannot be made again here.
    """
    input_files([file], "FILE")
    for option, places in (("--granules", granules), ("--packages", packages)):
        for place in places or ():
            if not place.exists():
                raise ArgumentError(
                    f"{option} {place}: there is no such place.", "Correct the path."
                )
    if out is not None and output_file(out, "--out").resolve() == file.resolve():
        raise ArgumentError(f"--out {out} is the file itself.", "Name another file.")
    made = remake(file, granules or [], packages or [], out)
    if as_json:
        print_json(
            {
                "file": file,
                "equal": made.equal,
                "sha256": made.sha256,
                "granules": made.granules,
                "runs": made.runs,
                "differences": list(made.differences),
            }
        )
    else:
        console = PlainConsole()
        runs = f" and {made.runs} run{'s' * (made.runs != 1)} of packages" if made.runs else ""
        of = f"from {made.granules} granule{'s' * (made.granules != 1)}{runs}"
        verdict = "equal" if made.equal else "different"
        console.print(f"{file}: {verdict}. Made again {of}.", markup=False)
        console.print(f"SHA-256 {made.sha256}", markup=False)
        for line in made.differences:
            console.print(f"  {line}", markup=False)
    if not made.equal:
        raise typer.Exit(_DIFFERS)
