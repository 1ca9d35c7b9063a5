"""Calls to what is not Azure Storage: any store that fsspec reaches, and Redis."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Literal

import fsspec
from redis import Redis

from bench.platform.clients import OneCall


@dataclass(frozen=True, kw_only=True)
class FileCalls:
    """All clients download one file of a store, or each uploads new ones: `s3://bucket/folder`."""

    url: str
    operation: Literal["download", "upload"]
    size: int

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        store, folder = fsspec.core.url_to_fs(self.url, skip_instance_cache=True)
        if self.operation == "download":
            yield repeat(partial(_download, store, f"{folder}/{file_name(self.size)}"))
        else:
            yield _uploads(store, folder, os.urandom(self.size), client)


def file_name(size: int) -> str:
    """Return the name of the file that all clients download."""
    return f"file-{size}"


def _download(store: fsspec.AbstractFileSystem, path: str) -> int:
    return len(store.cat_file(path))


def _uploads(
    store: fsspec.AbstractFileSystem, folder: str, data: bytes, client: int
) -> Iterator[OneCall]:
    while True:
        path = f"{folder}/upload-{client:04d}-{uuid.uuid4().hex}"

        def upload(path: str = path) -> int:
            store.pipe_file(path, data)
            return len(data)

        yield upload


@dataclass(frozen=True, kw_only=True)
class RedisCalls:
    """All clients add to one list of Redis, or take from it."""

    url: str
    key: str
    operation: Literal["add", "receive"]
    size: int

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        del client
        with Redis.from_url(self.url) as redis:
            yield self._add(redis) if self.operation == "add" else self._receive(redis)

    def _add(self, redis: Redis) -> Iterator[OneCall]:
        data = os.urandom(self.size)

        def add() -> int:
            redis.lpush(self.key, data)
            return self.size

        return repeat(add)

    def _receive(self, redis: Redis) -> Iterator[OneCall]:
        """Receive until the list is empty."""
        some = True

        def receive() -> int:
            nonlocal some
            some = redis.rpop(self.key) is not None
            return self.size if some else 0

        while some:
            yield receive
