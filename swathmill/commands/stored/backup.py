"""`swathmill export` and `swathmill restore`: write all tables to one file, and read it back."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

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
from tasks.storage.blobs import PLANS


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(export)
    app.command()(restore)


def export(
    file: Annotated[Path, typer.Argument(help="File to write, such as tables.jsonl.gz.")],
    to: Annotated[
        str,
        typer.Option(
            help="Storage that gets a copy of all blobs and of the file: another account, as "
            "SWATHMILL_STORAGE names one, or file:/FOLDER.",
            show_default=False,
        ),
    ] = "",
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Write all tables and plans into one file, and with --to copy all blobs.

    Work goes on. What had not ended is planned into the tables again where they are restored.
    """
    output_file(file, "FILE")
    with open_storage(data_folder(data), alone=False) as runtime:
        if not any(request_operations.list_requests(runtime, limit=1)):
            raise ArgumentError(
                "There is nothing to export: no request was made in this data folder.",
                "Name the data folder of your stack with --data.",
            )
        say = PlainConsole(quiet=as_json).print
        totals = write(runtime, file)
        say(f"{file}: {totals.rows} rows, {totals.blobs} plans and documents")
        copies = copy_to(runtime, file, to) if to else backup.Copies()
    if as_json:
        print_json({"file": file, **asdict(totals), **asdict(copies)})
        return
    if to:
        gone = f", {copies.gone:,} were deleted meanwhile" if copies.gone else ""
        say(
            f"{copies.copied:,} blobs ({copies.size / 1e6:,.1f} MB) are copied, {copies.there:,} "
            f"were there{gone}. To restore: SWATHMILL_STORAGE of the copy, `swathmill restore`."
        )


def restore(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="File that `swathmill export` wrote. Default: the newest that `export --to` put "
            "into this storage."
        ),
    ] = None,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Write an exported file into empty tables. Start the stack afterwards."""
    if file is not None:
        input_files([file], "FILE")
        backup.check(file)
    with (
        open_storage(data_folder(data), alone=True) as runtime,
        tempfile.TemporaryDirectory() as folder,
    ):
        file = file or _copied(runtime, Path(folder))
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


def _copied(runtime: Runtime, folder: Path) -> Path:
    """Fetch the newest exported file of a storage. Raises ArgumentError."""
    name = backup.newest_export(runtime.blobs)
    if not name:
        raise ArgumentError(
            "This storage holds no export.", "Name a FILE, or the storage of `export --to`."
        )
    file = folder / Path(name).name
    runtime.blobs.get_file(PLANS, name, file)
    return file


def copy_to(runtime: Runtime, file: Path, storage: str) -> backup.Copies:
    """Copy all blobs to another storage, and the file after them."""
    target = connect_storage(storage)
    copies = backup.Copies()
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        for done in backup.copy_blobs(runtime.blobs, target.blobs, Path(folder)):
            copies = done
    backup.put_export(target.blobs, file, runtime.clock.now())
    return copies


def write(runtime: Runtime, file: Path) -> backup.Totals:
    """Export all tables while everybody goes on."""
    totals = backup.Totals()
    for done in backup.export(runtime.store, runtime.blobs, runtime.clock, file):
        totals = done
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
