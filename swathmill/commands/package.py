"""Commands about packages on this machine: make, check and try one; the inputs of a run."""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from portal.serving.quantities import size_text
from swathmill import package_kit
from swathmill.access import client_for
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    TokenOption,
    data_folder,
    print_json,
)
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError
from swathmill.package_kit import Language, checked, write_skeleton
from tasks.packages.packages import PackageError
from tasks.service.classify import AttemptError


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = group_in(app)
    group.command()(new)
    group.command()(check)
    group.command("try")(try_package)
    app.command()(inputs)


def group_in(app: typer.Typer) -> typer.Typer:
    """Return the application's group of commands about packages, which is added if absent."""
    for one in app.registered_groups:
        if one.name == "package" and one.typer_instance is not None:
            return one.typer_instance
    group = typer.Typer(
        name="package",
        help="Packages: your own computations over reprojected cells.",
        no_args_is_help=True,
    )
    app.add_typer(group, name="package")
    return group


def new(
    folder: Annotated[Path, typer.Argument(help="A new folder; its name is the package's.")],
    language: Annotated[Language, typer.Option(help="The language of the program.")] = (
        Language.PYTHON
    ),
    as_json: JsonOption = False,
) -> None:
    """Make a package that runs: the mean of each layer, to begin with."""
    write_skeleton(folder, language)
    files = sorted(folder.iterdir())
    if as_json:
        print_json({"folder": folder, "files": [path.name for path in files]})
        return
    for path in files:
        PlainConsole().print(str(path), markup=False)
    first = {
        Language.C: f"make -C {folder}, then ",
        Language.FORTRAN: f"make -C {folder}, then ",
        Language.MATLAB: "mcc -m mean_of_days.m, then ",
    }
    PlainConsole().print(
        f"Next: {first.get(language, '')}swathmill package try {folder}", markup=False
    )


def check(
    package: Annotated[
        Path, typer.Argument(help="The package's folder, or a zip or tar of it.", exists=True)
    ],
    as_json: JsonOption = False,
) -> None:
    """Say what an upload of a package would say, without one."""
    found = refusing(lambda: checked(package))
    if as_json:
        print_json(found)
        return
    manifest = found.package
    PlainConsole().print(f"{manifest.name}@{manifest.version}  {found.digest}", markup=False)
    PlainConsole().print(f"{found.files:,} files, {size_text(found.size)}", markup=False)
    outputs = ", ".join(f"{one.name} ({one.kind})" for one in manifest.outputs)
    if found.environment is not None:
        PlainConsole().print(f"depends on {', '.join(found.environment.packages)}", markup=False)
    PlainConsole().print(f"runs {' '.join(manifest.command)}, makes {outputs}", markup=False)


def try_package(
    package: Annotated[
        Path, typer.Argument(help="The package's folder, or a zip or tar of it.", exists=True)
    ],
    on: Annotated[
        Path | None,
        typer.Option(
            help="Inputs of a group, a folder or a zip as `swathmill inputs` writes it; by "
            "default a small made-up group.",
            exists=True,
            show_default=False,
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="NAME=VALUE; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the outputs; by default PACKAGE-out.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Folder from whose checkpoint the program goes on and where it leaves its own; "
            "by default it begins anew.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a package over a group's inputs on this machine as a worker does: sandbox and limits."""
    parameters = dict(_pair(text) for text in parameter or [])
    folder = out or Path(f"{package.name.partition('.')[0]}-out")
    try:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):  # what the program prints
            made = refusing(
                lambda: package_kit.try_package(package, on, parameters, folder, checkpoint)
            )
    except AttemptError as error:
        if as_json:
            print_json({"outcome": error.category, "message": str(error), "outputs": ()})
        else:
            PlainConsole().print(f"{error.category.value}: {error}", style="red", markup=False)
        raise typer.Exit(1) from None
    if as_json:
        print_json({"outcome": "success", "message": "", "outputs": made})
        return
    for one in made:
        share = "" if one.valid_share is None else f", {one.valid_share:.0%} of pixels have a value"
        PlainConsole().print(f"{one.path}{share}", markup=False)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentError(f"{text!r} is not a parameter.", "Write NAME=VALUE.")
    return name, value


def inputs(
    task: Annotated[str, typer.Argument(help="The task of a run, as its page names it.")],
    out: Annotated[
        Path | None, typer.Option(help="The zip to write; by default inputs-TASK.zip.")
    ] = None,
    request: Annotated[
        str, typer.Option(help="Its request; by default one of your newest.", show_default=False)
    ] = "",
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Download what a run of a reduction was given, for `swathmill package try --on`."""
    to = out or Path(f"inputs-{task[-12:]}.zip")
    client_for(data_folder(data), token).inputs(task, to, request=request)
    if as_json:
        print_json({"file": str(to), "task": task})
        return
    PlainConsole().print(str(to), markup=False)


_T = TypeVar("_T")


def refusing(act: Callable[[], _T]) -> _T:
    """Tell of a package that cannot be used as of a wrong argument."""
    try:
        return act()
    except PackageError as error:
        raise ArgumentError(str(error), "docs/reductions.md explains what a package is.") from None
