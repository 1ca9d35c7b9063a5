"""Commands about packages: upload, list, show, share, take up, deprecate, download, delete."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.markup import escape

from portal.serving.quantities import size_text
from swathmill import package_kit
from swathmill.access import client_for
from swathmill.client import SharedPackage
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
    Reference,
    UploadCommands,
    add_upload_commands,
    names_version,
    one_version,
    tell_pushed,
)
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError
from swathmill.package_kit import Language, checked, write_skeleton
from tasks.answers.uploads import Visibility
from tasks.packages.packages import PackageError, pack
from tasks.service.classify import AttemptError


def register(app: typer.Typer) -> None:
    """Add the group of commands to the application."""
    group = typer.Typer(
        name="package",
        help="Packages: your own computations over reprojected cells.",
        no_args_is_help=True,
    )
    group.command()(new)
    group.command()(check)
    group.command("try")(try_package)
    group.command()(push)
    add_upload_commands(group, _SHARED)
    group.command()(deprecate)
    group.command()(download)
    app.add_typer(group, name="package")
    app.command()(inputs)


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
    found = _refusing(lambda: checked(package))
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
    as_json: JsonOption = False,
) -> None:
    """Run a package over a group's inputs on this machine as a worker does: sandbox and limits."""
    parameters = dict(_pair(text) for text in parameter or [])
    folder = out or Path(f"{package.name.partition('.')[0]}-out")
    try:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):  # what the program prints
            made = _refusing(lambda: package_kit.try_package(package, on, parameters, folder))
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


def _refusing(act: Callable[[], _T]) -> _T:
    """Tell of a package that cannot be used as of a wrong argument."""
    try:
        return act()
    except PackageError as error:
        raise ArgumentError(str(error), "docs/reductions.md explains what a package is.") from None


def push(
    package: Annotated[
        Path, typer.Argument(help="The package's folder, or a zip or tar of it.", exists=True)
    ],
    visibility: Annotated[
        Visibility | None,
        typer.Option("--share", help="Who sees it; a new package is private.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Upload a package; its name and version are those of its package.yaml."""
    with tempfile.TemporaryDirectory(prefix="swathmill-") as folder:
        archive = package
        if package.is_dir():
            archive = Path(folder) / "archive.tar"
            archive.write_bytes(packed(package))
        client = client_for(data_folder(data), token)
        pushed = client.push_package(archive)
    if visibility is not None:
        pushed = client.share(pushed, visibility.value)
    if as_json:
        print_json(pushed)
        return
    tell_pushed(pushed, f"In a request: reduction: {{package: {pushed.reference}}}")


def deprecate(
    reference: Annotated[str, typer.Argument(help="NAME@VERSION.")],
    why: Annotated[str, typer.Option(help="The reason; empty takes it back.")],
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Advise against a version: its name alone no longer means it, and who names it may run it."""
    client = client_for(data_folder(data), token)
    found = client.upload(SharedPackage, reference)
    after = client.deprecate(found, one_version(reference, found), why)
    if as_json:
        print_json(after)
        return
    now = f"is now version {after.newest}" if after.newest else "has no recommended version"
    PlainConsole().print(f"{after.name} {now}.", markup=False)


def download(
    reference: Reference,
    to: Annotated[Path, typer.Argument(help="The file to write, a tar.")],
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Download a version's archive; without @VERSION the newest."""
    client = client_for(data_folder(data), token)
    found = client.upload(SharedPackage, reference)
    chosen = one_version(reference, found) if names_version(reference) else found.newest
    version = next(one for one in found.versions if one.version == chosen)
    client.download_package(version, to)
    if as_json:
        print_json({"file": str(to), "package": found.reference, "version": version})
        return
    PlainConsole().print(f"{to}: {found.name} {version.version}, {size_text(version.size)}")


def packed(folder: Path) -> bytes:
    """Pack a package's folder; raise ArgumentError for one that is no package."""
    return _refusing(lambda: pack(folder).data)


def _row(one: SharedPackage) -> Cells:
    seen = "everyone" if one.source != "uploaded" else SEEN_BY.get(one.visibility, "")
    first = one.description.partition(". ")[0]
    return one.reference, one.newest or "all deprecated", seen, escape(first)


def _version_rows(found: SharedPackage) -> Sequence[Cells]:
    return [
        (
            one.version,
            f"{one.pushed:%Y-%m-%d %H:%M}" if one.pushed else "",
            size_text(one.size),
            one.digest[:16],
            f"deprecated: {one.deprecated}" if one.deprecated else "",
        )
        for one in found.versions
    ]


_SHARED = UploadCommands(
    kind=SharedPackage,
    word="package",
    use="run",
    sharing="Who sees it, may run and download it.",
    goes_on="what runs by now goes on",
    heads=("package", "version", "seen by", "what it computes"),
    row=_row,
    about=lambda found: found.description,
    version_heads=("version", "pushed", "size", "SHA-256", ""),
    version_rows=_version_rows,
)
