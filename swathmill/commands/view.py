"""`swathmill view`: show a folder of granules on a map, until Ctrl-C."""

import secrets
import socket
import webbrowser
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from archives.fetch.files import LocalFiles
from modis.formats import GRANULE_SUFFIXES
from portal.http_server import Server, server_config
from portal.viewer.app import viewer_app
from portal.viewer.folder import FolderRead, read_folder
from portal.views.state import Views
from swathmill.commands.shared.options import JsonOption, print_json
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError
from swathmill.stack.ports import LOOPBACK
from tasks.service import logs
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.clock import SystemClock

_MOST_NAMED = 3  # files that are said not to be shown


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(view)


def view(
    folder: Annotated[Path, typer.Argument(help="Folder of granules, its subfolders included.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: a free one.")] = 0,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a folder of granules on a map in the browser, until Ctrl-C. Nothing is copied or kept.

    Only this machine reaches the page, and whoever uses it.
    """
    console = PlainConsole(stderr=as_json)
    _check(folder)
    logs.configure("warning", process="view")
    with _bound(port) as listener, TemporaryDirectory(prefix="swathmill-view-") as data:
        address = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        settings = Settings.model_validate(
            {
                "archive": str(folder.resolve()),
                "sources": "folder",
                "data_dir": data,
                "secret": secrets.token_hex(),
                "portal_url": address,
            }
        )
        runtime = memory_runtime(SystemClock())
        app = viewer_app(settings, runtime)
        app.state.portal.state(Views).begin()  # it starts while the folder is read
        with console.status("Reading the granules"):
            found = read_folder(settings, runtime)
        if not found.products:
            raise ArgumentError(
                f"Of no file in {folder} it is known which granule it is: {_named(found.unnamed)}.",
                "Keep the names that the archive gave them.",
            )

        def say() -> None:
            _say(console, found, address)
            if as_json:
                print_json({"address": address, **vars(found)})
            if open_page:
                webbrowser.open(address)

        server = Server(server_config(app, log_config=None), app.state.portal.stopping, say)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    console.print("Ended.")


def _check(folder: Path) -> None:
    """Refuse what is no folder of granules. Raises ArgumentError."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ArgumentError(f"FOLDER {folder} {what}.", "Name a folder of granules.")
    if next(LocalFiles(folder).stamps(), None) is None:
        raise ArgumentError(
            f"FOLDER {folder} holds no granules ({', '.join(GRANULE_SUFFIXES)}).",
            "Name another one; `swathmill sample FOLDER` makes some to try.",
        )


def _bound(port: int) -> socket.socket:
    """Take a loopback port. Raises ArgumentError."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((LOOPBACK, port))
    except OSError as error:
        made.close()
        raise ArgumentError(
            f"Port {port} cannot be used: {error.strerror}.",
            "Name another one with --port, or none for a free one.",
        ) from error
    return made


def _say(console: PlainConsole, found: FolderRead, address: str) -> None:
    many = sum(found.products.values())
    what = f"{many} granule{'s' if many != 1 else ''} of {', '.join(found.products)}"
    console.print(f"Folder  {what}", markup=False)
    if found.unreadable:
        console.print(f"Cannot be read: {_named(found.unreadable)}", markup=False)
    if found.unnamed:
        console.print(f"Not known which granules: {_named(found.unnamed)}", markup=False)
    console.print(f"Map     {address}", markup=False)
    console.print("Ctrl-C ends it; nothing is kept.")


def _named(files: tuple[str, ...]) -> str:
    more = len(files) - _MOST_NAMED
    return ", ".join(files[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
