"""`swathmill run`: take one request from its document to its files, in one command."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    MeasurementsOption,
    RegionOption,
    SlotsOption,
    StorageOption,
    WorkersOption,
    has_source,
    no_source,
    print_json,
    stack_options,
)
from swathmill.commands.shared.paths import output_folder
from swathmill.console import PlainConsole
from swathmill.stack.stack import Stack, StackOptions

if TYPE_CHECKING:
    from tasks.request.document import Request

GRACE_SECONDS = 5.0
GIVE_UP_AFTER = 5
EXIT_INTERRUPTED = 130


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
    storage: StorageOption = None,
    region: RegionOption = None,
    measurements: MeasurementsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start the stack, run one request, write its results, stop everything.

    Exits 0 if the request completed, 3 if it completed with gaps, 1 if it failed.
    """
    output_folder(out, "--out")
    console = PlainConsole(quiet=as_json)
    options = stack_options(
        data=data,
        archive=archive,
        storage=storage,
        workers=workers,
        slots=slots,
        grace_seconds=GRACE_SECONDS,
        give_up_after=GIVE_UP_AFTER,
    )
    if not has_source(options):
        raise no_source("the request cannot be run")
    stack = Stack(options, say=lambda text: console.print(text, markup=False))
    try:
        stack.begin()  # the workers take longest to start
        document = _read(stack, request, region, measurements or ())
        stack.launch()  # it forks, and a status is a thread
        with console.status("Starting the stack"):
            # Imported while the processes start.
            from swathmill.commands.shared import one_request

            stack.await_ready()
        delivery = one_request.carry_out(stack, options, document, out, console)
    except KeyboardInterrupt:
        _stop_early(stack, console, options)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BaseException:
        stack.stop()
        raise
    with console.status("Stopping the stack"):
        stack.stop()
    if as_json:
        print_json(delivery.summary)
    one_request.tell(console, delivery)
    one_request.tell_portal(console, data, delivery)
    raise typer.Exit(one_request.exit_code(delivery))


def _read(
    stack: Stack, request: Path, region: Path | None, measurements: Sequence[Path]
) -> "Request":
    """Read the request while workers start; end them where it is refused."""
    # Imported while the workers start.
    from tasks.request.request_file import load_request

    try:
        return load_request(request, region, measurements)
    except BaseException:
        stack.kill()
        raise


def _stop_early(stack: Stack, console: PlainConsole, options: StackOptions) -> None:
    console.print("Interrupted: stopping. Ctrl-C again ends it at once.")
    try:
        stack.stop()
    except KeyboardInterrupt:
        stack.kill()
    console.print(
        f"Stopped. Nothing is lost: the same command continues from here ({options.folder.path}).",
        markup=False,
    )
