"""What followers of requests cost the portal: its processor time, without workers beside it.

    python -m bench.portal.followers [--pages 1000] [--calls 0] [--seconds 20] [--others]

A portal of its own on embedded storage serves four requests, whose rows are changed twice a second
as a manager does. Pages follow them, as `bench.portal` has them: the owner's, or with `--others`
those of a person with whom they are shared by a group. Told are the cores that the portal takes,
and its milliseconds of processor time per follower and minute.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.portal.__main__ import PATHS, open_crowd
from bench.portal.crowd import Order
from portal.serving import tokens
from portal.serving.identity import COOKIE
from processes import ready
from swathmill.stack import ports
from tasks.accounts.group_table import GroupRow, GroupTable
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import PhaseCount
from tasks.service.connect import connect_storage

REQUESTS = 4
OWNER, READER, GROUP = "ada@example.org", "bob@example.org", "readers"
DOCUMENT = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 51.0, -4.0, 54.0]},
    "time": {"start": "2012-03-05", "end": "2012-03-05"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.25},
}
TASKS = 1_000_000


@contextmanager
def portal(folder: Path, secret: str) -> Iterator[tuple[int, int]]:
    """Run a portal; return its process id and port."""
    (port,) = ports.choose(1)
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "portal"],
        env=os.environ
        | {
            "SWATHMILL_DATA_DIR": str(folder),
            "SWATHMILL_STORAGE": f"file:{folder / 'storage'}",
            "SWATHMILL_REDIS_URL": "redis://127.0.0.1:1/0",
            "SWATHMILL_SECRET": secret,
            "SWATHMILL_PORTAL_ADDRESS": f"{ports.LOOPBACK}:{port}",
            "SWATHMILL_PORTAL_URL": f"http://{ports.LOOPBACK}:{port}",
            ready.VARIABLE: str(writing),
        },
        pass_fds=(writing,),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    try:
        if not os.read(reading, 1):
            raise RuntimeError("the portal did not start")
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(30)


def submitted(runtime: Runtime) -> list[str]:
    """Submit the requests, shared with a group."""
    group = GroupTable(runtime.store).write(
        runtime.clock, GroupRow(name=GROUP, owner=OWNER, members=(READER,))
    )
    request = parse_request(DOCUMENT)
    return [
        request_operations.submit(runtime, OWNER, request, group=group.key) for _ in range(REQUESTS)
    ]


def change(runtime: Runtime, name: str, done: int) -> None:
    """Change a request's row as the manager does."""
    counts = {Phase.COLLECTION: PhaseCount(total=TASKS, done=done, running=2)}
    request_operations.change_request(
        runtime, name, lambda row: replace(row, state=RequestState.RUNNING, phases=counts)
    )


def cpu(pid: int) -> float:
    """Return the processor seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--calls", type=float, default=0.0, help="API calls a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--others", action="store_true", help="pages of who is no owner")
    given = parser.parse_args()
    secret = secrets.token_hex(32)
    with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as name:
        folder = Path(name)
        runtime = connect_storage(f"file:{folder / 'storage'}")
        names = submitted(runtime)
        for one in names:
            change(runtime, one, 0)
        with portal(folder, secret) as (pid, port):
            person = READER if given.others else OWNER
            session = tokens.issue(secret, person, use=tokens.Use.SESSION)
            order = Order(
                host=ports.LOOPBACK,
                port=port,
                cookie=f"{COOKIE}={session}",
                token=tokens.issue(secret, OWNER, use=tokens.Use.API),
                requests=tuple(names),
                paths=tuple(path.format(name) for name in names for path in PATHS),
                pages=given.pages,
                calls=given.calls,
            )
            crowd = open_crowd(order)
            assert crowd.stdin is not None
            assert crowd.stdout is not None
            changed: dict[tuple[str, int], float] = {}
            began, before, done = time.monotonic(), cpu(pid), 0
            while (took := time.monotonic() - began) < given.seconds:
                done += 1
                for one in names:
                    change(runtime, one, done)
                    changed[one, done] = time.time()
                time.sleep(0.5)
            spent = cpu(pid) - before
            crowd.stdin.close()
            seen = json.loads(crowd.stdout.read())
            crowd.wait()
    late = sorted(
        at - changed[one, at_] for at, one, at_ in seen["events"] if (one, at_) in changed
    )
    sys.stdout.write(
        f"{spent / took:.3f} cores; {len(late)} events, {1e6 * spent / max(1, len(late)):.0f} us "
        f"each; {60_000 * spent / took / max(1, given.pages):.1f} ms a follower and minute; "
        f"late {late[len(late) // 2]:.2f} s, 99% {late[int(0.99 * len(late))]:.2f} s; "
        f"lost {seen['lost']}; calls {len(seen['seconds'])}, {seen['statuses']}\n"
    )


if __name__ == "__main__":
    main()
