"""A stack for tests: on this machine, or docker-compose.yml in containers.

SWATHMILL_TEST_ENGINE is the command of a container engine with its options, and SWATHMILL_TEST_RUN
further options of its `run`; `make proofs ONLY=containers` sets them.
"""

import os
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.containers import (
    OWNER,
    PROCESSES,
    TAG,
    answers,
    do,
    free_ports,
    on_loopback,
    options_of,
    read_services,
    redis,
    running,
    until,
)
from tests.acceptance.running import Running, started

ENGINE = shlex.split(os.environ.get("SWATHMILL_TEST_ENGINE", ""))
MORE = shlex.split(os.environ.get("SWATHMILL_TEST_RUN", ""))


@contextmanager
def stack_over(archive: Path, folder: Path) -> Iterator[Running]:
    """A stack over an archive, with its files in a folder that is there."""
    with in_containers(archive, folder) if ENGINE else started(folder, archive, {}) as running:
        yield running


@contextmanager
def in_containers(archive: Path, folder: Path) -> Iterator[Running]:
    """The processes of docker-compose.yml over a copy of an archive, without any other folder."""
    for place in (folder, *folder.parents[:3]):
        place.chmod(place.stat().st_mode | 0o055)  # the user of the containers reads the archive
    shutil.copytree(archive, folder / "archive", copy_function=shutil.copyfile)
    log = folder / "log"
    log.touch()
    ports = free_ports(7)
    password, address = secrets.token_hex(24), f"http://127.0.0.1:{ports[1]}"
    services = read_services(
        {
            **TAG,
            "SWATHMILL_ARCHIVE": str(folder / "archive"),
            "SWATHMILL_REDIS_PASSWORD": password,
            "SWATHMILL_SECRET": secrets.token_hex(32),
            "SWATHMILL_PORTAL_URL": address,
        }
    )
    redis_url = f"redis://:{password}@127.0.0.1:{ports[0]}/0"
    mark = secrets.token_hex(4)
    with ExitStack() as stack:
        stack.enter_context(redis(ports[0], password))
        for volume in ("data", "data-reductions"):
            stack.callback(do, ENGINE, "volume", "rm", "--force", f"{mark}-{volume}")
        for process, port in zip(PROCESSES, ports[3:], strict=True):
            service = services[process]
            on_loopback(service["environment"], redis_url, ports[1], ports[2], port)
            options = [*MORE, *options_of(service, mark)]
            stack.enter_context(running(ENGINE, f"{mark}-{process}", service, options))
        until(lambda: all(map(answers, ports[3:])), "all processes are ready")
        token = do(ENGINE, "exec", f"{mark}-portal", "swathmill", "sign-in", OWNER, "--token")
        yield Running(data=folder / "none", log=log, portal=address, token=token.strip())
