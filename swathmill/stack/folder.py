"""The data folder: what is where, its lock, what it remembers from one start to the next."""

import json
import os
import secrets
import shutil
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from processes.locks import try_lock
from swathmill.errors import ArgumentError, StackError
from swathmill.stack.azurite import Account

LEAST_FREE_BYTES = 1_000_000_000
GIGABYTE = 1_000_000_000


class Secrets(BaseModel):
    """What only this data folder's processes know; made once, readable by its owner alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    account_name: str
    account_key: str
    redis_password: str
    signing_key: str

    @classmethod
    def new(cls) -> "Secrets":
        """Fresh random secrets."""
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
    """Where a stack listens; kept after it ended, so that a restart takes the same ports."""

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
    """Bytes the data folder takes, bytes it may take, and bytes the disk has left."""

    used: int
    quota: int
    free: int

    @property
    def problem(self) -> str:
        """What is wrong with the disk, or nothing."""
        if self.used > self.quota:
            return f"the data folder holds {_gb(self.used)}, its quota is {_gb(self.quota)}"
        if self.free < LEAST_FREE_BYTES:
            return f"the disk has {_gb(self.free)} left, {_gb(LEAST_FREE_BYTES)} are needed"
        return ""

    @property
    def has_room_again(self) -> bool:
        """Whether a pause for want of disk may end: a tenth below the quota, twice the least."""
        return self.used < 0.9 * self.quota and self.free > 2 * LEAST_FREE_BYTES


@dataclass(frozen=True, kw_only=True)
class DataFolder:
    """Paths inside one data folder."""

    path: Path

    @property
    def azurite(self) -> Path:
        """Azurite's tables, queues and blobs."""
        return self.path / "azurite"

    @property
    def redis(self) -> Path:
        """Redis's working folder; nothing is kept there."""
        return self.path / "redis"

    @property
    def mail(self) -> Path:
        """Mails the catcher received, one .eml file each."""
        return self.path / "mail"

    def log(self, name: str) -> Path:
        """The log of one child."""
        return self.path / "logs" / f"{name}.log"

    def prepare(self) -> None:
        """Make the folder, for its owner only; ArgumentError when it cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
            for folder in (self.azurite, self.redis, self.mail, self.path / "logs"):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            raise ArgumentError(
                f"The data folder {self.path} cannot be written: {error.strerror}.",
                "Name another with --data or SWATHMILL_DATA_DIR.",
            ) from error

    def secrets(self) -> Secrets:
        """The folder's secrets, made at the first call."""
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
        """What the last stack wrote about itself; empty when there was none."""
        file = self.path / "stack.json"
        try:
            return StackState.model_validate(json.loads(file.read_text()))
        except (FileNotFoundError, ValueError):
            return StackState()

    def write_state(self, state: StackState) -> None:
        """Keep where the stack listens."""
        _write_private(self.path / "stack.json", state.model_dump_json(indent=1))

    def disk_use(self, quota_gb: float) -> DiskUse:
        """Measure the folder and its disk."""
        return DiskUse(
            used=_size(self.path),
            quota=int(quota_gb * GIGABYTE),
            free=shutil.disk_usage(self.path).free,
        )


class FolderLock:
    """One stack per data folder: held by the supervisor, released by the kernel when it ends."""

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
    """Whether a supervisor holds the folder's lock."""
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
    """Bytes on disk below a folder; files that vanish meanwhile count nothing."""
    total = 0
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        total += _blocks(entry)
        except FileNotFoundError:
            continue
    return total


def _blocks(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0


def _gb(size: int) -> str:
    return f"{size / GIGABYTE:.1f} GB"
