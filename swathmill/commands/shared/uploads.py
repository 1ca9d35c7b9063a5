"""The commands that all kinds of uploads have: list, show, share, open and rm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import typer
from rich.table import Column, Table

from swathmill.access import client_for
from swathmill.answers import SharedPackage, SharedRaster, Upload
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    TokenOption,
    data_folder,
    print_json,
)
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError
from tasks.answers.uploads import Visibility

SEEN_BY = {"private": "you alone", "link": "those with its link", "everyone": "everyone"}
_U = TypeVar("_U", SharedPackage, SharedRaster)
Cells = Sequence[str]


Reference = Annotated[
    str, typer.Argument(help="NAME or OWNER/NAME, with @VERSION for one version.")
]


@dataclass(frozen=True, kw_only=True)
class UploadCommands(Generic[_U]):
    """What the commands about a kind of uploads say: words, and the columns of their tables."""

    kind: type[_U]
    word: str
    use: str  # what one may do with one
    sharing: str  # the help of who sees one
    goes_on: str  # what a deletion leaves
    heads: Cells
    row: Callable[[_U], Cells]
    about: Callable[[_U], str]
    version_heads: Sequence[Column | str]
    version_rows: Callable[[_U], Sequence[Cells]]


def add_upload_commands(group: typer.Typer, of: UploadCommands[_U]) -> None:
    """Add the commands that all kinds of uploads have to a kind's group."""
    kind, word = of.kind, of.word

    @group.command("list", help=f"List the {word}s that you may {of.use}.")
    def list_uploads(
        as_json: JsonOption = False, data: DataOption = None, token: TokenOption = None
    ) -> None:
        found = client_for(data_folder(data), token).uploads(kind)
        if as_json:
            print_json(found)
            return
        _print_table(of.heads, [of.row(one) for one in found])

    @group.command(help=f"Show a {word} and its versions.")
    def show(
        reference: Reference,
        as_json: JsonOption = False,
        data: DataOption = None,
        token: TokenOption = None,
    ) -> None:
        found = client_for(data_folder(data), token).upload(kind, reference)
        if as_json:
            print_json(found)
            return
        PlainConsole().print(f"{found.owner}/{found.name}: {of.about(found)}", markup=False)
        _tell_seen(found)
        _print_table(of.version_heads, of.version_rows(found))

    @group.command(help=f"Say who sees your {word}; print its link, if it has one.")
    def share(
        reference: Reference,
        visibility: Annotated[Visibility, typer.Option("--with", help=of.sharing)],
        renew: Annotated[bool, typer.Option(help="Make a new link, and end the old one.")] = False,
        as_json: JsonOption = False,
        data: DataOption = None,
        token: TokenOption = None,
    ) -> None:
        client = client_for(data_folder(data), token)
        shared = client.share(client.upload(kind, reference), visibility.value, renew=renew)
        (print_json if as_json else _tell_seen)(shared)

    @group.command(
        "open",
        help=f"Take up a {word} that somebody shares by a link; print what a request names.",
    )
    def open_link(
        link: Annotated[str, typer.Argument(help="The link that its owner gave you.")],
        as_json: JsonOption = False,
        data: DataOption = None,
        token: TokenOption = None,
    ) -> None:
        opened = client_for(data_folder(data), token).open_link(kind, link)
        if as_json:
            print_json(opened)
            return
        PlainConsole().print(opened.reference, markup=False)

    @group.command(help=f"Delete your {word}, or with @VERSION one version; {of.goes_on}.")
    def rm(
        reference: Reference,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
        as_json: JsonOption = False,
        data: DataOption = None,
        token: TokenOption = None,
    ) -> None:
        client = client_for(data_folder(data), token)
        found = client.upload(kind, reference)
        version = one_version(reference, found) if names_version(reference) else ""
        what = (
            f"version {version} of {found.name}" if version else f"{found.name} with all versions"
        )
        if not yes:
            typer.confirm(f"Delete {what}?", abort=True)
        client.delete(found, version)
        if as_json:
            print_json({"deleted": found.reference, "version": version})
            return
        PlainConsole().print(f"Deleted: {what}.", markup=False)


def names_version(reference: str) -> bool:
    """Tell whether a reference names one version."""
    return "@" in reference.rpartition("/")[2]


def one_version(reference: str, found: Upload) -> str:
    """Return the version that a reference names; raise ArgumentError where it names none."""
    if not names_version(reference) or len(found.versions) != 1:
        word = found.place.removesuffix("s")
        raise ArgumentError(
            f"{reference!r} names no version.",
            f"Write {found.name}@VERSION; `swathmill {word} show {found.name}` lists them.",
        )
    return found.versions[0].version


def tell_link(shared: Upload) -> None:
    """Print its link, if it has one."""
    if shared.link:
        PlainConsole().print(f"Link: {shared.link}", markup=False)


def tell_pushed(pushed: Upload, *lines: str) -> None:
    """Print what a push has stored: its exact name, how a request names it, and its link."""
    newest = next(one for one in pushed.versions if one.version == pushed.newest)
    exact = f"{pushed.owner}/{pushed.name}@{newest.version}  {newest.digest}"
    for line in (exact, *lines):
        PlainConsole().print(line, markup=False)
    tell_link(pushed)


def _tell_seen(shared: Upload) -> None:
    seen = SEEN_BY.get(shared.visibility, shared.visibility)
    PlainConsole().print(f"{shared.name} is seen by {seen}.", markup=False)
    tell_link(shared)


def _print_table(heads: Sequence[Column | str], rows: Sequence[Cells]) -> None:
    table = Table(*heads, box=None)
    for row in rows:
        table.add_row(*row)
    PlainConsole().print(table)
