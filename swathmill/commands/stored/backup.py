"""`swathmill export` and `swathmill restore`: write all tables to one file, and read it back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from service_manager.leader.leadership import Leadership
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    data_folder,
    print_json,
)
from swathmill.commands.shared.paths import input_files, output_file
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError, StackError
from swathmill.stack import storage
from swathmill.stack.azurite import AzuriteServer
from swathmill.stack.folder import DataFolder, FolderLock, is_running
from swathmill.stack.storage import Storage
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.requests import request_operations
from tasks.service import backup
from tasks.service.connect import connect_storage
from tasks.settings import Settings

_EVERY = 500  # rows between two checks of the lease


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(export)
    app.command()(restore)


def export(
    file: Annotated[Path, typer.Argument(help="File to write, such as tables.jsonl.gz.")],
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Write all tables and plans into one file.

    Workers may continue; the manager stands by.
    """
    output_file(file, "FILE")
    with open_storage(data_folder(data), alone=False) as runtime:
        if not any(request_operations.list_requests(runtime, limit=1)):
            raise ArgumentError(
                "There is nothing to export: no request was made in this data folder.",
                "Name the data folder of your stack with --data.",
            )
        say = PlainConsole(quiet=as_json).print
        totals = write(runtime, file, Settings().lease_seconds, say)
    if as_json:
        print_json({"file": file, **asdict(totals)})
        return
    PlainConsole().print(f"{file}: {totals.rows} rows, {totals.blobs} plans and documents")


def restore(
    file: Annotated[Path, typer.Argument(help="File that `swathmill export` wrote.")],
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Write an exported file into empty storage. Start the stack afterwards."""
    input_files([file], "FILE")
    backup.check(file)
    with open_storage(data_folder(data), alone=True) as runtime:
        totals = backup.restore(runtime.store, runtime.blobs, runtime.clock, file)
        absent = backup.absent_artifacts(runtime.store, runtime.blobs)
    if as_json:
        print_json({"file": file, **asdict(totals), "absent": absent})
        return
    console = PlainConsole()
    console.print(f"{totals.rows} rows, {totals.blobs} plans and documents are restored.")
    if absent:
        console.print(
            f"The files of {absent} finished tasks are not in this storage. Copy the containers "
            "artifacts and granules there; what is not copied is made again where another task "
            "needs it, and cannot be downloaded."
        )


def write(runtime: Runtime, file: Path, lease: float, say: Callable[[str], None]) -> backup.Totals:
    """Export while no manager acts.

    `lease` is in seconds; within it, an acting manager gives way.

    Raises:
        FencedError: another manager took over meanwhile; the file stays as it was.
    """
    leadership = Leadership(runtime, lease)
    totals = backup.Totals()
    try:
        for number, _ in enumerate(leadership.seize()):
            if not number:
                say(f"A manager acts; it gives way within {lease:g} s.")
        for number, done in enumerate(
            backup.export(runtime.store, runtime.blobs, runtime.clock, file, leadership.renew)
        ):
            totals = done
            if number % _EVERY == 0:
                leadership.renew()
    finally:
        leadership.release()
    return totals


@contextmanager
def open_storage(folder: DataFolder, *, alone: bool) -> Iterator[Runtime]:
    """Open the storage of the settings or the data folder; start Azurite if that is not running.

    With `alone`, refuse a data folder on which a stack runs.
    """
    named = Settings().storage.get_secret_value()
    try:
        if named:
            yield connect_storage(named)
        elif is_running(folder):
            if alone:
                raise StackError(
                    f"A stack runs on the data folder {folder.path}.",
                    "Stop it, or name a new folder with --data.",
                )
            yield connect_storage(storage.setting(folder, storage.choose(folder, None)))
        else:
            with _started(folder) as setting:
                yield connect_storage(setting)
    except StoreError as error:
        raise StackError(f"Storage does not answer: {error}", "Is it the right one?") from error


@contextmanager
def _started(folder: DataFolder) -> Iterator[str]:
    """Keep stacks from the folder, start what its storage needs; SWATHMILL_STORAGE for it."""
    kind = storage.choose(folder, None)
    folder.prepare()
    with FolderLock(folder):
        if kind is Storage.EMBEDDED:
            yield storage.embedded(folder)
            return
        server = AzuriteServer.on_free_ports(
            folder=folder.azurite,
            log=folder.log("azurite"),
            account=folder.secrets().account,
            preferred=folder.state().azurite_ports,
        )
        child = server.start()
        try:
            yield server.connection_string
        finally:
            child.stop()
