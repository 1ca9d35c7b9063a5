"""A worker process that collects from a server which does wrong: real Redis and Celery."""

import hashlib
from collections.abc import Iterator

import pytest

from reprojection.sample.hdfeos_write import write_granule
from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import State
from tasks.bag.spec import CollectSpec
from tasks.bag.task_table import TaskTable
from tasks.storage.blobs import GRANULES
from tests.archives.servers import (
    Act,
    FileServer,
    Served,
    body,
    cut,
    file_server,
    nonsense,
    redirect,
    stall,
    status,
)
from tests.reprojection.reading_samples import small_tile
from tests.waiting import until
from tests.worker.processes import Process, Stack, make_stack

pytestmark = pytest.mark.integration
TOKEN = "the-token-that-nobody-may-see"
HALF = 1_000_000
PRODUCED = "2020300001122"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A granule of two megabytes; HDF4 does not mind what follows its last element."""
    path = tmp_path_factory.mktemp("granule") / "tile.hdf"
    about = {"product": "MOD13A2", "collection": 61, "date": "2020001", "produced": PRODUCED}
    write_granule(path, small_tile((18, 4), **about))  # type: ignore[arg-type]
    return path.read_bytes().ljust(2 * HALF, b"x")


@pytest.fixture(scope="module")
def server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


@pytest.fixture(scope="module")
def stack(
    embedded: str, redis_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    stack = make_stack(embedded, redis_server, tmp_path_factory.mktemp("fetches"))
    yield stack
    stack.end()


@pytest.fixture(scope="module", autouse=True)
def process(stack: Stack, server: FileServer) -> Process:
    """The one worker, whose token is the server's."""
    host = server.url.removeprefix("http://")
    sources = f"laads+{server.url}"
    return stack.worker("fetcher", SOURCES=sources, EARTHDATA_TOKEN=TOKEN, EARTHDATA_HOSTS=host)


def plan(stack: Stack, server: FileServer, data: bytes, day: int) -> CollectSpec:
    """A granule of that day on the server, and its collection."""
    name = f"MOD13A2.A2020{day:03d}.h18v04.061.{PRODUCED}.hdf"
    server.files[f"/{name}"] = Served(data=data)
    spec = CollectSpec(
        product="MOD13A2",
        collection="61",
        granule=name,
        production=PRODUCED,
        source=f"laads+{server.url}",
        url=f"{server.url}/{name}",
        size=len(data),
        checksum=hashlib.md5(data, usedforsecurity=False).hexdigest(),
        checksum_type="MD5",
    )
    stack.world.plan(spec)
    return spec


def stored(stack: Stack, spec: CollectSpec) -> list[str]:
    return list(stack.world.runtime.blobs.names(GRANULES, spec.key))


def test_a_fetch_killed_midway_shows_nothing_and_the_next_attempt_goes_on(
    stack: Stack, server: FileServer, data: bytes
) -> None:
    store, clock = stack.world.runtime.store, stack.world.runtime.clock
    spec = plan(stack, server, data, 1)
    server.acts[f"/{spec.granule}"] = [stall(HALF)]
    stack.send(spec.key)
    part = stack.folder / "data" / "downloads" / spec.key / f"{spec.granule}.part"
    until(lambda: part.exists() and part.stat().st_size == HALF, 60, "half of it is here")
    until(lambda: any(row.attempts for row in workers.list_workers(store)), 20, "a beat lists it")
    assert workers.order_kill(store, clock, "fetcher", stack.world.task(spec.key).claim)
    assert stack.settled(spec.key).state is State.READY
    assert stored(stack, spec) == []
    stack.world.wake(spec.key)
    stack.send(spec.key)
    task = stack.settled(spec.key)
    assert task.state is State.DONE, TaskTable(store).attempts(spec.key)
    assert [asked.headers.get("range") for asked in server.asked] == [None, f"bytes={HALF}-"]
    (file,) = task.files
    (name,) = stored(stack, spec)
    assert file.blob == f"{GRANULES}/{name}"
    assert stack.world.runtime.blobs.get_bytes(GRANULES, name) == data
    assert not part.parent.exists()


FAULTS: dict[str, tuple[Act, Category]] = {
    "sign-in page": (body(b"<!DOCTYPE html><html>sign in"), Category.CREDENTIALS_REFUSED),
    "401": (status(401), Category.CREDENTIALS_REFUSED),
    "404": (status(404), Category.SOURCE_NOT_PUBLISHED),
    "503": (status(503, Retry_After="33"), Category.SERVER_BUSY),
    "other bytes": (body(b"\x0e\x03\x13\x01" * (HALF // 2)), Category.DOWNLOAD_FAILED),
    "elsewhere": (redirect("/nothing-here"), Category.SOURCE_NOT_PUBLISHED),
    "cut": (cut(0), Category.CONNECTION_FAILURE),
    "504": (status(504), Category.OPERATION_TIMEOUT),
    "no HTTP": (nonsense, Category.TRANSPORT_ERROR),
}


@pytest.mark.provokes(
    Category.CREDENTIALS_REFUSED,
    Category.SOURCE_NOT_PUBLISHED,
    Category.SERVER_BUSY,
    Category.DOWNLOAD_FAILED,
    Category.CONNECTION_FAILURE,
    Category.OPERATION_TIMEOUT,
    Category.TRANSPORT_ERROR,
)
def test_each_fault_ends_in_its_category_and_stores_nothing(
    stack: Stack, server: FileServer, process: Process, data: bytes
) -> None:
    specs = {}
    for day, (fault, (act, _)) in enumerate(FAULTS.items(), start=100):
        specs[fault] = plan(stack, server, data, day)
        server.always[f"/{specs[fault].granule}"] = act
        stack.send(specs[fault].key)
    for fault, (_, category) in FAULTS.items():
        stack.settled(specs[fault].key)
        (attempt,) = stack.world.runtime.tasks.attempts(specs[fault].key)
        assert attempt.category is category, (fault, attempt)
        assert stored(stack, specs[fault]) == []
        assert TOKEN not in attempt.message + attempt.log
    busy = stack.world.task(specs["503"].key)
    assert busy.not_before > stack.world.runtime.clock.now() + 20
    assert TOKEN not in process.log.read_text("utf-8")
    assert all(a.headers["authorization"] == f"Bearer {TOKEN}" for a in server.asked)
