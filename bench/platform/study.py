"""The experiments: which calls, of which sizes, by how many clients; a seed decides the order."""

import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal, TypeVar

import fsspec
from redis import Redis

from bench.platform.azure_calls import (
    BlobCalls,
    FilterCalls,
    QueueCalls,
    QueueOperation,
    TableCalls,
    blob_name,
    connected,
    fill,
    put_shared,
)
from bench.platform.clients import Crowd, Work
from bench.platform.instances import Kind, measure_instances
from bench.platform.other_calls import FileCalls, RedisCalls, file_name
from bench.platform.rates import Point
from bench.platform.store_calls import RowCalls, ScanCalls, StoredBlobCalls, fill_rows
from bench.platform.tcp import AnswerServer, TcpCalls
from bench.platform.trials import Service, Timed, Trial, TrialCalls, cuts, in_rounds
from tasks.secret_settings import EMBEDDED
from tasks.service.connect import connect_storage
from tasks.storage.azure.transfer_shapes import BY_SIZE
from tasks.storage.blobs import ARTIFACTS

T = TypeVar("T")

CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128, 192)
KB, MB, GB = 1000, 10**6, 10**9
ROW_SIZES = (1024, 4 * 1024, 16 * 1024, 64 * 1024)
MESSAGE_SIZES = (512, 1024, 4 * 1024, 8 * 1024)
FILE_SIZES = (
    *(count * KB for count in (2, 5, 10, 50, 100, 200, 500)),
    *(count * MB for count in (1, 5, 10, 50, 100, 200, 500)),
    GB,
)
"""The fifteen sizes of files, from 2 kB to 1 GB."""
LENGTHS = (200_000, 500_000, 1_000_000, 2_000_000)
"""The messages that wait in a queue while it is measured."""
CROWD = 64
"""The clients with which a queue's length was varied."""
LOOKERS = 32
"""The clients that looked for a property in a large partition."""
NODES = (1, 5, 10, 20)
"""The nodes that transfer at once."""
APART = ("transfers", "sizes", "instances")
"""The experiments whose calls are single trials among those of other points."""
_CUT_SIZES = (2 * MB, 20 * MB, 64 * MB)
_UP_AND_DOWN: tuple[Literal["download", "upload"], ...] = ("download", "upload")
_QUEUED: tuple[QueueOperation, ...] = ("add", "peek", "receive")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured: the source's amounts, times one factor.

    Attributes:
        clients: numbers of clients, each a point of its own.
        seconds: how long the clients of a point work where the source gives no number of calls.
        scale: of all other amounts: calls a client, rows, messages, bytes, files. Not of the
            sizes of rows and messages, which are what is compared.
        seed: decides every order.
    """

    clients: tuple[int, ...] = CLIENTS
    seconds: float = 2.0
    scale: float = 0.01
    seed: int = 1

    def many(self, amount: float, least: int = 1) -> int:
        """Return an amount of the source at this scale."""
        return max(least, round(amount * self.scale))

    def order(self, experiment: str, some: Iterable[T]) -> list[T]:
        """Return some in the experiment's order, which is the same for the same seed."""
        found = list(some)
        Random(f"{experiment} {self.seed}").shuffle(found)
        return found

    @property
    def blob(self) -> int:
        """Bytes of the blob that clients download and upload: 1 GB in the source."""
        return self.many(GB, 1000)

    @property
    def file_sizes(self) -> tuple[int, ...]:
        """The sizes of files, up to the largest that the scale allows."""
        return tuple(size for size in FILE_SIZES if size <= self.many(GB, 10 * KB))

    @property
    def cut_sizes(self) -> tuple[int, ...]:
        """The sizes of files whose cuts are compared."""
        return tuple(sorted({self.many(100 * size, MB) for size in _CUT_SIZES}))


