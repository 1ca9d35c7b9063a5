"""Start the processes of docker-compose.yml in containers, for tests.

The engine alone starts each of our processes with its command, environment, volumes and
restrictions, on the network of this host, so that no compose program is needed. A Redis server of
this machine takes the place of Valkey's container, whose image is not ours. The image is
`swathmill:tested`, which the proofs `containers` and `container-kills` build (`tests/proofs.py`).
"""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from modis.yaml_text import load_own_yaml
from swathmill.stack.programs import redis_server

ROOT = Path(__file__).parents[1]
LIMIT = 240.0  # seconds
OWNER = "scientist@example.org"
PROCESSES = ("portal", "manager", "reductions", "worker")
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?+])([^}]*))?\}")
TAG = {"SWATHMILL_TAG": "tested"}
"""Which image is run, as a variable of docker-compose.yml."""
ROLE_IMAGES = {
    "portal": "swathmill-portal:tested",
    "manager": "swathmill-manager:tested",
    "worker": "swathmill-worker:tested",
    "reductions": "swathmill-runner:tested",
}
"""The image of its role for each service of docker-compose.yml."""
SWATHMILL = str(Path(sys.executable).with_name("swathmill"))
REQUEST = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-04-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.02},
    "reduction": {"package": "my-mean", "group_by": ["cell", "month"]},
}


def read_services(variables: Mapping[str, str]) -> dict[str, Any]:
    """Read the services of docker-compose.yml, with variables put in as compose does."""

    def put_in(found: re.Match[str]) -> str:
        name, how, other = found.groups()
        value = variables.get(name, "")
        if how == "?" and not value:
            raise SystemExit(f"{name} has no value: {other}")
        return (other if value else "") if how == "+" else value or (other or "")

    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    document: Any = load_own_yaml(_VARIABLE.sub(put_in, text))
    services: dict[str, Any] = document["services"]
    for service in services.values():
        told = service.get("environment", {})
        merged = [dict(one) for one in told.pop("<<", [])] if isinstance(told, dict) else []
        service["environment"] = {key: one for part in [*merged, told] for key, one in part.items()}
    return services


def on_loopback(
    environment: dict[str, Any], redis_url: str, portal: int, runner: int, probe: int
) -> None:
    """Have a service listen on this machine's loopback address, and find the others there."""
    environment |= {"SWATHMILL_PROBE_ADDRESS": f"127.0.0.1:{probe}"}
    if "SWATHMILL_RUNNER_ADDRESS" in environment:
        environment |= {"SWATHMILL_RUNNER_ADDRESS": f"127.0.0.1:{runner}"}
        return
    environment |= {
        "SWATHMILL_REDIS_URL": redis_url,
        "SWATHMILL_PORTAL_ADDRESS": f"127.0.0.1:{portal}",
    }
    if "SWATHMILL_REDUCTION_POOL" in environment:
        environment["SWATHMILL_REDUCTION_POOL"] = f"127.0.0.1:{runner}"


def options_of(service: Mapping[str, Any], mark: str) -> list[str]:
    """Return what docker-compose.yml says of a service as options of the engine's `run`."""
    options = ["--network", "host"]
    options += [f"--{name.replace('_', '-')}" for name in ("init", "read_only") if service[name]]
    for option, words in (
        ("--cap-drop", service["cap_drop"]),
        ("--security-opt", [word.removesuffix(":true") for word in service["security_opt"]]),
        ("--tmpfs", service["tmpfs"]),
        ("--volume", [re.sub(r"^(?=\w)", f"{mark}-", word) for word in service["volumes"]]),
        ("--env", [f"{key}={value or ''}" for key, value in service["environment"].items()]),
    ):
        for word in words:
            options += [option, str(word)]
    return options


@contextmanager
def running(
    engine: list[str], name: str, service: Mapping[str, Any], options: list[str]
) -> Iterator[None]:
    """Run a service's container, and print its last lines when something fails."""
    do(engine, "run", "--detach", "--name", name, *options, service["image"], *service["command"])
    try:
        yield
    except BaseException:
        subprocess.run([*engine, "logs", "--tail", "20", name], check=False)
        raise
    finally:
        do(engine, "stop", "--time", "20", name)
        do(engine, "rm", "--force", name)


@contextmanager
def redis(port: int, password: str) -> Iterator[None]:
    """Run a Redis server with a password, which goes by standard input."""
    program = redis_server()
    if program is None:
        raise SystemExit("There is no Redis server: apt install redis-server")
    command = [str(program), "-"]
    told = f'port {port}\nbind 127.0.0.1\nsave ""\nappendonly no\nrequirepass {password}\n'
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        if process.stdin is None:
            raise ValueError("there is no pipe to the Redis server")
        process.stdin.write(told.encode())
        process.stdin.close()
        try:
            yield
        finally:
            process.terminate()


def do(engine: list[str], *words: str) -> str:
    """Give the engine an order; return what it prints."""
    done = subprocess.run([*engine, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def answers(port: int) -> bool:
    """Tell whether the process with this probe is ready."""
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).is_success
    return False


def until(condition: Any, what: str) -> None:
    """Wait for a condition, with a limit."""
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"it never came: {what}")
        time.sleep(0.5)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that nobody uses."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]
