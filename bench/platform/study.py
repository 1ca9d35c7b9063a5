"""The experiments: which calls, of which sizes, by how many clients."""

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import fsspec
from redis import Redis

from bench.platform.azure_calls import BlobCalls, QueueCalls, TableCalls, blob_name, connected
from bench.platform.clients import Clients, Work
from bench.platform.instances import Asks, measure_instances
from bench.platform.other_calls import FileCalls, RedisCalls, file_name
from bench.platform.rates import Point
from bench.platform.tcp import AnswerServer, TcpCalls
from bench.platform.transfer_sweep import TransferCalls, cuts

CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128, 192)
KB, MB = 1024, 10**6
ROW_SIZES = (1 * KB, 4 * KB, 16 * KB, 64 * KB)
MESSAGE_SIZES = (512, 2 * KB, 8 * KB)
ROUND_TRIP, TRANSFER = 1, 64 * MB
_BLOCK = 8 * MB


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured.

    Attributes:
        clients: numbers of clients, each a point of its own.
        seconds: how long the clients of a point work.
        blob: bytes of the blob that clients download and upload.
        transfers: bytes of the files whose transfers are swept.
    """

    clients: tuple[int, ...] = CLIENTS
    seconds: float = 2.0
    blob: int = 8 * MB
    transfers: tuple[int, ...] = (2 * MB, 20 * MB, 64 * MB)


@dataclass(frozen=True, kw_only=True)
class Study:
    """The processes of the clients, the plan, and where each finished point goes."""

    clients: Clients
    plan: Plan
    done: Callable[[Point], None]

    def blobs(self, storage: str) -> None:
        """Download one blob, and upload into one container."""
        size = self.plan.blob
        with _container(storage, (size,)) as container:
            for number in self.plan.clients:
                for operation in ("download", "upload"):
                    work = BlobCalls(
                        storage=storage, container=container, operation=operation, size=size
                    )
                    self._measure("blobs", operation, size, number, work)

    def files(self, url: str) -> None:
        """Download one file of a store that fsspec reaches, and upload new ones."""
        size = self.plan.blob
        store, root = fsspec.core.url_to_fs(url)
        folder = f"{root.rstrip('/')}/{_name()}"
        own = store.unstrip_protocol(folder)
        store.makedirs(folder, exist_ok=True)
        store.pipe_file(f"{folder}/{file_name(size)}", os.urandom(size))
        try:
            for number in self.plan.clients:
                for operation in ("download", "upload"):
                    work = FileCalls(url=own, operation=operation, size=size)
                    self._measure("files", operation, size, number, work)
        finally:
            store.invalidate_cache()
            store.rm(folder, recursive=True)

    def tables(self, storage: str) -> None:
        """Insert, query, update and delete rows of one partition."""
        with connected(storage) as clients:
            for size in ROW_SIZES:
                for number in self.plan.clients:
                    table = _name().replace("-", "")
                    clients.tables.create_table(table)
                    try:
                        self._one_table(storage, table, size, number)
                    finally:
                        clients.tables.delete_table(table)

    def _one_table(self, storage: str, table: str, size: int, number: int) -> None:
        rows: tuple[int, ...] = ()
        for operation in ("insert", "query", "update", "delete"):
            work = TableCalls(
                storage=storage, table=table, operation=operation, size=size, rows=rows
            )
            point = self._measure("tables", operation, size, number, work)
            if operation == "insert":
                rows = tuple(_inserted(point, client) for client in range(number))
                if not all(rows):
                    return

    def queue(self, storage: str) -> None:
        """Add to, peek at and receive from one queue."""
        with connected(storage) as clients:
            for size in MESSAGE_SIZES:
                queue = _name()
                clients.queues.create_queue(queue)
                try:
                    for number in self.plan.clients:
                        for operation in ("add", "peek", "receive"):
                            work = QueueCalls(
                                storage=storage, queue=queue, operation=operation, size=size
                            )
                            self._measure("queue", operation, size, number, work)
                finally:
                    clients.queues.delete_queue(queue)

    def redis(self, url: str) -> None:
        """Add to and take from one list of Redis."""
        key = _name()
        with Redis.from_url(url) as redis:
            for size in MESSAGE_SIZES:
                try:
                    for number in self.plan.clients:
                        for operation in ("add", "receive"):
                            work = RedisCalls(url=url, key=key, operation=operation, size=size)
                            self._measure("redis", operation, size, number, work)
                finally:
                    redis.delete(key)

    def tcp(self, host: str, port: int) -> None:
        """Measure round trips and transfers between this machine and the one that answers.

        Without a host, this machine answers itself.
        """
        with _answering(host, port) as (address, number):
            for operation, size in (("round trip", ROUND_TRIP), ("transfer", TRANSFER)):
                for clients in (1, *(n for n in self.plan.clients if n == 8)):
                    work = TcpCalls(host=address, port=number, size=size)
                    self._measure("tcp", operation, size, clients, work)

    def transfers(self, storage: str) -> None:
        """Move files, cut into blocks of each size, with each number of calls at once."""
        sizes = self.plan.transfers
        with _container(storage, sizes) as container:
            for size in sizes:
                for cut in cuts(size):
                    for direction in ("upload", "download"):
                        work = TransferCalls(
                            storage=storage, container=container, direction=direction, size=size,
                            cut=cut,
                        )  # fmt: skip
                        self._measure("transfers", f"{direction}, {cut}", size, 1, work)

    def sql(self, url: str) -> None:
        """Run a mix of transactions like TPC-E's."""
        # Only where it is used: SQLAlchemy is an extra.
        from bench.platform.sql_mix import SqlCalls, filled

        with filled(url):
            for number in self.plan.clients:
                self._measure("sql", "mix", 0, number, SqlCalls(url=url))

    def instances(self, az: Asks, group: str, number: int) -> None:
        """Take virtual machines through their life."""
        for point in measure_instances(az, group, number):
            self.done(point)

    def _measure(
        self, experiment: str, operation: str, size: int, number: int, work: Work
    ) -> Point:
        calls = self.clients.run(work, number, self.plan.seconds)
        point = Point(
            experiment=experiment, operation=operation, size=size, clients=number,
            calls=tuple(calls),
        )  # fmt: skip
        self.done(point)
        return point


def _inserted(point: Point, client: int) -> int:
    """Return how many rows a client has: those before its first failed call."""
    rows = 0
    for call in point.calls:
        if call.client == client:
            if call.failure:
                return rows
            rows += 1
    return rows


@contextmanager
def _container(storage: str, sizes: tuple[int, ...]) -> Iterator[str]:
    """Make a container that holds a blob of each size; delete it at the end."""
    name = _name()
    with connected(storage) as clients:
        container = clients.blobs.create_container(name)
        try:
            for size in sizes:
                # In blocks: a slow line breaks one large call.
                container.upload_blob(blob_name(size), os.urandom(size), max_concurrency=2)
            yield name
        finally:
            container.delete_container()


@contextmanager
def _answering(host: str, port: int) -> Iterator[tuple[str, int]]:
    if host:
        yield host, port
        return
    with AnswerServer("127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "127.0.0.1", server.server_address[1]
        server.shutdown()


def _name() -> str:
    return f"swathmill-study-{uuid.uuid4().hex[:12]}"
