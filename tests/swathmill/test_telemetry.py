"""A running stack: one request's trace is whole, and Prometheus reads every process."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tasks.service.tracing import root_of, trace_of
from tests.serving import Quiet, serving
from tests.waiting import until

pytestmark = [pytest.mark.proof, pytest.mark.integration]

ROOT = Path(__file__).parents[2]
PROGRAM = str(Path(sys.executable).with_name("swathmill"))
LIMIT = 240.0
PARTS = {"claim", "wait", "fetch", "compute", "store", "settle", "commit"}


@dataclass
class Collector:
    """A collector that keeps spans by the service that sent them."""

    spans: list[tuple[str, Span]] = field(default_factory=list)
    headers: set[str] = field(default_factory=set)

    def take(self, body: bytes, header: str) -> None:
        self.headers.add(header)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            known = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(known["service.name"], span) for span in scope.spans]

    def of(self, trace: str) -> list[tuple[str, Span]]:
        return [(name, span) for name, span in self.spans if span.trace_id.hex() == trace]


@contextmanager
def collector() -> Iterator[tuple[Collector, str]]:
    """Listen on loopback as an OpenTelemetry collector does, OTLP over HTTP."""
    kept = Collector()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            kept.take(body, self.headers.get("X-Tenant", ""))
            self.send_response(200)
            self.end_headers()

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield kept, address


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that are free."""
    for first in range(20_000 + os.getpid() % 9_000, 60_000, count):
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
            return first
    raise AssertionError("no ports are free")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A stack of two managers, a worker and a portal, with who listens to it."""

    data: Path
    probes: int
    collector: Collector
    process: "subprocess.Popen[bytes]"

    def request(self, folder: Path) -> str:
        """Run a day of the sample to its end; return the request's id."""
        document = yaml.safe_load((ROOT / "examples" / "sample.yaml").read_text())
        file = folder / "request.yaml"
        day = {"start": "2012-04-14", "end": "2012-04-14"}
        file.write_text(yaml.safe_dump({**document, "time": day}))
        told = self.swathmill("submit", str(file), "--json")
        name = str(json.loads(told)["id"])
        self.swathmill("status", name, "--follow")
        return name

    def swathmill(self, *words: str) -> str:
        done = subprocess.run(
            [PROGRAM, *words, "--data", str(self.data)],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LIMIT)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, sample_archive: Path) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("stack")
    probes = free_ports(4)
    with collector() as (kept, address):
        env = {
            **os.environ,
            "SWATHMILL_PROBE_ADDRESS": f"127.0.0.1:{probes}",
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=ours",
            "OTEL_BSP_SCHEDULE_DELAY": "500",
        }
        words = ["up", "--managers", "2", "--workers", "1", "--archive", str(sample_archive)]
        log = folder / "up.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [PROGRAM, *words, "--data", str(folder / "data")],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=env,
            )
        made = Running(data=folder / "data", probes=probes, collector=kept, process=process)
        try:
            until(
                lambda: "Ctrl-C stops" in log.read_text() or process.poll() is not None,
                LIMIT,
                "the stack is up",
            )
            assert process.poll() is None, log.read_text()
            yield made
        finally:
            if process.poll() is None:
                made.stop()


@pytest.fixture(scope="module")
def request_id(running: Running, tmp_path_factory: pytest.TempPathFactory) -> str:
    return running.request(tmp_path_factory.mktemp("request"))


