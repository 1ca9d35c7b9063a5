"""`swathmill run`: take one request from its document to its files, in one command."""

import shlex
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reprojection.write.picture import write_png
from swathmill.access import local_client
from swathmill.commands.options import (
    DataOption,
    SlotsOption,
    WorkersOption,
    has_source,
    stack_options,
)
from swathmill.commands.paths import output_folder
from swathmill.commands.up import interrupt
from swathmill.delivery import (
    EXIT_CODES,
    EXIT_FAILED,
    Delivery,
    collect_mails,
    fetch_results,
    read_mail,
    write_summary,
)
from swathmill.errors import ArgumentError
from swathmill.following import Follower, Unfinished
from swathmill.lacks import gap_lines, incomplete_lines
from swathmill.progress import ProgressView
from swathmill.stack import programs
from swathmill.stack.stack import Stack, StackOptions
from tasks.request.document import Request, load_request

GRACE_SECONDS = 5.0
GIVE_UP_AFTER = 5
EXIT_INTERRUPTED = 130
SHOWN = 12


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(run)


def run(
    request: Annotated[Path, typer.Argument(help="Request document, YAML or JSON.")],
    out: Annotated[Path, typer.Option(help="Folder for results, summary, mail and picture.")],
    archive: Annotated[str | None, typer.Option(help="Folder or URL of granules.")] = None,
    data: DataOption = None,
    workers: WorkersOption = 1,
    slots: SlotsOption = 0,
) -> None:
    """Start the stack, run one request, write its results, stop everything.

    Exits 0 if the request completed, 3 if it completed with gaps, 1 if it failed.
    """
    document = load_request(request)
    output_folder(out, "--out")
    console = Console(highlight=False, soft_wrap=True)
    options = stack_options(
        data=data,
        archive=archive,
        workers=workers,
        slots=slots,
        grace_seconds=GRACE_SECONDS,
        give_up_after=GIVE_UP_AFTER,
    )
    if not has_source(options):
        raise ArgumentError(
            "No source of granules is named, so the request cannot be run.",
            "Name a folder of granules with --archive, or set SWATHMILL_SOURCES "
            "(docs/archives.md). `swathmill sample FOLDER` makes one to try things out.",
        )
    signal.signal(signal.SIGTERM, interrupt)
    stack = Stack(options, say=lambda text: console.print(text, markup=False))
    try:
        with console.status("Starting the stack"):
            stack.start()
        delivery = _carry_out(stack, options, document, out, console)
    except KeyboardInterrupt:
        _stop_early(stack, console, options)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BaseException:
        stack.stop()
        raise
    with console.status("Stopping the stack"):
        stack.stop()
    _tell(console, delivery)
    _tell_portal(console, data, delivery)
    raise typer.Exit(EXIT_CODES.get(delivery.summary.state, EXIT_FAILED))


def _carry_out(
    stack: Stack, options: StackOptions, document: Request, out: Path, console: Console
) -> Delivery:
    caught = frozenset(path.name for path in options.folder.mail.glob("*.eml"))
    client = local_client(options.folder)
    unfinished = Unfinished(folder=options.folder, request=document, archive=options.archive)
    request_id = unfinished.take_up(client)
    if request_id:
        console.print(f"Request {request_id} continues where it was interrupted.")
    else:
        request_id = client.submit(document).id
        unfinished.remember(request_id)
        console.print(f"Request {request_id}: {document.title or 'no title'}", markup=False)
    with ProgressView(console) as view:
        follower = Follower(client=client, tick=stack.tick, view=view)
        status = follower.until_ended(request_id)
    status = status.model_copy(
        update={
            "gaps": tuple(client.gaps(request_id)),
            "failures": tuple(client.failures(request_id)),
        }
    )
    unfinished.forget()
    files = fetch_results(client, request_id, out, tick=stack.tick)
    mails = collect_mails(
        options.folder.mail,
        caught,
        out,
        expected=bool(document.notify) and options.catch_mail,
        tick=stack.tick,
    )
    picture = _picture([path for _, path in files], out)
    return write_summary(out, status, files, mails, picture)


def _picture(results: list[Path], out: Path) -> Path | None:
    """Draw the first raster among the results; return None if there is none."""
    rasters = sorted(path for path in results if path.suffix == ".tif")
    if not rasters:
        return None
    picture = out / "picture.png"
    write_png(rasters[0], picture)
    return picture


def _stop_early(stack: Stack, console: Console, options: StackOptions) -> None:
    console.print("Interrupted: stopping. Ctrl-C again ends it at once.")
    try:
        stack.stop()
    except KeyboardInterrupt:
        stack.kill()
    console.print(
        f"Stopped. Nothing is lost: the same command continues from here ({options.folder.path}).",
        markup=False,
    )


def _tell(console: Console, delivery: Delivery) -> None:
    summary = delivery.summary
    console.print(f"\nRequest {summary.request}: {summary.state} ({summary.message})", markup=False)
    _tell_some(console, gap_lines(summary.gaps))
    _tell_some(console, incomplete_lines(summary.files))
    _tell_some(
        console,
        [
            f"failed: {failure.output or failure.name} ({failure.category}): {failure.message}"
            for failure in summary.failures
        ],
    )
    for mail in delivery.mails:
        console.print(f"\n--- mail, {mail} ---\n{read_mail(mail)}\n---", markup=False)
    console.print("\nResults")
    _tell_some(console, [str(path) for path in delivery.results])
    console.print(f"Summary  {delivery.summary_path}", markup=False)
    for mail in delivery.mails:
        console.print(f"Mail     {mail}", markup=False)
    if delivery.picture is not None:
        console.print(f"Picture  {delivery.picture}", markup=False)


def _tell_portal(console: Console, data: Path | None, delivery: Delivery) -> None:
    """Say how to see the request in the portal, because the stack of this command has stopped."""
    command = "make up" if programs.checkout() else "swathmill up"
    if data:
        command = f"swathmill up --data {shlex.quote(str(data))}"
    title = delivery.summary.title or delivery.summary.request
    console.print(
        f"Portal   `{command}` starts it over the same data. Open the link that it prints and "
        f'click on "{title}": results, pictures, progress. "New request" makes the next one.',
        markup=False,
    )


def _tell_some(console: Console, lines: list[str]) -> None:
    for line in lines[:SHOWN]:
        console.print(f"  {line}", markup=False)
    if len(lines) > SHOWN:
        console.print(f"  and {len(lines) - SHOWN} more, all in the summary", markup=False)
