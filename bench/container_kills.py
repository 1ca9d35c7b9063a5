"""Kill and restart the containers of docker-compose.yml on two hosts, and see requests complete.

`make proofs ONLY=container-kills`. The engine alone starts the processes, each with
its command, environment and restrictions: a portal, two managers, two workers that share no folder
(each on a host of its own, as they see it), a runner of the reduction pool. Azurite and a Redis
server of this machine stand for the account and the Redis that two hosts share. Requests with a
private package run while the acting manager and one host are killed, and then while each part is
restarted in turn.
"""

import argparse
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.containers import (
    OWNER,
    REQUEST,
    ROLE_IMAGES,
    SWATHMILL,
    TAG,
    answers,
    do,
    free_ports,
    on_loopback,
    options_of,
    read_services,
    until,
)
from swathmill.stack.azurite import Account, AzuriteServer
from swathmill.stack.children import Child
from swathmill.stack.redis_server import RedisServer
from swathmill.stack.server import Server
from tasks.bag import workers
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.operators import manager_rows
from tasks.service.connect import connect_storage

# Containers, and the service of docker-compose.yml that each is.
CONTAINERS = {
    "portal": "portal",
    "manager-1": "manager",
    "manager-2": "manager",
    "reductions": "reductions",
    "worker-1": "worker",
    "worker-2": "worker",
}
_FINE = 0.004  # degrees: a request lasts for several beats of its workers, so that it is seen
_ENDED = ("complete", "complete with gaps", "failed", "cancelled", "refused")


@dataclass(kw_only=True)
class Hosts:
    """The containers and servers, by name, and requests that are under way."""

    engine: list[str]
    mark: str
    ports: dict[str, int]
    servers: dict[str, Server]
    runtime: Runtime
    url: str
    running: dict[str, Child] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)  # that start each container
    requests: list[str] = field(default_factory=list)
    token: str = ""

    def container(self, name: str) -> str:
        """Return the engine's name of a container."""
        return f"{self.mark}-{name}"

    def ready(self, name: str) -> bool:
        """Tell whether a container's process says that it is ready."""
        return answers(self.ports[name])

    def restart(self, name: str) -> None:
        """Stop a part, start it again, and wait until it is ready."""
        if name in self.servers:
            self.running[name].stop()
            self.running[name] = self.servers[name].start()
        else:
            do(self.engine, "stop", "--time", "90", self.container(name))
            do(self.engine, "start", self.container(name))
        until(lambda: all(map(self.ready, CONTAINERS)), f"all are ready after {name}")

    def acting(self) -> str:
        """Return the container of the manager that acts, "" while none does."""
        try:
            found = manager_rows.managers(self.runtime.store, time.time())
        except StoreError:
            return ""
        return next((one.host for one in found if one.acts), "")

    def busy_worker(self) -> str:
        """Return the container of a worker that runs an attempt, "" while none does."""
        rows = workers.list_workers(self.runtime.store)
        return next((row.host for row in rows if row.attempts), "")

    def state(self, request: str) -> dict[str, Any]:
        """Return a request, as the API has it; {} while the portal does not answer."""
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            answer = httpx.get(f"{self.url}/api/requests/{request}", headers=headers, timeout=30)
            found: dict[str, Any] = answer.json() if answer.is_success else {}
        except httpx.HTTPError:
            return {}
        return found

    def submit(self, resolution: float) -> None:
        """Submit a request of its own, whatever is restarting."""
        document = {**REQUEST, "grid": {"crs": "EPSG:4326", "resolution": resolution}}
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.post(f"{self.url}/api/requests", json=document, headers=headers, timeout=60)
        answer.raise_for_status()
        self.requests.append(answer.json()["id"])

    def under_way(self) -> bool:
        """Tell whether the latest request has tasks done and others left."""
        found = self.state(self.requests[-1])
        done = sum(int(one["done"]) for one in found.get("phases", {}).values())
        return found.get("state") == "running" and done > 0


def main() -> int:
    """Run everything; return 0 when every request is complete with its results."""
    parser = argparse.ArgumentParser(prog="bench.container_kills")
    parser.add_argument("--engine", default=os.environ.get("SWATHMILL_TEST_ENGINE", "podman"))
    parser.add_argument("--run-options", default=os.environ.get("SWATHMILL_TEST_RUN", ""))
    parser.add_argument("--roles", action="store_true", help="run the images of roles")
    given = parser.parse_args()
    images = ROLE_IMAGES if given.roles else None
    engine, more = shlex.split(given.engine), shlex.split(given.run_options)
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # the user of the containers reads the archive
        subprocess.run([SWATHMILL, "sample", str(folder / "archive")], check=True)
        hosts = prepared(engine, more, folder, stack, images)
        start(hosts, CONTAINERS)
        push_package(hosts, folder)
        kill(hosts)
        restart_each(hosts)
        return report(hosts)


