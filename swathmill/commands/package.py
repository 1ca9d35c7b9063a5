"""Commands about packages: upload, list, show, share, take up, deprecate, download, delete."""

import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from portal.serving.quantities import size_text
from swathmill import package_kit
from swathmill.access import client_for
from swathmill.client import PackageVersion, SharedPackage
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
from swathmill.package_kit import Language, checked, write_skeleton
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
    group.command("list")(list_packages)
    group.command()(show)
    group.command()(share)
    group.command("open")(open_link)
    group.command()(deprecate)
    group.command()(download)
    group.command()(rm)
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
        pushed = client.share_package(pushed, visibility.value)
    if as_json:
        print_json(pushed)
        return
    newest = pushed.versions[0]
    PlainConsole().print(
        f"{pushed.owner}/{pushed.name}@{newest.version}  {newest.digest}", markup=False
    )
    PlainConsole().print(f"In a request: reduction: {{package: {pushed.reference}}}", markup=False)
    tell_link(pushed)


def list_packages(
    as_json: JsonOption = False, data: DataOption = None, token: TokenOption = None
) -> None:
    """List the packages that you may run."""
    found = client_for(data_folder(data), token).packages()
    if as_json:
        print_json(found)
        return
    table = Table("package", "version", "seen by", "what it computes", box=None)
    for one in found:
        seen = "everyone" if one.source != "uploaded" else SEEN_BY.get(one.visibility, "")
        first = one.description.partition(". ")[0]
        table.add_row(one.reference, one.newest or "all deprecated", seen, escape(first))
    PlainConsole().print(table)


def show(
    reference: Reference,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Show a package and its versions."""
    found = client_for(data_folder(data), token).package(reference)
    if as_json:
        print_json(found)
        return
    PlainConsole().print(f"{found.owner}/{found.name}: {found.description}", markup=False)
    tell_seen(found)
    table = Table("version", "pushed", "size", "SHA-256", "", box=None)
    for one in found.versions:
        pushed = f"{one.pushed:%Y-%m-%d %H:%M}" if one.pushed else ""
        said = f"deprecated: {one.deprecated}" if one.deprecated else ""
        table.add_row(one.version, pushed, size_text(one.size), one.digest[:16], said)
    PlainConsole().print(table)


def share(
    reference: Reference,
    visibility: Annotated[
        Visibility, typer.Option("--with", help="Who sees it, may run and download it.")
    ],
    renew: Annotated[bool, typer.Option(help="Make a new link, and end the old one.")] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Say who sees your package; print its link, if it has one."""
    client = client_for(data_folder(data), token)
    shared = client.share_package(client.package(reference), visibility.value, renew=renew)
    (print_json if as_json else tell_seen)(shared)


def open_link(
    link: Annotated[str, typer.Argument(help="The link that its owner gave you.")],
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Take up a package that somebody shares by a link; print what a request names."""
    opened = client_for(data_folder(data), token).open_package(link)
    if as_json:
        print_json(opened)
        return
    PlainConsole().print(opened.reference, markup=False)


def deprecate(
    reference: Annotated[str, typer.Argument(help="NAME@VERSION.")],
    why: Annotated[str, typer.Option(help="The reason; empty takes it back.")],
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Advise against a version: its name alone no longer means it, and who names it may run it."""
    client = client_for(data_folder(data), token)
    found = client.package(reference)
    version = _one_version(reference, found)
    after = client.deprecate_package(found, version.version, why)
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
    found = client.package(reference)
    wanted = [one for one in found.versions if one.version == found.newest]
    version = _one_version(reference, found) if names_version(reference) else wanted[0]
    client.download_package(version, to)
    if as_json:
        print_json({"file": str(to), "package": found.reference, "version": version})
        return
    PlainConsole().print(f"{to}: {found.name} {version.version}, {size_text(version.size)}")


def rm(
    reference: Reference,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Delete your package, or with @VERSION one version; what runs by now goes on."""
    client = client_for(data_folder(data), token)
    found = client.package(reference)
    version = _one_version(reference, found).version if names_version(reference) else ""
    what = confirm_deletion(found.name, version, yes=yes)
    client.delete_package(found, version)
    tell_deleted(found, version, what, as_json=as_json)


def packed(folder: Path) -> bytes:
    """Pack a package's folder; raise ArgumentError for one that is no package."""
    return _refusing(lambda: pack(folder).data)


def _one_version(reference: str, found: SharedPackage) -> PackageVersion:
    if not names_version(reference) or len(found.versions) != 1:
        raise ArgumentError(
            f"{reference!r} names no version.",
            f"Write {found.name}@VERSION; `swathmill package show {found.name}` lists them.",
        )
    return found.versions[0]
