"""Which managers of this machine live: each holds a locked file, named by its holder id.

The kernel releases the lock with the process. So after a power cut, or a kill, the next manager
need not wait for the lease of one that cannot renew it. On other machines nothing is known.
"""

from contextlib import suppress
from io import BufferedWriter
from pathlib import Path

from processes.locks import try_lock


class Holders:
    """The files of one machine's managers, in a folder that no other machine uses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: BufferedWriter | None = None

    def enter(self, holder: str) -> None:
        """Show that this process lives, until it ends.

        Raises:
            OSError: the file cannot be made.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._own = try_lock(self._folder / holder)

    def leave(self) -> None:
        """Show no longer that this process lives."""
        if self._own is not None:
            Path(self._own.name).unlink(missing_ok=True)
            self._own.close()
            self._own = None

    def has_ended(self, holder: str) -> bool:
        """Tell whether the process of a holder is known to have ended."""
        path = self._folder / holder
        if not holder or not path.exists():
            return False
        lock = try_lock(path)
        if lock is None:
            return False
        lock.close()
        return True

    def sweep(self) -> None:
        """Remove the files of processes that have ended."""
        for path in self._folder.iterdir():
            lock = try_lock(path)
            if lock is not None:
                with lock, suppress(FileNotFoundError):
                    path.unlink()
