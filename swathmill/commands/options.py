"""Options that several commands share, and the stack they describe."""

import os
from pathlib import Path
from typing import Annotated

import typer

from swathmill.errors import StackError
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import StackOptions
from tasks.settings import Settings

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Data folder (SWATHMILL_DATA_DIR; by default .swathmill in the current folder).",
        show_default=False,
    ),
]
WorkersOption = Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")]
SlotsOption = Annotated[
    int, typer.Option(min=0, help="Attempts each worker runs at once; 0: one per processor.")
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="SWATHMILL_TOKEN",
        help="Token for a portal elsewhere; for this machine's stack none is needed.",
        show_default=False,
    ),
]


def data_folder(data: Path | None) -> DataFolder:
    """The data folder an option names, else the settings'."""
    return DataFolder(path=(data or Settings().data_dir).resolve())


def archive_place(archive: str | None) -> str:
    """The archive an option names, else the settings': a folder's path or a URL, or nothing.

    Raises:
        StackError: there is no such folder, or it cannot be read.
    """
    place = archive or Settings().archive
    if not place or "://" in place:
        return place
    named = Path(place)
    if not named.is_dir():
        raise StackError(
            f"There is no archive folder {named}.",
            "Name the folder of your granules with --archive, or make a sample: swathmill sample.",
        )
    if not os.access(named, os.R_OK | os.X_OK):
        raise StackError(f"The archive folder {named} cannot be read.", "Change its permissions.")
    return str(named.resolve())


def stack_options(
    *,
    data: Path | None,
    archive: str | None,
    workers: int,
    slots: int,
    managers: int = 1,
    port: int = 0,
    grace_seconds: float | None = None,
    give_up_after: int = 0,
) -> StackOptions:
    """What the options ask of a stack. Mail is caught when the settings name no mail server."""
    settings = Settings()
    return StackOptions(
        folder=data_folder(data),
        archive=archive_place(archive),
        workers=workers,
        managers=managers,
        slots=slots,
        portal_port=port,
        catch_mail=not settings.smtp_host,
        grace_seconds=settings.grace_seconds if grace_seconds is None else grace_seconds,
        give_up_after=give_up_after,
        settings=settings,
    )
