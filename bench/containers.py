"""Run docker-compose.yml in containers, and a package of one's own there from upload to result.

`make test-containers`. The image is built unless it is there. The engine alone then starts each of
our processes in docker-compose.yml with its command, environment, volumes and restrictions, on the
network of this host, so that no compose program is needed. A Redis server of this machine takes the
place of Valkey's container, whose image is not ours.
"""

import argparse
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import yaml

from swathmill.stack.programs import redis_server

ROOT = Path(__file__).parents[1]
LIMIT = 240.0  # seconds
OWNER = "scientist@example.org"
PROCESSES = ("portal", "manager", "reductions", "worker")
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?+])([^}]*))?\}")
SWATHMILL = str(Path(sys.executable).with_name("swathmill"))
REQUEST = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-04-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.02},
    "reduction": {"package": "my-mean", "group_by": ["cell", "month"]},
}


def main() -> int:
    """Run everything; return 0 when the results of a private package have arrived."""
    parser = argparse.ArgumentParser(prog="bench.containers")
    parser.add_argument("--engine", default="podman", help="the engine's command with its options")
    parser.add_argument("--run-options", default="", help="further options of its `run`")
    given = parser.parse_args()
    engine = shlex.split(given.engine)
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name, ExitStack() as stack:
        folder, ports = Path(name), free_ports(7)
        folder.chmod(0o755)  # the user of the containers reads the archive
        subprocess.run([SWATHMILL, "sample", str(folder / "archive")], check=True)
        password, address = secrets.token_hex(24), f"http://127.0.0.1:{ports[1]}"
        services = read_services(
            {
                "SWATHMILL_ARCHIVE": str(folder / "archive"),
                "SWATHMILL_REDIS_PASSWORD": password,
                "SWATHMILL_SECRET": secrets.token_hex(32),
                "SWATHMILL_PORTAL_URL": address,
            }
        )
        build(engine, services["portal"]["image"])
        stack.enter_context(redis(ports[0], password))
        redis_url = f"redis://:{password}@127.0.0.1:{ports[0]}/0"
        mark = secrets.token_hex(4)
        for volume in ("data", "data-reductions"):
            stack.callback(do, engine, "volume", "rm", "--force", f"{mark}-{volume}")
        for process, port in zip(PROCESSES, ports[3:], strict=True):
            service = services[process]
            on_loopback(service["environment"], redis_url, ports[1], ports[2], port)
            options = [*shlex.split(given.run_options), *options_of(service, mark)]
            stack.enter_context(running(engine, f"{mark}-{process}", service, options))
        until(lambda: all(map(answers, ports[3:])), "all processes are ready")
        token = do(engine, "exec", f"{mark}-portal", "swathmill", "sign-in", OWNER, "--token")
        return carry_out(folder, {"SWATHMILL_PORTAL_URL": address, "SWATHMILL_TOKEN": token})


def read_services(variables: Mapping[str, str]) -> dict[str, Any]:
    """Read the services of docker-compose.yml, with variables put in as compose does."""

    def put_in(found: re.Match[str]) -> str:
        name, how, other = found.groups()
        value = variables.get(name, "")
        if how == "?" and not value:
            raise SystemExit(f"{name} has no value: {other}")
        return (other if value else "") if how == "+" else value or (other or "")

    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    services: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(put_in, text))["services"]
    for service in services.values():
        told = service.get("environment", {})
        merged = [dict(one) for one in told.pop("<<", [])] if isinstance(told, dict) else []
        service["environment"] = {key: one for part in [*merged, told] for key, one in part.items()}
    return services


def on_loopback(
    environment: dict[str, Any], redis_url: str, portal: int, runner: int, probe: int
) -> None:
    """Have a service listen on this machine's loopback address, and find the others there."""
    environment |= {"SWATHMILL_PROBE_HOST": "127.0.0.1", "SWATHMILL_PROBE_PORT": str(probe)}
    if "SWATHMILL_RUNNER_PORT" in environment:
        environment |= {
            "SWATHMILL_RUNNER_HOST": "127.0.0.1",
            "SWATHMILL_RUNNER_PORT": str(runner),
        }
        return
    environment |= {
        "SWATHMILL_REDIS_URL": redis_url,
        "SWATHMILL_PORTAL_HOST": "127.0.0.1",
        "SWATHMILL_PORTAL_PORT": str(portal),
    }
    if "SWATHMILL_REDUCTION_POOL" in environment:
        environment["SWATHMILL_REDUCTION_POOL"] = f"127.0.0.1:{runner}"


def build(engine: list[str], image: str) -> None:
    """Build the image, unless it is there."""
    there = subprocess.run([*engine, "image", "inspect", image], capture_output=True, check=False)
    if there.returncode:
        words = ["build", "--file", "infra/Containerfile", "--tag", image, "."]
        subprocess.run([*engine, *words], cwd=ROOT, check=True)


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
    command = [str(redis_server()), "-"]
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


def carry_out(folder: Path, access: Mapping[str, str]) -> int:
    """Push a new package, submit a request with it, and wait for its results."""
    environment = {**os.environ, **{name: value.strip() for name, value in access.items()}}

    def command(*words: str) -> str:
        done = subprocess.run(
            [SWATHMILL, *words], cwd=folder, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"swathmill {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    command("package", "new", "my-mean", "--language", "python")
    print(command("package", "push", "my-mean").strip())
    (folder / "request.yaml").write_text(yaml.safe_dump(REQUEST), "utf-8")
    request = command("submit", "request.yaml").split()[-1]
    headers = {"Authorization": f"Bearer {environment['SWATHMILL_TOKEN']}"}
    address = f"{environment['SWATHMILL_PORTAL_URL']}/api/requests/{request}"

    def state() -> dict[str, Any]:
        answer: dict[str, Any] = httpx.get(address, headers=headers, timeout=30).json()
        return answer

    until(lambda: state()["state"] in ("complete", "complete with gaps", "failed"), "the end")
    found = httpx.get(f"{address}/results", headers=headers, timeout=30).json()
    made = [one["name"] for one in found if "Lai_1km_mean" in one["name"]]
    print(f"{state()['state']}: {state()['message']}")
    print(*made, sep="\n")
    return 0 if state()["state"] == "complete" and made else 1


def do(engine: list[str], *words: str) -> str:
    """Give the engine an order; return what it prints."""
    done = subprocess.run([*engine, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def answers(port: int) -> bool:
    """Whether the process with this probe is ready."""
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


if __name__ == "__main__":
    sys.exit(main())
