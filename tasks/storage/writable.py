"""Whether a folder of this machine can be written: by writing, not by asking for permissions."""

import os
import shutil
from pathlib import Path
from tempfile import mkstemp

_BYTES = 4096
_PREFIX = ".probe-"
_LEAST = 2**20  # bytes; a disk with less free space counts as full


def write_error(folder: Path) -> OSError | None:
    """Write a file into a folder, to the disk, and read it back; return what went wrong."""
    data = os.urandom(_BYTES)
    try:
        handle, name = mkstemp(prefix=_PREFIX, dir=folder)
        try:
            with os.fdopen(handle, "w+b") as file:
                file.write(data)
                file.flush()
                os.fsync(handle)
                file.seek(0)
                if file.read() != data:
                    return OSError(f"{folder} does not give back what was written")
        finally:
            Path(name).unlink()
    except OSError as error:
        return error
    return None


def is_full(folder: Path) -> bool:
    """Tell whether the disk of a folder has no room; of a folder that is gone: no."""
    try:
        return shutil.disk_usage(folder).free < _LEAST
    except OSError:
        return False
