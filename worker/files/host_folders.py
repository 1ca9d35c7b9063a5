"""Folders that the workers of one host share below a data folder: cache, packages, processors.

A container that is made anew has a new host name. What the former one left, up to the bound of its
cache, is removed when the next one starts.
"""

from io import BufferedWriter
from pathlib import Path

import structlog

from processes.folders import remove_folder
from processes.locks import hold_shared, try_lock

_KINDS = ("cache", "packages", "processors")

_log = structlog.get_logger("worker")


class HostFolders:
    """The folders of a host, held until `close` or the end of the process."""

    def __init__(self, data_dir: Path, host: str) -> None:
        self._data_dir = data_dir
        self._locks = data_dir / "hosts"
        self._locks.mkdir(parents=True, exist_ok=True)
        self._host = host
        self._held: BufferedWriter = hold_shared(self._locks / f"{host}.lock")

    def remove_abandoned(self) -> tuple[str, ...]:
        """Remove the folders of hosts of which no process lives; return their names."""
        removed = []
        for path in sorted(self._locks.glob("*.lock")):
            lock = try_lock(path) if path.stem != self._host else None
            if lock is None:
                continue
            with lock:
                for kind in _KINDS:
                    try:
                        remove_folder(self._data_dir / kind / path.stem)
                    except OSError as error:
                        _log.warning("folder not removed", kind=kind, error=str(error))
                path.unlink()
            removed.append(path.stem)
        return tuple(removed)

    def close(self) -> None:
        """Let go of the folders; they stay for the next process of this host."""
        self._held.close()
