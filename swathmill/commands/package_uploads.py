"""Commands about packages in the portal: upload, list, show, share, deprecate, download, delete."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from portal.serving.quantities import size_text
from swathmill.access import client_for
from swathmill.answers import SharedPackage
from swathmill.commands.package import group_in, refusing
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
from tasks.answers.uploads import Visibility
from tasks.packages.packages import pack


def register(app: typer.Typer) -> None:
    """Add the commands to the group of those about packages."""
    group = group_in(app)
    group.command()(push)
    add_upload_commands(group, _SHARED)
    group.command()(deprecate)
    group.command()(download)


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
    return refusing(lambda: pack(folder).data)


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
