"""Whether a folder of this machine can be written: by writing, not by asking for permissions."""

import os
from pathlib import Path
from tempfile import mkstemp

_BYTES = 4096
_PREFIX = ".probe-"


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
