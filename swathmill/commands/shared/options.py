"""Options that several commands share, and the stack options made from them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter

from swathmill.errors import ArgumentError, RefusedError
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import StackOptions
from swathmill.stack.storage import Storage
from tasks.settings import Settings
from tasks.shown_text import shown_in_json

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
StorageOption = Annotated[
    Storage | None,
    typer.Option(
        help="Where data are kept: in files of the data folder (embedded), or in Azurite, which "
        "needs Node. By default what the folder has; a new folder gets embedded storage.",
        show_default=False,
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="SWATHMILL_TOKEN",
        help="Act as the owner of this token, at the portal that SWATHMILL_PORTAL_URL names or "
        "at this machine's stack.",
        show_default=False,
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RegionOption = Annotated[
    Path | None,
    typer.Option(
        help="File with the region, in place of the document's: GeoJSON, zipped shapefile, "
        "GeoPackage, KML, WKT, or a CSV table of sites.",
        show_default=False,
    ),
]

MeasurementsOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="CSV table of measurements, or a folder of them, in place of the document's: "
        "FLUXNET, AmeriFlux BASE, or site, time and values; may be repeated.",
        show_default=False,
    ),
]


@contextmanager
def about(request_id: str) -> Iterator[None]:
    """Report a missing request in the words of the command."""
    try:
        if not request_id.replace("-", "").replace("_", "").isalnum():
            raise _no_request(request_id)
        yield
    except RefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND or request_id not in error.problem:
            raise
        raise _no_request(request_id) from None


def _no_request(request_id: str) -> RefusedError:
    return RefusedError(
        field="",
        problem=f"There is no request {request_id!r}, or it is somebody else's.",
        remedy="`swathmill status` lists yours.",
        status=0,
    )


def print_json(value: object) -> None:
    """Print pydantic models, dataclasses, and lists and mappings of them as JSON."""
    typer.echo(shown_in_json(TypeAdapter(object).dump_json(value, indent=1).decode()))


def data_folder(data: Path | None) -> DataFolder:
    """Return the data folder that an option names, else that of the settings."""
    return DataFolder(path=(data or Settings().data_dir).resolve())


def archive_place(archive: str | None) -> str:
    """Return the archive that an option names, else that of the settings: a path, a URL, or "".

    Raises:
        ArgumentError: the folder does not exist or cannot be read.
    """
    place = archive or Settings().archive
    if not place or "://" in place:
        return place
    named = Path(place)
    if named.is_file():
        raise ArgumentError(
            f"The archive {named} is a file.", "Name the folder of your granules with --archive."
        )
    if not named.is_dir():
        raise ArgumentError(
            f"There is no archive folder {named}.",
            "Name the folder of your granules with --archive, or make a sample: swathmill sample.",
        )
    if not os.access(named, os.R_OK | os.X_OK):
        raise ArgumentError(
            f"The archive folder {named} cannot be read.", "Change its permissions."
        )
    return str(named.resolve())


def no_source(what: str) -> ArgumentError:
    """Make the refusal of a command that has no source of granules."""
    return ArgumentError(
        f"No source of granules is named, so {what}.",
        "Name a folder of granules with --archive, or set SWATHMILL_SOURCES "
        "(docs/archives.md). `swathmill sample FOLDER` makes one to try things out.",
    )


def has_source(options: StackOptions) -> bool:
    """Tell whether the stack has any source of granules."""
    return bool(options.archive or options.settings.sources)


def last_archive(folder: DataFolder) -> str:
    """Return the archive that the last stack of a data folder read, or "".

    Raises:
        ArgumentError: it is absent, for example because its disk is not mounted.
    """
    last = folder.state().archive
    if last and "://" not in last and not Path(last).is_dir():
        raise ArgumentError(
            f"The last used archive folder {last} is absent.",
            "Mount its disk, or name another folder with --archive.",
        )
    return last


def with_some_source(options: StackOptions, say: Callable[[str], None]) -> tuple[StackOptions, str]:
    """Make sure that the options have a source; return also where it comes from, in words.

    The words are empty if a source was named. Otherwise the source is the last used folder, or else
    the sample archive, which is made if absent.

    Raises:
        ArgumentError: the last used folder is absent, for example because its disk is not mounted.
    """
    if has_source(options):
        return options, ""
    # They take a while to import, and `swathmill run` needs neither.
    from reprojection.sample.sample import write_sample_archive
    from tasks.service.sources import SAMPLE

    sample = options.folder.path / SAMPLE
    if options.folder.state().archive != str(sample) and (last := last_archive(options.folder)):
        return replace(options, archive=last), "as the last time; --archive names another"
    if not sample.is_dir():
        say("No source of granules is named: making the sample archive.")
        options.folder.prepare()
        write_sample_archive(sample)
    return replace(options, archive=str(sample)), (
        "the sample archive, synthetic values; --archive FOLDER reads your own granules"
    )


def stack_options(
    *,
    data: Path | None,
    archive: str | None,
    storage: Storage | None,
    workers: int,
    slots: int,
    managers: int = 1,
    port: int = 0,
    grace_seconds: float | None = None,
    give_up_after: int = 0,
) -> StackOptions:
    """Build the options of a command's stack, which catches mail if no mail server is set."""
    settings = Settings()
    return StackOptions(
        folder=data_folder(data),
        archive=archive_place(archive),
        storage=storage,
        workers=workers,
        managers=managers,
        slots=slots,
        portal_port=port,
        catch_mail=not settings.smtp_url,
        grace_seconds=settings.grace_seconds if grace_seconds is None else grace_seconds,
        give_up_after=give_up_after,
        fork=True,
        settings=settings,
    )


def granules_text(number: int) -> str:
    """Count granules in words: 1 granule, 2 granules."""
    return "1 granule" if number == 1 else f"{number} granules"
