"""Fixtures that all tests share."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from reprojection.sample.sample import write_sample_archive
from swathmill.stack import ports
from swathmill.stack.azurite import Account, AzuriteServer
from swathmill.stack.children import Child, ChildSpec
from swathmill.stack.redis_server import RedisServer
from tests.once import made_once
from tests.own_loop import loop_in_this_thread

# A shell starts background commands with SIGINT ignored, and children would inherit that: stacks
# that tests stop as Ctrl-C does would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests of other things also run where bubblewrap does not work.
os.environ.setdefault("SWATHMILL_SANDBOX", "limits")
# What a portal in this process logs is no part of what a command prints.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.__stderr__))
# A busy machine makes any test slow.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage while tests are collected, and later not in what collecting made.

    All of it lives until the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _logs_as_before() -> Iterator[None]:
    """Let no file of tests silence the logs of those that run after it in this process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True, scope="session")
def _a_loop_in_the_thread_of_tests() -> Iterator[None]:
    """Run all tests as those that follow a browser's in its process: it leaves its loop there.

    So what cannot run beside a loop fails in each order of tests, not in some.
    """
    with loop_in_this_thread():
        yield


MOTO = Path(__file__).parent.parent / "build" / "moto"
SLOWEST = ("slow", "integration", "browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of slow tests and go on with those that start servers, so that no
    process is left alone with them at the end."""
    rank: dict[Path, int] = {}
    for item in items:
        mine = next((n for n, name in enumerate(SLOWEST) if item.get_closest_marker(name)), 9)
        rank[item.path] = min(mine, rank.get(item.path, 9))
    items.sort(key=lambda item: rank[item.path])


@pytest.fixture(scope="session")
def granules() -> Path:
    """The folder of real MODIS granules, or a skip that says how to name one."""
    folder = os.environ.get("SWATHMILL_TEST_GRANULES", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SWATHMILL_TEST_GRANULES names no folder of real MODIS granules")
    return Path(folder)


@pytest.fixture(scope="session")
def sample_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the synthetic archive, made once for all processes; no test may change it."""
    return made_once(tmp_path_factory, "sample-archive", write_sample_archive)


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """SWATHMILL_STORAGE for embedded storage of this test session's own."""
    return f"file:{tmp_path_factory.mktemp('storage')}"


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of a real Azurite of this test session's own."""
    folder = tmp_path_factory.mktemp("azurite")
    server = AzuriteServer.on_free_ports(
        folder=folder / "data", log=folder / "azurite.log", account=Account.new()
    )
    child = server.start()
    yield server.connection_string
    child.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Redis of this test session's own."""
    folder = tmp_path_factory.mktemp("redis")
    server = RedisServer.on_free_port(folder=folder / "data", log=folder / "redis.log")
    child = server.start()
    yield server.url
    child.stop()


@pytest.fixture(scope="session")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The loopback port of an S3 server of this test session's own, which takes any keys."""
    (port,) = ports.choose(1)
    words = ("-P", "-m", "moto.server", "-H", ports.LOOPBACK, "-p", str(port))
    log = tmp_path_factory.mktemp("s3") / "log"
    child = Child(
        ChildSpec(name="s3", argv=(sys.executable, *words), env={"PYTHONPATH": str(MOTO)}, log=log)
    )
    child.start()
    child.wait_until(lambda: ports.answers(port), limit_seconds=60)
    yield port
    child.stop()
