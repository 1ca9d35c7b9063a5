"""One SQLite file that the threads of several processes read and write at once.

The file is in WAL mode: a commit appends to `<file>-wal` and is on the disk before it returns, so
neither a kill nor a power cut takes what was acknowledged. Readers do not wait for writers, nor
writers for readers. SQLite copies the WAL into the file whenever it has grown to `_WAL_PAGES`.
"""

import fcntl
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tasks.errors import ConflictError, StorageFullError, StoreError

_APPLICATION = 0x5377_6D6C  # "Swml": SQLite's header field for the kind of file
_LAYOUT = 1
_BUSY_SECONDS = 30.0
_WAL_PAGES = 4000
_WAL_BYTES = 64 * 2**20  # kept of a WAL that has grown beyond it
_SCHEMA = f"""
PRAGMA page_size = 4096;
PRAGMA journal_mode = WAL;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_LAYOUT};
CREATE TABLE rows (
    "table" TEXT, partition TEXT, row TEXT, entity TEXT NOT NULL, etag INTEGER NOT NULL,
    PRIMARY KEY ("table", partition, row)
) WITHOUT ROWID;
CREATE TABLE wakeups (id INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL);
"""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_process = 0  # the one that opened a file first: SQLite keeps its locks per process


class SqliteFile:
    """Connections to one file, each used by one thread at a time. Every call may raise StoreError.

    A process that was forked from one with an open file cannot use it: SQLite's locks would not
    hold. It has to come from a forkserver, or to be a new program.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[sqlite3.Connection] = []
        self._writing = threading.Lock()
        self._lock_file = -1

    def create(self) -> None:
        """Create the file if it does not exist, whole or not at all; look whether it is ours."""
        if self.path.exists():
            with self.read("opening"):
                return
        wal = self.path.with_name(f"{self.path.name}-wal")
        if wal.exists():
            raise StoreError(
                f"{self.path} is absent and {wal.name} is there: put the file back, or "
                f"remove {wal.name} and restore the last export (`swathmill restore`)"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=".tables-") as folder:
                draft = Path(folder) / "draft"
                made = sqlite3.connect(draft, isolation_level=None)
                made.executescript(_SCHEMA)
                made.close()
                with suppress(FileExistsError):  # another process was first
                    os.link(draft, self.path)
            _flush(self.path.parent)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self.path} cannot be created: {error}") from error

    @contextmanager
    def read(self, what: str) -> Iterator[sqlite3.Connection]:
        """Lend a connection for one query; `what` says in an error what it was for."""
        with self._errors(what):
            connection = self._take()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)

    @contextmanager
    def write(self, what: str) -> Iterator[sqlite3.Connection]:
        """Lend a connection for one transaction, which is on the disk when the block has ended.

        A ConflictError raised in the block undoes the transaction, as any error does.
        """
        with self._errors(what), self._turn():
            connection = self._take()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except ConflictError:
                connection.execute("ROLLBACK")
                self._idle.append(connection)
                raise
            except BaseException:
                connection.close()  # undoes what was not committed
                raise
            self._idle.append(connection)

    def close(self) -> None:
        """Close all connections that are not in use."""
        while self._idle:
            self._idle.pop().close()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def __del__(self) -> None:
        """Close the connections: sqlite3 warns of those that are left to the garbage collector."""
        if _process == os.getpid():
            self.close()

    def damaged(self, found: object) -> StoreError:
        """Return the error that says that the file is damaged, and what to do."""
        return StoreError(
            f"{self.path} is damaged ({found}): stop the stack, check the disk, move the file and "
            f"its -wal away and restore the last export (`swathmill restore`)"
        )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other thread or process writes.

        The kernel wakes the next writer. SQLite's own lock is polled with growing pauses: beside a
        process that writes all the time, small transactions waited ten times as long.
        """
        _refuse_after_fork()
        with self._writing:
            if self._lock_file < 0:
                name = f"{self.path}-lock"
                self._lock_file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _take(self) -> sqlite3.Connection:
        _refuse_after_fork()
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            (kind,) = connection.execute("PRAGMA application_id").fetchone()
            (layout,) = connection.execute("PRAGMA user_version").fetchone()
            if (kind, layout) != (_APPLICATION, _LAYOUT):
                raise self.damaged(f"it is a database of another kind: {kind:#x}, {layout}")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DAMAGE:
                raise self.damaged(error) from error
            if code == sqlite3.SQLITE_FULL:
                raise StorageFullError(
                    f"{what}: the disk of {self.path} is full; nothing is lost, make room"
                ) from error
            raise StoreError(f"{what}: {self.path}: {error}") from error
        except OSError as error:
            raise StoreError(f"{what}: {self.path}-lock: {error}") from error


def _refuse_after_fork() -> None:
    global _process
    if not _process:
        _process = os.getpid()
    elif _process != os.getpid():
        raise StoreError(
            "this process was forked from one that has tables open, and SQLite's locks do not "
            "outlive a fork: start it from a forkserver"
        )


def _flush(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