@dataclass(frozen=True, kw_only=True)
class Study:
    """Who works, the plan, and where each finished point and each timed trial goes."""

    clients: Crowd
    plan: Plan
    done: Callable[[Point], None]
    timed: Callable[[str, Sequence[Timed]], None] = lambda _experiment, _some: None

    def blobs(self, storage: str) -> None:
        """Download one blob, and upload into one container."""
        size = self.plan.blob
        with _container(storage, (size,)) as container:
            points = product(self.plan.clients, _UP_AND_DOWN)
            for number, operation in self.plan.order("blobs", points):
                work = BlobCalls(
                    storage=storage, container=container, operation=operation, size=size
                )
                self._measure("blobs", operation, size, number, work)

    def embedded(self, folder: Path, some: Collection[str]) -> None:
        """Make the experiments of blobs, tables, partition and nodes in embedded storage."""
        with TemporaryDirectory(dir=folder, prefix="swathmill-study-") as name:
            storage = f"{EMBEDDED}{name}"
            if "blobs" in some or "nodes" in some:
                size = self.plan.blob
                connect_storage(storage).blobs.put_bytes(
                    ARTIFACTS, blob_name(size), os.urandom(size)
                )
            for experiment, numbers, count in (
                ("blobs", self.plan.clients, 0),
                ("nodes", self._node_numbers, self.plan.many(25, 3)),
            ):
                points = product(numbers, _UP_AND_DOWN) if experiment in some else ()
                for number, operation in self.plan.order(experiment, points):
                    blobs = StoredBlobCalls(storage=storage, operation=operation, size=size)
                    self._measure(experiment, operation, size, number, blobs, count)
            if "tables" in some:
                points_of_rows = product(ROW_SIZES, self.plan.clients)
                for size, number in self.plan.order("tables", points_of_rows):
                    make = partial(RowCalls, storage=storage, partition=_name())
                    self._one_table(make, size, number)
            if "partition" in some:
                rows = self.plan.many(220_000, 100)
                fill_rows(storage, rows, 1024)
                for number in self.plan.order("partition", (1, LOOKERS)):
                    scans = ScanCalls(storage=storage, rows=rows)
                    self._filter(rows, number, scans)

    def files(self, url: str) -> None:
        """Download one file of a store that fsspec reaches, and upload new ones."""
        size = self.plan.blob
        with _folder(url, (size,)) as own:
            points = product(self.plan.clients, _UP_AND_DOWN)
            for number, operation in self.plan.order("files", points):
                work = FileCalls(url=own, operation=operation, size=size)
                self._measure("files", operation, size, number, work)

    def tables(self, storage: str) -> None:
        """Insert, query, update and delete rows of one partition; all update one, too.

        The source had 500 operations a client, and 100 of the shared row.
        """
        with connected(storage) as clients:
            for size, number in self.plan.order("tables", product(ROW_SIZES, self.plan.clients)):
                table = _table_name()
                clients.tables.create_table(table)
                try:
                    put_shared(clients.tables.get_table_client(table), size)
                    make = partial(TableCalls, storage=storage, table=table)
                    self._one_table(make, size, number)
                finally:
                    clients.tables.delete_table(table)

    def _one_table(self, make: Callable[..., Work], size: int, number: int) -> None:
        rows: tuple[int, ...] = ()
        for operation in ("insert", "query", "update", "update shared", "delete"):
            work = make(operation=operation, size=size, rows=rows)
            count = self.plan.many(100 if operation == "update shared" else 500, 3)
            point = self._measure("tables", operation, size, number, work, count)
            if operation == "insert":
                rows = tuple(_inserted(point, client) for client in range(number))
                if not all(rows):
                    return

    def partition(self, storage: str) -> None:
        """Look for a property in a partition of 220,000 rows."""
        rows, table = self.plan.many(220_000, 100), _table_name()
        with connected(storage) as clients:
            clients.tables.create_table(table)
            try:
                fill(clients.tables.get_table_client(table), rows, 1024)
                for number in self.plan.order("partition", (1, LOOKERS)):
                    work = FilterCalls(storage=storage, table=table, rows=rows)
                    self._filter(rows, number, work)
            finally:
                clients.tables.delete_table(table)

    def _filter(self, rows: int, number: int, work: Work) -> None:
        self._measure("partition", f"filter of {rows:,} rows", 1024, number, work)

    def queue(self, storage: str) -> None:
        """Add to, peek at and receive from one queue."""
        with connected(storage) as clients:
            points = product(MESSAGE_SIZES, self.plan.clients)
            for size, number in self.plan.order("queue", points):
                queue = _name()
                clients.queues.create_queue(queue)
                try:
                    for operation in _QUEUED:
                        work = QueueCalls(
                            storage=storage, queue=queue, operation=operation, size=size
                        )
                        self._measure("queue", operation, size, number, work)
                finally:
                    clients.queues.delete_queue(queue)

    def lengths(self, storage: str) -> None:
        """Add to, peek at and receive from queues of 200,000 to two million messages."""
        crowd = max([one for one in self.plan.clients if one <= CROWD], default=1)
        with connected(storage) as clients:
            for length in self.plan.order("lengths", [self.plan.many(n, 10) for n in LENGTHS]):
                queue = _name()
                clients.queues.create_queue(queue)
                try:
                    adding = QueueCalls(storage=storage, queue=queue, operation="add", size=512)
                    self.clients.run(adding, crowd, 0.0, -(-length // crowd))
                    for operation in self.plan.order(f"length {length}", _QUEUED):
                        work = QueueCalls(
                            storage=storage, queue=queue, operation=operation, size=512
                        )
                        name = f"{operation} at {length:,}"
                        self._measure("lengths", name, 512, crowd, work)
                finally:
                    clients.queues.delete_queue(queue)

    def redis(self, url: str) -> None:
        """Add to and take from one list of Redis."""
        with Redis.from_url(url) as redis:
            for size, number in self.plan.order("redis", product(MESSAGE_SIZES, self.plan.clients)):
                key = _name()
                try:
                    for operation in ("add", "receive"):
                        work = RedisCalls(url=url, key=key, operation=operation, size=size)
                        self._measure("redis", operation, size, number, work)
                finally:
                    redis.delete(key)

    def tcp(self, host: str, port: int) -> None:
        """Measure round trips and transfers between a client and the machine that answers.

        The source had 10,000 of each, of one byte and of 2 GB. Without a host, this machine answers
        itself.
        """
        transfer = self.plan.many(2 * GB, MB)
        kinds = (("round trip", 1, 10_000), ("transfer", transfer, 1_000))
        with _answering(host, port) as (address, number):
            for operation, size, amount in self.plan.order("tcp", kinds):
                work = TcpCalls(host=address, port=number, size=size)
                self._measure("tcp", operation, size, 1, work, self.plan.many(amount, 20))

    def transfers(self, storage: str) -> None:
        """Move files, cut in each way: today's and others, by turns, in rounds of random order."""
        sizes = self.plan.cut_sizes
        what = [
            Trial(service=Service.AZURE, direction=direction, size=size, cut=cut)
            for size in sizes
            for cut in cuts(size)
            for direction in ("upload", "download")
        ]
        rounds = self.plan.many(1000, 6)
        trials = in_rounds(what, rounds, Random(f"transfers {self.plan.seed}"))
        with _container(storage, sizes) as container:
            self._trials("transfers", TrialCalls(
                trials=tuple(trials), storage=storage, container=container
            ))  # fmt: skip

    def sizes(self, storage: str, url: str) -> None:
        """Move files of fifteen sizes, fifty of each, of both services, in random order."""
        sizes = self.plan.file_sizes
        named = ((Service.AZURE, storage), (Service.FILES, url))
        what = [
            Trial(service=service, direction=direction, size=size)
            for service, name in named
            if name
            for size in sizes
            for direction in ("upload", "download")
        ] * self.plan.many(50, 3)
        trials = self.plan.order("sizes", what)
        with ExitStack() as stack:
            container = stack.enter_context(_container(storage, sizes)) if storage else ""
            own = stack.enter_context(_folder(url, sizes)) if url else ""
            self._trials("sizes", TrialCalls(
                trials=tuple(trials), storage=storage, container=container, url=own
            ))  # fmt: skip

    def nodes(self, storage: str) -> None:
        """Have up to twenty nodes transfer at once: 25 files of 1 GB each in the source."""
        size, count = self.plan.many(GB, 1000), self.plan.many(25, 3)
        with _container(storage, (size,)) as container:
            points = product(self._node_numbers, _UP_AND_DOWN)
            for number, operation in self.plan.order("nodes", points):
                work = BlobCalls(
                    storage=storage, container=container, operation=operation, size=size
                )
                self._measure("nodes", operation, size, number, work, count)

    @property
    def _node_numbers(self) -> list[int]:
        return sorted({min(one, max(self.plan.clients)) for one in NODES})

    def sql(self, urls: Sequence[str]) -> None:
        """Run a mix of transactions like TPC-E's on each database."""
        # Only where it is used: SQLAlchemy is an extra.
        from bench.platform.sql_mix import SqlCalls, filled, kind_of

        with ExitStack() as stack:
            for url in urls:
                stack.enter_context(filled(url))
            for url, number in self.plan.order("sql", product(urls, self.plan.clients)):
                self._measure("sql", kind_of(url), 0, number, SqlCalls(url=url))

    def instances(self, kinds: Sequence[Kind], number: int) -> None:
        """Take machines of each kind through a life, in rounds of random order.

        The source had 431 lives of eight kinds.
        """
        for turn in range(self.plan.many(54, 2)):
            for point in measure_instances(self.plan.order(f"instances {turn}", kinds), number):
                self.done(point)

    def _trials(self, experiment: str, work: TrialCalls) -> None:
        """Make trials in their order; hand on each, and the points that they make up."""
        calls = self.clients.run(work, 1, 0.0, len(work.trials))
        timed = [Timed(trial=t, call=c) for t, c in zip(work.trials, calls, strict=True)]
        self.timed(experiment, timed)
        for what in dict.fromkeys(trial.what for trial in work.trials):
            service, direction, size, cut = what
            way = service if experiment == "sizes" else "as it is" if cut == BY_SIZE else cut
            name = f"{direction}, {way}"
            self.done(
                Point(
                    experiment=experiment,
                    operation=name,
                    size=size,
                    clients=1,
                    calls=tuple(one.call for one in timed if one.trial.what == what),
                    apart=True,
                )
            )

    def _measure(
        self, experiment: str, operation: str, size: int, number: int, work: Work, count: int = 0
    ) -> Point:
        calls = self.clients.run(work, number, self.plan.seconds, count)
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
def _folder(url: str, sizes: tuple[int, ...]) -> Iterator[str]:
    """Make a folder of a store that holds a file of each size; delete it at the end."""
    store, root = fsspec.core.url_to_fs(url)
    folder = f"{root.rstrip('/')}/{_name()}"
    store.makedirs(folder, exist_ok=True)
    try:
        for size in sizes:
            store.pipe_file(f"{folder}/{file_name(size)}", os.urandom(size))
        yield store.unstrip_protocol(folder)
    finally:
        store.invalidate_cache()
        store.rm(folder, recursive=True)


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


def _table_name() -> str:
    return _name().replace("-", "")
