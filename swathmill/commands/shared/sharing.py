"""What the commands about packages and rasters share: who sees them, links, versions, deletion."""

from enum import StrEnum
from typing import Annotated

import typer

from swathmill.client import SharedPackage, SharedRaster
from swathmill.commands.shared.options import print_json
from swathmill.console import PlainConsole

SEEN_BY = {"private": "you alone", "link": "those with its link", "everyone": "everyone"}


class Visibility(StrEnum):
    """Who sees a package or a raster."""

    PRIVATE = "private"
    LINK = "link"
    EVERYONE = "everyone"


Reference = Annotated[
    str, typer.Argument(help="NAME or OWNER/NAME, with @VERSION for one version.")
]


def names_version(reference: str) -> bool:
    """Tell whether a reference names one version."""
    return "@" in reference.rpartition("/")[2]


def tell_seen(shared: SharedPackage | SharedRaster) -> None:
    """Print who sees it, and its link, if it has one."""
    seen = SEEN_BY.get(shared.visibility, shared.visibility)
    PlainConsole().print(f"{shared.name} is seen by {seen}.", markup=False)
    tell_link(shared)


def tell_link(shared: SharedPackage | SharedRaster) -> None:
    """Print its link, if it has one."""
    if shared.link:
        PlainConsole().print(f"Link: {shared.link}", markup=False)


def confirm_deletion(name: str, version: str, *, yes: bool) -> str:
    """Ask whether to delete a version, or all without one; return in words what is deleted."""
    what = f"version {version} of {name}" if version else f"{name} with all versions"
    if not yes:
        typer.confirm(f"Delete {what}?", abort=True)
    return what


def tell_deleted(
    shared: SharedPackage | SharedRaster, version: str, what: str, *, as_json: bool
) -> None:
    """Print what was deleted: in words, or as JSON with an empty version for all."""
    if as_json:
        print_json({"deleted": shared.reference, "version": version})
        return
    PlainConsole().print(f"Deleted: {what}.", markup=False)
