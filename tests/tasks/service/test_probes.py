"""Probes answer what a process says of itself."""

import socket
from collections.abc import Iterator

import httpx
import pytest

from tasks.service.probes import ProbeAnswers, Probes, serve_probes
from tasks.settings import Settings, WrongSettingError


class Process:
    """Says what the test wants."""

    dead = ""
    unready = ""


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def client(process: Process) -> Iterator[httpx.Client]:
    answers = ProbeAnswers(
        live=lambda: process.dead, ready=lambda: process.unready, metrics=lambda: b"slots 2.0\n"
    )
    probes = Probes("127.0.0.1", 0, answers)
    with httpx.Client(base_url=f"http://127.0.0.1:{probes.port}", trust_env=False) as made:
        yield made
    probes.close()


def test_a_process_that_cannot_work_is_alive_and_not_ready(
    client: httpx.Client, process: Process
) -> None:
    assert client.get("/readyz").status_code == 200
    process.unready = "storage has not answered for 50 s"
    assert client.get("/livez").text == "ok\n"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.text == "storage has not answered for 50 s\n"


def test_a_process_that_does_nothing_is_not_alive(client: httpx.Client, process: Process) -> None:
    process.dead = "no round has ended for 700 s"
    assert client.get("/livez").status_code == 503


def test_metrics_are_in_the_format_of_prometheus(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert answer.text == "slots 2.0\n"
    assert client.get("/other").status_code == 404


def test_a_port_in_use_is_a_wrong_setting() -> None:
    answers = ProbeAnswers(live=lambda: "", ready=lambda: "", metrics=lambda: b"")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(probe_address=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(WrongSettingError, match="SWATHMILL_PROBE_ADDRESS"):
            serve_probes(settings, answers)
