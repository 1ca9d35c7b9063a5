"""`swathmill upgrade`: end an upgrade, so that rows are written as the newer build does."""

from typing import Annotated

import typer

from swathmill.commands.shared.options import DataOption, JsonOption, data_folder, print_json
from swathmill.commands.stored.backup import open_storage
from swathmill.console import PlainConsole
from swathmill.errors import StackError
from tasks.bag.runtime import Runtime
from tasks.operators import row_schema
from tasks.storage.schema import SCHEMA


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(upgrade)


def upgrade(
    finish: Annotated[
        bool, typer.Option("--finish", help="End it: older builds cannot work here any more.")
    ] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Show how rows are written, and with --finish write them as this build does.

    Until then portals, managers and workers of the build before this one may run beside it.
    """
    console = PlainConsole(quiet=as_json)
    with open_storage(data_folder(data), alone=False) as runtime:
        _upgrade(runtime, console, finish=finish)
        if as_json:
            print_json({"written": row_schema.noted(runtime), "build": SCHEMA})


def _upgrade(runtime: Runtime, console: PlainConsole, *, finish: bool) -> None:
    noted = row_schema.noted(runtime)
    if noted == SCHEMA:
        console.print(f"Rows are written as schema {noted}, which is that of this build.")
        return
    if not finish:
        console.print(
            f"Rows are written as schema {noted}, and this build has {SCHEMA}. When all "
            "portals, managers and workers are of this build, run "
            "`swathmill upgrade --finish`, and restart them one after another."
        )
        return
    try:
        row_schema.finish(runtime)
    except row_schema.OlderBuildsError as error:
        raise StackError(str(error), "Nothing was changed.") from None
    console.print(f"Rows are written as schema {SCHEMA} from each process's next start on.")
