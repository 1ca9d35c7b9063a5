"""Run the images of roles as containers, and measure their sizes and a worker's start.

`make bench ONLY=images ARGS="--base NAME"` after `docker build --target ROLE --tag
swathmill-ROLE:tested` of each role. Portal, manager and runner run as docker-compose.yml says: user
10001, a read-only root, no capabilities; Azurite and a Redis server of this machine stand for the
account. Then requests are submitted while there is no worker, and each time a worker's container is
started anew: the seconds are from the engine's `run` to the worker's first attempt. The requests
run a package of the owner in the pool, with a Python dependency of a registry of this machine, and
in the worker a shipped package and a table of sites, whose charts the portal then draws.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from bench.container_kills import Hosts, prepared, push_package, remove, start
from bench.containers import REQUEST, ROLE_IMAGES, SWATHMILL, do, until
from tests.tasks.wheels import registry, write_wheel

ZONES = (
    '{"type": "Polygon", "coordinates": [[[-4.0, 51.0], [0.0, 51.0], [0.0, 53.0], [-4.0, 51.0]]]}'
)
_PLAIN: dict[str, Any] = {name: part for name, part in REQUEST.items() if name != "reduction"}
REQUESTS: dict[str, dict[str, Any]] = {
    "a package of the owner": REQUEST,
    "zonal statistics": _PLAIN
    | {
        "reduction": {
            "package": "zonal-statistics",
            "group_by": ["cell", "month"],
            "parameters": {"zones": ZONES},
        }
    },
    "a table of sites": {
        name: part for name, part in _PLAIN.items() if name not in ("grid", "region")
    }
    | {"region": {"sites": "id,latitude,longitude\nMoor,53.0,-2.0\nFen,52.5,0.1\n"}},
}
_STARTED = "attempt started"  # in a worker's log


def main() -> int:
    """Print sizes and times; return 0 when every request is complete with its results."""
    parser = argparse.ArgumentParser(prog="bench.images")
    parser.add_argument("--engine", default=os.environ.get("SWATHMILL_TEST_ENGINE", "podman"))
    parser.add_argument("--run-options", default=os.environ.get("SWATHMILL_TEST_RUN", ""))
    parser.add_argument("--base", help="the image that they were built over")
    given = parser.parse_args()
    engine = shlex.split(given.engine)
    images = ROLE_IMAGES
    base = size(engine, given.base) if given.base else 0
    for image in images.values():
        print(f"{image}: {(size(engine, image) - base) / 1e6:.0f} MB", flush=True)
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # the user of the containers reads the archive
        subprocess.run([SWATHMILL, "sample", str(folder / "archive")], check=True)
        write_wheel(folder / "registry", "parcel", "1.0", {"parcel.py": "SIZE = 1\n"})
        index = stack.enter_context(registry(folder / "registry"))
        hosts = prepared(engine, shlex.split(given.run_options), folder, stack, images)
        hosts.words["portal"][:0] = ["--env", f"SWATHMILL_PYTHON_INDEX={index}"]
        start(hosts, ["portal", "manager-1", "reductions"])
        push_package(hosts, folder, "parcel")
        took = [run(hosts, what, document) for what, document in REQUESTS.items()]
        print(f"from run to the first attempt: median {statistics.median(took):.1f} s")
    return 0


def size(engine: list[str], image: str) -> int:
    """Return an image's bytes, unpacked."""
    return int(do(engine, "image", "inspect", "--format", "{{.Size}}", image))


def run(hosts: Hosts, what: str, document: dict[str, Any]) -> float:
    """Do a request by a new worker; return the seconds from its start to its first attempt."""
    headers = {"Authorization": f"Bearer {hosts.token}"}
    answer = httpx.post(f"{hosts.url}/api/requests", json=document, headers=headers, timeout=60)
    if answer.is_error:
        raise SystemExit(f"{what}: {answer.text}")
    request = answer.json()["id"]
    until(lambda: hosts.state(request).get("state") == "running", "the request runs")
    container = hosts.container("worker-1")
    began = time.monotonic()
    do(hosts.engine, "run", "--detach", *hosts.words["worker-1"])

    def log() -> str:
        command = [*hosts.engine, "logs", container]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

    until(lambda: _STARTED in log(), "an attempt starts")
    took = time.monotonic() - began
    until(lambda: bool(hosts.state(request).get("ended")), f"the end of {what}")
    found = hosts.state(request)
    if found["state"] != "complete" or not found["delivered"] == found["outputs"] > 0:
        raise SystemExit(f"{what}: {found['state']}, {found['message']}\n{log()[-3000:]}")
    if "sites" in document["region"]:
        page = httpx.get(f"{hosts.url}/requests/{request}/sites", headers=headers, timeout=60)
        if page.is_error or "<svg" not in page.text:
            raise SystemExit(f"the page of sites has no chart: {page.text[:3000]}")
    print(f"{what}: complete, {found['delivered']} results; first attempt after {took:.1f} s")
    remove(hosts.engine, container)
    return took


if __name__ == "__main__":
    sys.exit(main())
