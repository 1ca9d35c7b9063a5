"""A node of a study: a process on a machine of a fleet, which has some clients work at each order.

It imports what a worker's image has, and nothing else: the study sends this code to machines that
have no checkout (`fleet.py`).
"""

import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from redis import Redis

from bench.platform.clients import Call, OneCall, Work, run_share

PATIENCE = 600  # seconds without a word from a node
KEPT = 86_400  # seconds for which keys outlive a study that was killed
_IDLE = 6 * 3600  # seconds without an order, after which a node gives its study up


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a node is to do: these clients' work, begun together with the run's other nodes."""

    run: str
    work: Work
    clients: tuple[int, ...]
    seconds: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The names in Redis of one session of a study."""

    session: str

    def came(self) -> str:
        """Name the list of the nodes that have come."""
        return f"swathmill-study:{self.session}:came"

    def orders(self, node: int) -> str:
        """Name the list of a node's orders."""
        return f"swathmill-study:{self.session}:orders:{node}"

    def ready(self, run: str) -> str:
        """Name the list of the nodes that are connected."""
        return f"swathmill-study:{self.session}:ready:{run}"

    def go(self, run: str) -> str:
        """Name the list of what lets nodes begin."""
        return f"swathmill-study:{self.session}:go:{run}"

    def done(self, run: str) -> str:
        """Name the list of what nodes have measured."""
        return f"swathmill-study:{self.session}:done:{run}"


class CalledOffError(Exception):
    """Another node cannot connect, or the study is silent."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Measures how large a node's deployment is: one call, which finds the bytes of its code."""

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Find the folders from which the node imports, but for its own code."""
        del client
        yield iter([_imported_bytes])


def _imported_bytes() -> int:
    folders = {Path(one).resolve() for one in sys.path[1:] if Path(one).is_dir()}
    # Packages within a folder of the standard library are imported only where that is said, too.
    files = {
        file
        for folder in folders
        for file in folder.rglob("*")
        if not _APART.intersection(file.relative_to(folder).parts)
    }
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


_APART = {"site-packages", "dist-packages"}


def popped(redis: Redis, key: str, seconds: int) -> bytes | None:
    """Take what comes next from a list; None if nothing does in time."""
    found = cast("list[bytes] | None", redis.brpop([key], timeout=seconds))
    return found[1] if found else None


def serve(redis: Redis, session: str, node: int) -> int:
    """Be a node of a study until it ends; return how many orders were carried out."""
    keys = Keys(session=session)
    redis.lpush(keys.came(), str(node))
    redis.expire(keys.came(), KEPT)
    carried_out = 0
    while found := popped(redis, keys.orders(node), _IDLE):
        order: Order = pickle.loads(found)
        carried_out += _carry_out(redis, keys, order)
    return carried_out


def _carry_out(redis: Redis, keys: Keys, order: Order) -> bool:
    """Carry out an order; False if the run is called off, because somebody cannot connect."""
    origin = 0.0

    def meet() -> None:
        nonlocal origin
        redis.lpush(keys.ready(order.run), b"")
        if popped(redis, keys.go(order.run), PATIENCE) != b"go":
            raise CalledOffError("The run was called off: another node cannot connect.")
        origin = time.monotonic()

    try:
        calls = run_share(order.work, order.clients, order.seconds, order.count, meet)
    except Exception as error:  # noqa: BLE001 - it is told to whoever gives the orders
        if not origin:
            redis.lpush(keys.ready(order.run), f"{type(error).__name__}: {error}".encode())
            redis.expire(keys.ready(order.run), KEPT)
        return False
    told: list[Call] = [
        replace(one, began=one.began - origin, ended=one.ended - origin) for one in calls
    ]
    redis.lpush(keys.done(order.run), pickle.dumps(told))
    for key in (keys.ready(order.run), keys.go(order.run), keys.done(order.run)):
        redis.expire(key, KEPT)
    return True
