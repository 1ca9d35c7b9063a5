"""Check paths of the command line before a command begins."""

import os
from collections.abc import Sequence
from errno import EACCES
from pathlib import Path

from swathmill.errors import ArgumentError


def input_files(files: Sequence[Path], argument: str) -> None:
    """Refuse a path that is not a file.

    Raises:
        ArgumentError: the file does not exist, or it is a folder.
    """
    for file in files:
        if not file.exists():
            raise ArgumentError(f"{argument} {file}: there is no such file.", "Correct the path.")
        if file.is_dir():
            raise ArgumentError(f"{argument} {file} is a folder.", "Name a file in it.")


def output_folder(folder: Path, option: str) -> Path:
    """Return a folder that files can be written into; make it if it is absent.

    Raises:
        ArgumentError: it cannot be made or written.
    """
    if folder.is_file():
        raise ArgumentError(f"{option} {folder} is a file.", "Name a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(EACCES, os.strerror(EACCES))
    except OSError as error:
        raise ArgumentError(
            f"{option} {folder} cannot be written: {error.strerror}.", "Name another folder."
        ) from error
    return folder


def output_file(file: Path, option: str) -> Path:
    """Return a file that can be written, in a folder that exists.

    Raises:
        ArgumentError: it is a folder, or it cannot be written.
    """
    for wrong, why in (
        (file.is_dir(), "it is a folder"),
        (not file.parent.is_dir(), f"there is no folder {file.parent}"),
        (not os.access(file.parent, os.W_OK | os.X_OK), f"{file.parent} is closed to you"),
    ):
        if wrong:
            raise ArgumentError(f"{option} {file} cannot be written: {why}.", "Name another file.")
    return file
