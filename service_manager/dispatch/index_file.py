"""The archive's index is one process's own: a second manager over the same folder takes another.

So does a manager of a build whose indexes have another schema.
"""

import itertools
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

from archives.kinds.folder import index_name
from processes.locks import try_lock


@dataclass(frozen=True, kw_only=True)
class IndexFile:
    """An index file and the lock that makes it ours, which the kernel releases with the process.

    A manager that was stalled in the middle of a write would hold SQLite's own lock, and the next
    manager would wait for it.
    """

    path: Path
    lock: BufferedWriter

    @classmethod
    def take(cls, folder: Path) -> "IndexFile":
        """Take the first index in the folder that no living process holds. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            suffix = "" if number == 1 else f"-{number}"
            path = folder / index_name(f"archive-index{suffix}")
            lock = try_lock(path.with_suffix(".lock"))
            if lock is not None:
                return cls(path=path, lock=lock)
        raise AssertionError("unreachable: some number is free")

    def close(self) -> None:
        """Let go of the index."""
        self.lock.close()
