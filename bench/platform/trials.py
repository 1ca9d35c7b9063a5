"""Single transfers of files, each with its own size, direction, service and cut, in a given order.

The order is drawn before: what is compared is measured in each round, at a place of its own chance,
so that a drift of the network meets all alike.
"""

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from io import BytesIO
from random import Random

import fsspec
from azure.storage.blob import ContainerClient

from bench.platform.azure_calls import blob_name, connected
from bench.platform.clients import Call, OneCall
from bench.platform.other_calls import file_name
from tasks.storage.azure.transfer_shapes import BY_SIZE, DOWN, MIB, UP, Cut
from tasks.storage.azure.transfers import download, upload

BLOCKS = (1 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB)
AT_ONCE = (1, 2, 4, 8)


class Service(StrEnum):
    """Where files are."""

    AZURE = "azure"  # as the workers transfer them
    FILES = "files"  # whatever fsspec reaches, such as s3://bucket/folder


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One transfer. The cut says how a file goes to Azure; fsspec has its own way."""

    service: Service
    direction: str  # upload, download
    size: int
    cut: Cut = BY_SIZE
    round: int = 0

    @property
    def what(self) -> tuple[Service, str, int, Cut]:
        """The subject of the trial: all but its round."""
        return self.service, self.direction, self.size, self.cut


def cuts(size: int) -> list[Cut]:
    """Return the ways to cut a file: today's, and others.

    No block is larger than the file, and no more calls are at once than it has blocks.
    """
    return [BY_SIZE] + [
        Cut(block=block, at_once=at_once)
        for block in BLOCKS
        if block <= size
        for at_once in AT_ONCE
        if at_once <= -(-size // block)
    ]


def read_cut(text: str) -> Cut:
    """Return the cut that a text names, as `str` writes it. Raises ValueError."""
    block, _, at_once = text.partition(" MiB x ")
    return Cut(block=int(block) * MIB, at_once=int(at_once))


def in_rounds(what: Sequence[Trial], rounds: int, chance: Random) -> list[Trial]:
    """Repeat trials in rounds, each round in an order of its own."""
    found: list[Trial] = []
    for number in range(rounds):
        one = [
            Trial(service=t.service, direction=t.direction, size=t.size, cut=t.cut, round=number)
            for t in what
        ]
        chance.shuffle(one)
        found += one
    return found


@dataclass(frozen=True, kw_only=True)
class TrialCalls:
    """One client makes the trials, one after the other, each in a call."""

    trials: tuple[Trial, ...]
    storage: str = ""
    container: str = ""
    url: str = ""

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect."""
        del client
        with ExitStack() as stack:
            container: ContainerClient | None = None
            if self.storage:
                clients = stack.enter_context(connected(self.storage))
                container = clients.blobs.get_container_client(self.container)
            store, folder = None, ""
            if self.url:
                store, folder = fsspec.core.url_to_fs(self.url, skip_instance_cache=True)
            yield self._calls(container, store, folder)

    def _calls(
        self,
        container: ContainerClient | None,
        store: fsspec.AbstractFileSystem | None,
        folder: str,
    ) -> Iterator[OneCall]:
        for trial in self.trials:
            up = trial.direction == "upload"
            data = os.urandom(trial.size) if up else b""
            if trial.service is Service.FILES or container is None:
                name = f"upload-{uuid.uuid4().hex}" if up else file_name(trial.size)
                yield partial(_by_fsspec, store, f"{folder}/{name}", data, up=up)
            elif up:
                yield partial(_up, container, data, trial.cut)
            else:
                yield partial(_down, container, trial.size, trial.cut)


def _by_fsspec(store: fsspec.AbstractFileSystem, path: str, data: bytes, *, up: bool) -> int:
    if not up:
        return len(store.cat_file(path))
    store.pipe_file(path, data)
    return len(data)


def _up(container: ContainerClient, data: bytes, cut: Cut) -> int:
    blob = container.get_blob_client(f"transfer-{uuid.uuid4().hex}")
    shape = cut.shape(UP)
    stored = upload(blob, BytesIO(data), len(data), metadata=_named, sleep=time.sleep, shape=shape)
    return stored.size


def _down(container: ContainerClient, size: int, cut: Cut) -> int:
    sizes: list[int] = []
    blob = container.get_blob_client(blob_name(size))
    download(blob, lambda part: sizes.append(len(part)), shape=cut.shape(DOWN))
    return sum(sizes)


def _named(digest: str) -> dict[str, str]:
    return {"sha256": digest}


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A trial, and what came of it."""

    trial: Trial
    call: Call

    @property
    def seconds(self) -> float:
        """The time that it took."""
        return self.call.ended - self.call.began
