"""The data folder: its layout, its lock, and what it keeps from one start to the next."""

import json
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from processes.locks import try_lock
from swathmill.errors import ArgumentError, StackError
from swathmill.stack.azurite import Account
from tasks.strict_model import StrictModel

LEAST_FREE_BYTES = 1_000_000_000
GIGABYTE = 1_000_000_000
LOG_LIMIT_BYTES = 20 * 1024 * 1024


class Secrets(StrictModel):
    """Secrets known only to this data folder's processes; made once, readable by their owner."""

    account_name: str
    account_key: str
    redis_password: str
    signing_key: str

    @classmethod
    def new(cls) -> "Secrets":
        """Make new random secrets."""
        account = Account.new()
        return cls(
            account_name=account.name,
            account_key=account.key,
            redis_password=secrets.token_hex(24),
            signing_key=secrets.token_urlsafe(48),
        )

    @property
    def account(self) -> Account:
        """The storage account of the folder's Azurite."""
        return Account(name=self.account_name, key=self.account_key)


class StackState(BaseModel):
    """Where a stack listens; kept after its end, so that a restart uses the same ports."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pid: int = 0
    azurite_ports: tuple[int, ...] = ()
    redis_port: int = 0
    smtp_port: int = 0
    portal_port: int = 0
    portal_url: str = ""
    archive: str = ""


@dataclass(frozen=True, kw_only=True)
class DiskUse:
    """Bytes the data folder uses, bytes it may use, and bytes free on the disk."""

    used: int
    quota: int
    free: int

    @property
    def problem(self) -> str:
        """The problem with the disk; empty if there is none."""
        if self.used > self.quota:
            return f"the data folder holds {_gb(self.used)}, its quota is {_gb(self.quota)}"
        if self.free < LEAST_FREE_BYTES:
            return f"the disk has {_gb(self.free)} left, {_gb(LEAST_FREE_BYTES)} are needed"
        return ""

    @property
    def lacking(self) -> str:
        """The room that a pause for lack of disk space waits for; empty if it may end.

        It may at 10 % below the quota and at twice the least free space.
        """
        parts = []
        if self.used >= 0.9 * self.quota:
            parts.append(f"less than {_gb(round(0.9 * self.quota))} in the data folder")
        if self.free <= 2 * LEAST_FREE_BYTES:
            parts.append(f"more than {_gb(2 * LEAST_FREE_BYTES)} left on the disk")
        return " and ".join(parts)


@dataclass(frozen=True, kw_only=True)
class DataFolder:
    """The paths inside one data folder."""

    path: Path

    @property
    def storage(self) -> Path:
        """Embedded storage: `tables.sqlite` and `blobs`."""
        return self.path / "storage"

    @property
    def tables(self) -> Path:
        """The file of embedded storage's tables and request queue."""
        return self.storage / "tables.sqlite"

    @property
    def azurite(self) -> Path:
        """Azurite's tables, queues and blobs, where they are kept there."""
        return self.path / "azurite"

    @property
    def redis(self) -> Path:
        """Redis's working folder, in which nothing is kept."""
        return self.path / "redis"

    @property
    def mail(self) -> Path:
        """The mails that the catcher received, one .eml file each."""
        return self.path / "mail"

    def log(self, name: str) -> Path:
        """Return the path of one child's log."""
        return self.path / "logs" / f"{name}.log"

    def bound_logs(self) -> None:
        """Move the end of each log that has grown too long to NAME.log.1, and empty the log.

        The processes that write a log keep its file open, so it is copied and cut; lines that are
        written in between are lost.
        """
        for log in (self.path / "logs").glob("*.log"):
            with log.open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                if size <= LOG_LIMIT_BYTES:
                    continue
                file.seek(size - LOG_LIMIT_BYTES)
                with suppress(OSError):  # on a full disk, the room counts more than an old log
                    log.with_suffix(".log.1").write_bytes(file.read())
                file.truncate(0)

    def prepare(self) -> None:
        """Make the folder for its owner only; raise ArgumentError if it cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
            for folder in (self.redis, self.mail, self.path / "logs"):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            raise ArgumentError(
                f"The data folder {self.path} cannot be written: {error.strerror}.",
                "Name another with --data or SWATHMILL_DATA_DIR.",
            ) from error

    def secrets(self) -> Secrets:
        """Read the folder's secrets; make them at the first call."""
        file = self.path / "secrets.json"
        if not file.exists():
            _write_private(file, Secrets.new().model_dump_json(indent=1))
        try:
            return Secrets.model_validate_json(file.read_text())
        except ValidationError as error:
            raise StackError(
                f"{file} is damaged ({error.error_count()} errors).",
                "Restore it from a backup: without its key the stored data cannot be read.",
            ) from error

    def state(self) -> StackState:
        """Read what the last stack wrote about itself; empty if there was none."""
        file = self.path / "stack.json"
        try:
            return StackState.model_validate(json.loads(file.read_text()))
        except (FileNotFoundError, ValueError):
            return StackState()

    def write_state(self, state: StackState) -> None:
        """Record where the stack listens."""
        _write_private(self.path / "stack.json", state.model_dump_json(indent=1))

    def disk_use(self, quota_gb: float) -> DiskUse:
        """Measure the folder and its disk."""
        return DiskUse(
            used=_size(self.path),
            quota=int(quota_gb * GIGABYTE),
            free=shutil.disk_usage(self.path).free,
        )


class FolderLock:
    """Allows one stack per data folder; the kernel releases the lock when the supervisor ends."""

    def __init__(self, folder: DataFolder) -> None:
        self._path = folder.path / "lock"
        self._lock: BufferedWriter | None = None

    def __enter__(self) -> Self:
        self._lock = try_lock(self._path)
        if self._lock is None:
            raise StackError(
                f"A stack already runs on the data folder {self._path.parent}.",
                "Use it (swathmill submit, status, results), stop it with Ctrl-C where it runs, "
                "or name another folder with --data.",
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def is_running(folder: DataFolder) -> bool:
    """Tell whether a supervisor holds the folder's lock."""
    if not (folder.path / "lock").exists():
        return False
    try:
        with FolderLock(folder):
            return False
    except StackError:
        return True


def _write_private(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    draft.replace(file)


def _size(folder: Path) -> int:
    """Sum the bytes on disk below a folder; files deleted meanwhile count nothing.

    A file with several names, such as a blob that the cache holds too, is counted once.
    """
    total = 0
    linked: set[tuple[int, int]] = set()
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        total += _blocks(entry, linked)
        except FileNotFoundError:
            continue
    return total


def _blocks(entry: os.DirEntry[str], linked: set[tuple[int, int]]) -> int:
    """Return a file's bytes; 0 for one that is in `linked`, where files with several names go."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return 0
    if found.st_nlink > 1:
        if (found.st_dev, found.st_ino) in linked:
            return 0
        linked.add((found.st_dev, found.st_ino))
    return found.st_blocks * 512


def _gb(size: int) -> str:
    return f"{size / GIGABYTE:.1f} GB"
