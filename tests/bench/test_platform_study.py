"""`make bench ONLY=platform`: calls become rates, and every experiment runs on real servers."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import fsspec
import pytest
from typer.testing import CliRunner

from bench.platform.__main__ import APP
from bench.platform.azure_calls import TableCalls
from bench.platform.clients import Call, Clients, OneCall
from bench.platform.instances import measure_instances
from bench.platform.rates import Point, rate
from bench.platform.report import CALLS, FAILURES, RATES, SETTINGS, Report, settings
from bench.platform.study import Plan, Study
from bench.platform.tcp import AnswerServer
from swathmill.errors import StackError
from swathmill.stack import ports
from tasks.bag.categories import Category
from tasks.storage.azure.transfer_shapes import MIB, UP, Cut

QUICK = Plan(clients=(2,), seconds=0.02, blob=20_000, transfers=(3 * MIB,))


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    with Clients() as made:
        yield made


def point(*calls: Call, clients: int = 1) -> Point:
    return Point(experiment="x", operation="y", size=10, clients=clients, calls=calls)


def test_calls_count_while_all_clients_are_at_work() -> None:
    early = [Call(client=0, began=n, ended=n + 1.0, size=10**6) for n in range(10)]
    late = [Call(client=1, began=n, ended=n + 1.0, size=10**6) for n in range(2, 12)]
    found = rate(point(*early, *late, clients=2))
    assert (found.seconds, found.per_second, found.mb_per_second) == (8.0, 2.0, 2.0)
    assert found.per_second_a_client == 1.0
    assert (found.mean, found.p50, found.p99, found.deviation) == (1.0, 1.0, 1.0, 0.0)


def test_failed_calls_are_counted_and_have_no_rate() -> None:
    good = Call(client=0, began=0.0, ended=1.0, size=5)
    bad = Call(client=0, began=1.0, ended=4.0, failure=Category.SERVER_BUSY)
    found = rate(point(good, bad))
    assert (found.calls, found.failed, found.per_second, found.p99) == (2, 1, 0.25, 1.0)


def test_percentiles_are_of_the_calls_in_order() -> None:
    calls = [Call(client=0, began=0.0, ended=float(n)) for n in range(1, 101)]
    found = rate(point(*calls))
    assert (found.p50, found.p90, found.p99) == (50.0, 90.0, 99.0)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Calls that fail every second time; a client numbered `broken` cannot connect."""

    broken: int = -1

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        if client == self.broken:
            raise PermissionError("no right to connect")
        yield iter([self.work, self.fail] * 2)

    def work(self) -> int:
        return os.getpid()

    def fail(self) -> int:
        raise TimeoutError("too late")


@pytest.mark.proof
@pytest.mark.slow
def test_clients_are_shared_out_over_processes(clients: Clients) -> None:
    calls = clients.run(Waiting(), 5, 60.0)
    assert sorted(call.client for call in calls) == [n for n in range(5) for _ in range(4)]
    assert [call.failure for call in calls].count(Category.OPERATION_TIMEOUT) == 10
    processes = {call.size for call in calls if call.size}
    assert len(processes) == min(5, os.cpu_count() or 1)
    assert os.getpid() not in processes


@pytest.mark.proof
@pytest.mark.slow
def test_a_client_that_cannot_connect_ends_the_measurement(clients: Clients) -> None:
    with pytest.raises(PermissionError, match="no right"):
        clients.run(Waiting(broken=2), 4, 60.0)


def swept(cut: Cut, seconds: float) -> list[Point]:
    call = Call(client=0, began=0.0, ended=seconds, size=64 * MIB)
    return [
        Point(experiment="transfers", operation=f"{way}, {cut}", size=64 * MIB, clients=1,
              calls=(call,))
        for way in ("upload", "download")
    ]  # fmt: skip


@pytest.mark.parametrize(("other", "said"), [(0.5, True), (0.95, False)])
def test_settings_follow_where_another_cut_is_clearly_faster(other: float, said: bool) -> None:
    today = Cut(block=UP.block(64 * MIB), at_once=UP.parallel)
    points = swept(today, 1.0) + swept(Cut(block=32 * MIB, at_once=2), other)
    lines = settings([rate(one) for one in points])
    assert lines[1:] == (["SWATHMILL_BLOCKS=32x2"] if said else [])


@dataclass
class Az:
    """Azure's command, some of whose calls fail."""

    fails: str = ""
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, *words: str) -> object:
        self.asked.append(words)
        if words[1] == self.fails:
            raise StackError("no quota", "ask for more")
        return None


def test_machines_go_through_their_life() -> None:
    az = Az()
    points = list(measure_instances(az, "group", 3))
    assert [one.operation for one in points] == ["create", "run", "add", "suspend", "delete"]
    assert [words[-1] for words in az.asked if words[1] == "scale"] == ["3", "6"]


