"""`swathmill up`: run the stack until Ctrl-C."""

import time
from pathlib import Path
from typing import Annotated

import typer

from archives.fetch.files import LocalFiles
from modis.formats import GRANULE_SUFFIXES
from portal.serving.tokens import Role
from swathmill.access import sign_in_link
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    SlotsOption,
    StorageOption,
    WorkersOption,
    print_json,
    stack_options,
    with_some_source,
)
from swathmill.console import PlainConsole
from swathmill.errors import StackError
from swathmill.stack.stack import Stack, StackOptions

TICK_SECONDS = 0.2


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(up)


def up(
    data: DataOption = None,
    archive: Annotated[
        str | None,
        typer.Option(
            help="Folder or URL of granules that requests read from; default: the last archive "
            "used, else the sample archive."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Portal's port; 0: a free one.")] = 0,
    workers: WorkersOption = 1,
    slots: SlotsOption = 0,
    managers: Annotated[
        int, typer.Option(min=1, max=8, help="Service managers; one acts, the others stand by.")
    ] = 1,
    storage: StorageOption = None,
    owner: Annotated[
        str, typer.Option(help="Who the printed sign-in link signs in.")
    ] = "operator@localhost",
    as_json: JsonOption = False,
) -> None:
    """Run the stack until Ctrl-C, and print the portal's address with a sign-in link."""
    console = PlainConsole(stderr=as_json)
    options = stack_options(
        data=data,
        archive=archive,
        storage=storage,
        workers=workers,
        slots=slots,
        managers=managers,
        port=port,
    )
    options, chosen = with_some_source(options, console.print)
    stack = Stack(options, say=lambda text: console.print(text, markup=False))
    stack.launch()  # it forks, and a status is a thread
    with console.status("Starting the stack"):
        stack.await_ready()
    mail = options.folder.mail if options.catch_mail else None
    told = {
        "portal": stack.portal_url,
        "sign_in": sign_in_link(stack.portal_url, options.folder, owner, Role.OPERATOR),
        "data": options.folder.path,
        "sources": sources_line(options),
        "mail": mail,
    }
    if as_json:
        print_json(told)
    console.print(f"Portal   {told['portal']}")
    console.print(f"Sign in  {told['sign_in']}")
    console.print(f"Data     {told['data']}")
    console.print(f"Sources  {told['sources']}{f' ({chosen})' if chosen else ''}")
    if warning := archive_warning(options.archive):
        console.print(warning, markup=False)
    if mail is not None:
        console.print(f"Mail     kept in {mail}")
    console.print("Ctrl-C stops the stack; everything is kept.")
    run_until_interrupted(stack, console)


def sources_line(options: StackOptions) -> str:
    """Describe where granules come from."""
    return ", ".join(filter(None, (options.settings.sources, options.archive)))


def archive_warning(archive: str) -> str:
    """Say what to do when the archive is a folder of this machine without granules; "" if not."""
    if not archive or "://" in archive or next(LocalFiles(Path(archive)).stamps(), None):
        return ""
    return (
        f"Warning: {archive} holds no granules ({', '.join(GRANULE_SUFFIXES)}), so requests find "
        "none. Put granules into it, also while the stack runs, or name another folder with "
        "--archive."
    )


def run_until_interrupted(stack: Stack, console: PlainConsole) -> None:
    """Look after the stack until Ctrl-C or SIGTERM, then stop it; kill it at a second Ctrl-C."""
    try:
        while True:
            stack.tick()
            time.sleep(TICK_SECONDS)
    except KeyboardInterrupt:
        console.print("Stopping; running attempts are handed back. Ctrl-C again ends it at once.")
        try:
            stack.stop()
        except KeyboardInterrupt:
            stack.kill()
        console.print("Stopped.")
    except StackError:
        stack.stop()
        raise
    except BaseException:
        stack.kill()
        raise
