"""Transfers of files as the workers make them, swept over size, block and calls at once."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import repeat
from typing import Literal

from bench.platform.azure_calls import blob_name, connected
from bench.platform.clients import OneCall
from tasks.storage.azure.transfer_shapes import DOWN, MIB, UP, Cut
from tasks.storage.azure.transfers import download, upload

BLOCKS = (1 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB)
AT_ONCE = (1, 2, 4, 8)


def cuts(size: int) -> list[Cut]:
    """Return the ways to cut a file: no block larger than it, no more calls than blocks."""
    return [
        Cut(block=block, at_once=at_once)
        for block in BLOCKS
        if block <= size
        for at_once in AT_ONCE
        if at_once <= -(-size // block)
    ]


@dataclass(frozen=True, kw_only=True)
class TransferCalls:
    """One client moves files of one size, cut in one way."""

    storage: str
    container: str
    direction: Literal["upload", "download"]
    size: int
    cut: Cut

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        del client
        with connected(self.storage) as clients:
            container = clients.blobs.get_container_client(self.container)
            data = os.urandom(self.size) if self.direction == "upload" else b""

            def send() -> int:
                blob = container.get_blob_client(f"transfer-{uuid.uuid4().hex}")
                shape = self.cut.shape(UP)
                stored = upload(
                    blob, BytesIO(data), self.size, metadata=_named, sleep=time.sleep, shape=shape
                )
                return stored.size

            def fetch() -> int:
                blob = container.get_blob_client(blob_name(self.size))
                sizes: list[int] = []
                download(blob, lambda part: sizes.append(len(part)), shape=self.cut.shape(DOWN))
                return sum(sizes)

            yield repeat(send if self.direction == "upload" else fetch)


def _named(digest: str) -> dict[str, str]:
    return {"sha256": digest}
