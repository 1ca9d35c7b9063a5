"""Calls to what is not Azure Storage: any store that fsspec reaches, and Redis."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Literal

import fsspec
from redis import Redis

from bench.platform.clients import NothingLeftError, OneCall, new_names


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
            data = os.urandom(self.size)
            names = (f"{folder}/{name}" for name in new_names(client))
            yield (partial(_upload, store, name, data) for name in names)


def file_name(size: int) -> str:
    """Return the name of the file that all clients download."""
    return f"file-{size}"


def _download(store: fsspec.AbstractFileSystem, path: str) -> int:
    return len(store.cat_file(path))


def _upload(store: fsspec.AbstractFileSystem, path: str, data: bytes) -> int:
    store.pipe_file(path, data)
    return len(data)


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
            yield repeat(partial(self._call, redis, os.urandom(self.size)))

    def _call(self, redis: Redis, data: bytes) -> int:
        if self.operation == "add":
            redis.lpush(self.key, data)
        elif redis.rpop(self.key) is None:
            raise NothingLeftError
        return self.size