def test_machines_are_deleted_where_a_step_failed() -> None:
    az = Az(fails="scale")
    points = list(measure_instances(az, "group", 3))
    assert [(one.operation, bool(one.calls[0].failure)) for one in points] == [
        ("create", False), ("run", True), ("delete", False),
    ]  # fmt: skip


@pytest.fixture
def s3(s3_port: int) -> Iterator[str]:
    """A folder of an S3 server, as fsspec's settings name it."""
    before = dict(os.environ)
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://{ports.LOOPBACK}:{s3_port}", AWS_ACCESS_KEY_ID="key",
        AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1",
    )  # fmt: skip
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir("bucket")
    yield "s3://bucket/folder"
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.integration
@pytest.mark.proof
def test_every_experiment_runs_on_real_servers(
    azurite: str, redis_server: str, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.platform.study.ROW_SIZES", (1000, 64_000))
    monkeypatch.setattr("bench.platform.study.MESSAGE_SIZES", (500,))
    monkeypatch.setattr("bench.platform.sql_mix.TRADES", 500)
    report = Report(tmp_path / "study")

    def done(one: Point) -> None:
        report.add(one)

    with Clients() as fresh:  # they inherit where the S3 server is
        study = Study(clients=fresh, plan=QUICK, done=done)
        study.blobs(azurite)
        study.tables(azurite)
        study.queue(azurite)
        study.transfers(azurite)
        study.files(s3)
        study.redis(redis_server)
        study.tcp("", 0)
        study.sql(f"sqlite:///{tmp_path / 'database'}")
    names = {path.name for path in report.finish()}
    plots = ("blobs", "tables", "queue", "files", "redis", "tcp", "sql", "transfers")
    assert names >= {CALLS, RATES, FAILURES, *(f"{plot}.svg" for plot in plots)}
    with (tmp_path / "study" / RATES).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["experiment"] for row in rows} == set(plots)
    assert all(float(row["per_second"]) > 0 for row in rows)
    with (tmp_path / "study" / CALLS).open(newline="") as file:
        assert sum(1 for _ in file) - 1 == sum(int(row["calls"]) for row in rows)
    store = fsspec.filesystem("s3", skip_instance_cache=True)
    assert store.find("bucket") == []


@pytest.mark.proof
@pytest.mark.integration
def test_what_fails_is_told_by_its_category(azurite: str, clients: Clients) -> None:
    work = TableCalls(storage=azurite, table="absent", operation="insert", size=100)
    calls = clients.run(work, 1, 0.01)
    assert {call.failure for call in calls} == {Category.STORAGE_CLIENT_ERROR}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Nothing is named to measure"),
        (["--only", "blobs"], "--only blobs: nothing is named"),
        (["--tcp", "host"], "not an address"),
        (["--clients", "1,x", "--tcp", "local"], "not a list of numbers"),
        (["--clients", "0", "--tcp", "local"], "not a list of numbers"),
    ],
)
def test_wrong_arguments_are_told(words: list[str], said: str, tmp_path: Path) -> None:
    command = ["measure", "--out", str(tmp_path / "out"), *words]
    result = CliRunner().invoke(APP, command, env={"SWATHMILL_STORAGE": ""})
    assert said in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--redis", "redis://127.0.0.1:9"], "The experiment redis failed"),
        (["--files", "foo://x"], "whether --files names the right place"),
        (["--tcp", "127.0.0.1:9"], "The experiment tcp failed"),
    ],
)
def test_a_target_that_does_not_answer_is_named(
    words: list[str], said: str, tmp_path: Path
) -> None:
    command = ["measure", "--out", str(tmp_path / "out"), "--clients", "1", *words]
    ended = subprocess.run(
        [sys.executable, "-m", "bench.platform", *command],
        env=os.environ | {"SWATHMILL_STORAGE": ""},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert said in ended.stderr


@pytest.mark.proof
@pytest.mark.slow
def test_the_command_measures_and_writes(tmp_path: Path) -> None:
    command = ["measure", "--out", str(tmp_path), "--tcp", "local", "--clients", "1"]
    result = CliRunner().invoke(APP, [*command, "--seconds", "0.1"])
    assert result.exit_code == 0, result.output
    assert "round trip" in result.output
    assert not (tmp_path / SETTINGS).exists()


def test_who_answers_says_where_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(_server: AnswerServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(AnswerServer, "serve_forever", ends)
    (port,) = ports.choose(1)
    said = CliRunner().invoke(APP, ["answer", "--port", str(port), "--json"])
    assert json.loads(said.stdout) == {"host": "127.0.0.1", "port": port}
    assert "Ended." in said.stderr
