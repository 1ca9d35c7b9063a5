"""What an attempt needs of its machine, tried without a task; and which of it a failure met."""

import errno
from collections.abc import Callable
from pathlib import Path
from socket import gethostname

from tasks.errors import SwathmillError
from tasks.service.connect import embedded_folder
from tasks.settings import Settings
from tasks.storage.blobs import PACKAGES, Blobs
from tasks.storage.file_blobs import FileBlobs
from tasks.storage.writable import write_error
from worker.files.cache import Cache
from worker.sandbox import sandbox
from worker.sandbox.messages import ChildSettings, SelfTest

_NO_BLOB = "self-test"  # asked for to see whether storage answers


def self_test(
    test: SelfTest, given: ChildSettings, blobs: Callable[[], Blobs], maker: Callable[[], str]
) -> str:
    """Do what attempts begin with; return what failed, "" for nothing. Runs in a warm child.

    `maker` tries a maker, and returns what failed. A runner has none, as it has no storage.
    """
    if fault := unwritable(given.settings, given.cache, test.scratch):
        return fault
    if fault := _unanswering(given, blobs):
        return f"storage: {fault}"
    if given.settings.storage.get_secret_value() and (fault := maker()):
        return f"granules cannot be read, no maker begins: {fault}"
    if test.sandbox and given.sandbox is not None and (fault := sandbox.fault(given.sandbox)):
        return f"the sandbox does not work: {fault}"
    return ""


def unwritable(settings: Settings, cache: Path, scratch: Path) -> str:
    """Return which folder of this machine cannot be written, and why; "" if all can.

    A full disk is none of it while the cache, which is emptied then, makes room.
    """
    for what, folder in _folders(settings, cache, scratch):
        error = write_error(folder)
        if error is not None and error.errno in (errno.ENOSPC, errno.EDQUOT) and cache.is_dir():
            Cache(cache, 0).shrink(0)
            error = write_error(folder)
        if error is not None:
            return f"{what} cannot be written: {error}"
    return ""


def _unanswering(given: ChildSettings, blobs: Callable[[], Blobs]) -> str:
    """Ask storage something; a runner has none of its own."""
    if not given.settings.storage.get_secret_value():
        return ""
    try:
        storage = blobs()
        is_there(storage, given.settings)
        if not isinstance(storage, FileBlobs):
            Cache(given.cache, 0)
        storage.exists(PACKAGES, _NO_BLOB)
    except Exception as error:  # noqa: BLE001 - whatever it is, no attempt can begin
        return str(error) or type(error).__name__
    return ""


def is_there(storage: Blobs, settings: Settings) -> None:
    """Raise SwathmillError if blobs are files of this machine, and their folder is not there."""
    folder = embedded_folder(settings)
    if isinstance(storage, FileBlobs) and folder is not None and not folder.is_dir():
        raise SwathmillError(f"the folder of storage, {folder}, is not there")


def _folders(settings: Settings, cache: Path, scratch: Path) -> list[tuple[str, Path]]:
    """List the folders that attempts write: those that are made when needed, where they are."""
    made = {"the cache": cache, "packages": settings.data_dir / "packages" / gethostname()}
    storage = embedded_folder(settings)
    blobs = {} if storage is None else {"storage": storage / "blobs"}
    return [
        ("scratch", scratch),
        *((what, folder) for what, folder in made.items() if folder.is_dir()),
        *blobs.items(),
    ]