def test_prometheus_reads_all_processes(running: Running, request_id: str, tmp_path: Path) -> None:
    """By the configuration that ships, with addresses of this machine in place of names."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is absent (apt: prometheus)")
    assert request_id
    shipped = yaml.safe_load((ROOT / "infra" / "monitoring" / "prometheus.yml").read_text())
    (job,) = shipped["scrape_configs"]
    del job["dns_sd_configs"]
    targets = [f"127.0.0.1:{running.probes + n}" for n in range(4)]
    job["static_configs"] = [{"targets": targets}]
    shipped["global"]["scrape_interval"] = "500ms"
    shipped["rule_files"] = [str(ROOT / "infra" / "monitoring" / "alerts.yml")]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(shipped))
    port = free_ports(1)
    server = subprocess.Popen(
        [
            program,
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def query(expression: str) -> dict[str, float]:
        """Values by instance."""
        words = urllib.parse.urlencode({"query": expression})
        with (
            suppress(OSError),
            urllib.request.urlopen(
                f"http://127.0.0.1:{port}/api/v1/query?{words}", timeout=5
            ) as answer,
        ):
            found = json.load(answer)["data"]["result"]
            return {one["metric"].get("instance", ""): float(one["value"][1]) for one in found}
        return {}

    try:
        until(lambda: query("up") == dict.fromkeys(targets, 1.0), LIMIT, "all four are up")
        portal, *managers = targets[:3]
        worker = targets[3]
        acting = query("swathmill_manager_acting")
        assert set(acting) == set(managers)
        assert sum(acting.values()) == 1.0
        assert set(query("sum by (instance) (swathmill_portal_calls_total)")) == {portal}
        here = query("sum by (instance) (swathmill_worker_attempts_total)")
        there = query("sum by (instance) (swathmill_attempts_total)")
        assert set(here) == {worker}
        assert sum(here.values()) == sum(there.values())  # who stands by has counted none
        assert here[worker] > 0
        assert set(query("sum by (instance) (swathmill_worker_attempt_seconds_total)")) == {worker}
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=5) as answer:
            groups = json.load(answer)["data"]["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
    finally:
        server.terminate()
        server.wait(30)


def test_a_trace_is_whole_from_submission_to_commit(running: Running, request_id: str) -> None:
    status = json.loads(running.swathmill("status", request_id, "--json"))
    done = sum(phase["done"] for phase in status["phases"].values())

    def arrived() -> bool:
        found = Counter(span.name for _, span in running.collector.of(trace_of(request_id)))
        return found["request"] > 0 and min(found["commit"], found["process end"]) >= done

    until(arrived, LIMIT, "all spans are sent")
    spans = running.collector.of(trace_of(request_id))
    assert running.collector.headers == {"ours"}
    by_id = {span.span_id.hex(): span for _, span in spans}
    assert len(by_id) == len(spans)
    roots = [span for _, span in spans if not span.parent_span_id]
    assert [span.span_id.hex() for span in roots] == [root_of(request_id)]
    assert all(span.parent_span_id.hex() in by_id for _, span in spans if span.parent_span_id)

    of = {name: {span.name for who, span in spans if who == name} for name, _ in spans}
    assert set(of) == {"swathmill-portal", "swathmill-manager", "swathmill-worker"}
    assert of["swathmill-portal"] == {"submit"}
    assert of["swathmill-manager"] == {"request", "plan", "write", "process end"}
    assert of["swathmill-worker"] >= PARTS

    (root,) = roots
    attempts = [span for _, span in spans if span.name.startswith("attempt ")]
    assert len(attempts) == done > 5
    for attempt in attempts:
        parts = [span for _, span in spans if span.parent_span_id == attempt.span_id]
        assert {"claim", "wait", "commit", "process end"} <= {part.name for part in parts}
        within = [part for part in parts if part.name != "process end"]
        assert all(part.start_time_unix_nano >= attempt.start_time_unix_nano for part in within)
        assert all(part.end_time_unix_nano <= attempt.end_time_unix_nano for part in within)
        assert root.start_time_unix_nano <= attempt.start_time_unix_nano
        # The worker ends it after its commit, when the manager may have ended the request.
        assert attempt.start_time_unix_nano <= root.end_time_unix_nano

    lines = [
        json.loads(line)
        for name in ("portal", "manager", "manager-2", "worker-1")
        for line in (running.data / "logs" / f"{name}.log").read_text().splitlines()
        if line.startswith("{")
    ]
    about = [line for line in lines if line.get("request") == request_id]
    assert {line["process"] for line in about} == {"portal", "manager", "worker"}
    assert {line["trace_id"] for line in about} == {trace_of(request_id)}