def prepared(
    engine: list[str],
    more: list[str],
    folder: Path,
    stack: ExitStack,
    images: Mapping[str, str] | None = None,
) -> Hosts:
    """Start the servers, and return what starts each container.

    `images` are those of services that have another than docker-compose.yml names.
    """
    azurite = AzuriteServer.on_free_ports(
        folder=folder / "azurite", log=folder / "azurite.log", account=Account.new()
    )
    redis = RedisServer.on_free_port(folder=folder / "redis", log=folder / "redis.log")
    running = {"azurite": azurite.start(), "redis": redis.start()}
    portal, runner, *probes = free_ports(2 + len(CONTAINERS))
    hosts = Hosts(
        engine=engine,
        mark=secrets.token_hex(4),
        ports=dict(zip(CONTAINERS, probes, strict=True)),
        servers={"azurite": azurite, "redis": redis},
        runtime=connect_storage(azurite.connection_string),
        url=f"http://127.0.0.1:{portal}",
        running=running,
    )
    stack.callback(stop_servers, hosts)
    variables = {
        **TAG,
        "SWATHMILL_ARCHIVE": str(folder / "archive"),
        "SWATHMILL_REDIS_PASSWORD": redis.password,
        "SWATHMILL_SECRET": secrets.token_hex(32),
        "SWATHMILL_PORTAL_URL": hosts.url,
    }
    for name, what in CONTAINERS.items():
        service = read_services(variables)[what]
        on_loopback(service["environment"], redis.url, portal, runner, hosts.ports[name])
        if what != "reductions":
            service["environment"]["SWATHMILL_STORAGE"] = azurite.connection_string
        container = hosts.container(name)
        # A host of its own: its name is one, and so are all its volumes.
        options = [*more, "--hostname", name, *options_of(service, container)]
        stack.callback(remove, engine, container)
        image = (images or {}).get(what, service["image"])
        hosts.words[name] = ["--name", container, *options, image, *service["command"]]
    return hosts


def start(hosts: Hosts, names: Collection[str]) -> None:
    """Start containers, the portal and a manager among them, and wait until all are ready."""
    for name in names:
        do(hosts.engine, "run", "--detach", *hosts.words[name])
    until(lambda: all(map(hosts.ready, names)), "all are ready")
    until(lambda: bool(hosts.acting()), "a manager acts")
    for name in names:
        check_confined(hosts.engine, hosts.container(name))
    words = ("exec", hosts.container("portal"), "swathmill", "sign-in", OWNER, "--token")
    hosts.token = do(hosts.engine, *words).strip()


def stop_servers(hosts: Hosts) -> None:
    """Stop Azurite and the Redis server, as they were started last."""
    for child in hosts.running.values():
        child.stop()


def remove(engine: list[str], container: str) -> None:
    """Remove a container with its volumes, and print its last lines when something has failed."""
    if sys.exc_info()[0] is not None:
        subprocess.run([*engine, "logs", "--tail", "20", container], check=False)
    subprocess.run([*engine, "rm", "--force", "--volumes", container], capture_output=True)
    for volume in do(engine, "volume", "ls", "--quiet").split():
        if volume.startswith(f"{container}-"):
            do(engine, "volume", "rm", "--force", volume)


def check_confined(engine: list[str], container: str) -> None:
    """Refuse a process that is root, or that may write beside its data."""
    script = "id -u; touch /app/written 2>/dev/null && echo written; true"
    said = do(engine, "exec", container, "sh", "-c", script).split()
    if said != ["10001"]:
        raise SystemExit(f"{container} is not confined: {said}")


def push_package(hosts: Hosts, folder: Path, needs: str = "") -> None:
    """Push a new package of the owner; `needs` is a Python dependency that it has."""
    environment = {
        **os.environ,
        "SWATHMILL_PORTAL_URL": hosts.url,
        "SWATHMILL_TOKEN": hosts.token,
    }
    for words in (("new", "my-mean", "--language", "python"), ("push", "my-mean")):
        command = [SWATHMILL, "package", *words]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        if needs:
            (folder / "my-mean" / "requirements.txt").write_text(f"{needs}\n", "utf-8")


def kill(hosts: Hosts) -> None:
    """Kill the acting manager and a host that works, and wait for the end of the request."""
    hosts.submit(_FINE)
    until(hosts.under_way, "the request is under way")
    lost: list[str] = []

    def found() -> bool:
        lost[:] = [hosts.acting(), hosts.busy_worker()]
        return all(lost)

    until(found, "a manager acts and a worker works")
    for name in lost:
        do(hosts.engine, "kill", hosts.container(name))
    began = time.monotonic()
    print("killed:", *lost, flush=True)
    until(lambda: hosts.acting() not in ("", lost[0]), "another manager acts")
    print(f"{hosts.acting()} acts after {time.monotonic() - began:.0f} s", flush=True)
    until(lambda: hosts.state(hosts.requests[-1]).get("state") in _ENDED, "the request's end")
    print(f"the request has ended after {time.monotonic() - began:.0f} s", flush=True)
    for name in lost:
        do(hosts.engine, "start", hosts.container(name))
    until(lambda: all(map(hosts.ready, CONTAINERS)), "all are ready again")


def restart_each(hosts: Hosts) -> None:
    """Restart each part in turn, each time with a request under way."""
    for number, name in enumerate((*CONTAINERS, *hosts.servers)):
        hosts.submit(_FINE + (number + 1) / 10_000)
        until(hosts.under_way, "the request is under way")
        began = time.monotonic()
        hosts.restart(name)
        print(f"{name} restarted in {time.monotonic() - began:.0f} s", flush=True)
    ended = {one: "" for one in hosts.requests}

    def all_ended() -> bool:
        for one in ended:
            ended[one] = ended[one] or hosts.state(one).get("state", "")
            ended[one] = ended[one] if ended[one] in _ENDED else ""
        return all(ended.values())

    until(all_ended, "the end of all requests")


def report(hosts: Hosts) -> int:
    """Print how each request ended and how many of its tasks failed; return the exit code."""
    whole = True
    for request in hosts.requests:
        found = hosts.state(request)
        failed = sum(one["failed"] for one in found["phases"].values())
        whole &= found["state"] == "complete" and found["delivered"] == found["outputs"] > 0
        print(
            f"{found['state']}: {found['delivered']} of {found['outputs']} results, "
            f"{failed} tasks failed"
        )
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
