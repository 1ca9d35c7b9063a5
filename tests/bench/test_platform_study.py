"""`make bench ONLY=platform`: calls become rates, and every experiment runs on real servers."""

import csv
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from random import Random

import fsspec
import pytest
from typer.testing import CliRunner

from bench.platform.__main__ import APP
from bench.platform.azure_calls import TableCalls, row_of
from bench.platform.clients import (
    Call,
    Clients,
    NothingLeftError,
    OneCall,
    Work,
    run_share,
)
from bench.platform.confidence import compare_cuts, ratio
from bench.platform.merge import merged
from bench.platform.rates import Point, rate
from bench.platform.report import CALLS, COMPARED, FAILURES, RATES, SETTINGS, Report, settings
from bench.platform.study import Plan, Study
from bench.platform.tcp import AnswerServer
from bench.platform.trials import Service, Timed, Trial, in_rounds
from swathmill.errors import ArgumentError
from swathmill.stack import ports
from tasks.bag.categories import Category
from tasks.storage.azure.transfer_shapes import BY_SIZE, MIB, Cut
from tests.bench.waiting import Waiting

QUICK = Plan(clients=(2,), seconds=0.02, scale=2e-5)


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


@dataclass(frozen=True, kw_only=True)
class Taking:
    """Each client takes what is left."""

    left: int

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        yield repeat(partial(self._take, [client] * self.left))

    def _take(self, some: list[int]) -> int:
        if not some:
            raise NothingLeftError
        some.pop()
        return 1


def test_a_call_that_finds_nothing_does_not_count_and_is_the_last() -> None:
    assert [call.size for call in run_share(Taking(left=3), [0, 1], 60.0)] == [1] * 6
    assert run_share(Taking(left=0), [0], 60.0) == []
    assert rate(point()).per_second == 0.0


def trials(cut: Cut, seconds: Iterable[float]) -> list[Timed]:
    """One transfer up and one down in each round, of so many seconds."""
    return [
        Timed(
            trial=Trial(service=Service.AZURE, direction=way, size=64 * MIB, cut=cut, round=number),
            call=Call(client=0, began=0.0, ended=took),
        )
        for number, took in enumerate(seconds)
        for way in ("upload", "download")
    ]


OTHER = Cut(block=32 * MIB, at_once=2)
DRIFT = (1.0, 3.0, 0.5, 2.0, 1.5, 4.0)  # of the network, in rounds


@pytest.mark.parametrize(
    ("noise", "faster", "said"),
    [
        ((0.01, -0.01, 0.02, 0.0, -0.02, 0.01), 0.5, True),
        ((0.01, -0.01, 0.02, 0.0, -0.02, 0.01), 0.95, False),  # not by a tenth
        ((0.9, -0.4, 0.2, 0.7, -0.3, 0.1), 0.7, False),  # faster in the mean, by chance
    ],
)
def test_a_setting_is_recommended_with_confidence_alone(
    noise: tuple[float, ...], faster: float, said: bool
) -> None:
    """A drift that both ways meet in the same rounds does not count."""
    today = trials(BY_SIZE, DRIFT)
    other = trials(OTHER, [faster * d * (1 + n) for d, n in zip(DRIFT, noise, strict=True)])
    lines = settings([], compare_cuts([today + other]))
    assert lines[1:] == (["SWATHMILL_BLOCKS=32x2"] if said else [])


def test_rounds_that_failed_or_are_too_few_recommend_nothing() -> None:
    fast = trials(OTHER, [0.5 * d for d in DRIFT])
    failed = [replace(one, call=replace(one.call, failure="x")) for one in fast[:4]]
    assert compare_cuts([trials(BY_SIZE, DRIFT) + failed + fast[4:]]) == []
    assert compare_cuts([trials(BY_SIZE, DRIFT[:4]) + fast[:8]]) == []


NOISE = (0.45, -0.4, 0.3, -0.25, 0.1, -0.15)  # of the logarithm of a ratio, in rounds


def a_run(number: int, faster: float) -> list[Timed]:
    """A run in which another cut takes `faster` of today's time in the mean, and as much noise."""
    turned = NOISE[number:] + NOISE[:number]
    other = [faster * d * math.exp(n) for d, n in zip(DRIFT, turned, strict=True)]
    return trials(BY_SIZE, DRIFT) + trials(OTHER, other)


def recommended(*runs: list[Timed]) -> list[str]:
    return settings([], compare_cuts(runs))[1:]


def test_three_runs_recommend_what_none_of_them_does_alone() -> None:
    runs = [a_run(number, faster) for number, faster in enumerate((0.71, 0.69, 0.7))]
    assert [recommended(one) for one in runs] == [[], [], []]
    assert recommended(*runs) == ["SWATHMILL_BLOCKS=32x2"]
    (found,) = compare_cuts(runs)
    assert (found.ratio.rounds, found.ratio.runs) == (18, 3)


def test_many_rounds_of_days_that_differ_recommend_nothing() -> None:
    """Each run is one observation: its rounds are of one day, and say nothing of others."""
    runs = [[*a_run(0, faster)] for faster in (0.35, 0.5, 1.1)]
    pairs = [0.35] * 6 + [0.5] * 6 + [1.1] * 6
    by_pairs = ratio([(one * math.exp(n), 1.0) for one, n in zip(pairs, NOISE * 3, strict=True)])
    assert by_pairs is not None
    assert by_pairs.high < 0.9  # what all pairs as one sample would claim
    assert recommended(*runs) == []


def test_a_run_with_too_few_rounds_does_not_count() -> None:
    short = trials(BY_SIZE, DRIFT[:4]) + trials(OTHER, [0.1 * d for d in DRIFT[:4]])
    (alone,) = compare_cuts([a_run(0, 0.7)])
    assert compare_cuts([a_run(0, 0.7), short]) == [alone]


def test_runs_are_merged_with_their_pairs(tmp_path: Path) -> None:
    """What is recommended of folders is what is recommended of the runs that were written there."""
    folders = []
    for number, faster in enumerate((0.71, 0.69, 0.7)):
        folders.append(tmp_path / str(number))
        report = Report(folders[-1], {"began": f"2026-01-0{number + 1}T00:00:00+00:00"})
        report.add(replace(point(Call(client=0, began=0.0, ended=1.0, size=1)), experiment="blobs"))
        report.add_trials("transfers", a_run(number, faster))
        assert SETTINGS not in {path.name for path in report.finish()}
    made = {path.name for path in merged(tmp_path / "all", folders)}
    assert {SETTINGS, COMPARED} <= made
    said = (tmp_path / "all" / SETTINGS).read_text()
    assert "SWATHMILL_BLOCKS=32x2" in said
    assert "by 18 pairs of 3 runs" in said
    with pytest.raises(ArgumentError, match="Two folders hold one run"):
        merged(tmp_path / "twice", [folders[0], folders[0]])


def test_an_interval_is_that_of_student() -> None:
    """Three pairs whose logarithms are -1, 0 and 1: the mean is 0, the deviation 1."""
    found = ratio([(math.exp(-1), 1.0), (1.0, 1.0), (math.e, 1.0)])
    assert found is not None
    assert found.rounds == 3
    assert found.estimate == pytest.approx(1.0)
    reach = 4.302653 / math.sqrt(3)  # t of 2 degrees of freedom, 97.5%: Student's table
    assert math.log(found.high) == pytest.approx(reach, rel=1e-6)
    assert math.log(found.low) == pytest.approx(-reach, rel=1e-6)
    wider = ratio([(math.exp(-1), 1.0), (1.0, 1.0), (math.e, 1.0)], candidates=10)
    assert wider is not None
    assert wider.high > found.high


def test_the_same_seed_gives_the_same_order_and_another_another() -> None:
    points = range(50)
    first, again, other = (Plan(seed=n).order("blobs", points) for n in (7, 7, 8))
    assert first == again != other
    assert first != Plan(seed=7).order("queue", points)
    what = [Trial(service=Service.AZURE, direction="upload", size=n) for n in range(10)]
    rounds = in_rounds(what, 3, Random(1))
    assert rounds == in_rounds(what, 3, Random(1))
    assert [sorted(t.size for t in rounds[n : n + 10]) for n in (0, 10, 20)] == [[*range(10)]] * 3
    assert len({tuple(t.size for t in rounds[n : n + 10]) for n in (0, 10, 20)}) == 3


@dataclass(frozen=True, kw_only=True)
class Obliging:
    """Clients whose calls all take a second; nobody is asked anything."""

    def run(self, work: Work, number: int, seconds: float, count: int = 0) -> list[Call]:
        del work, seconds
        return [
            Call(client=client, began=float(n), ended=n + 1.0, size=1)
            for client in range(number)
            for n in range(count or 1)
        ]


def order_of(folder: Path, seed: int) -> list[object]:
    """Every point and every trial of a study, in the order in which they were made."""
    found: list[object] = []
    study = Study(
        clients=Obliging(),
        plan=Plan(clients=(1, 2, 4), scale=1e-4, seed=seed),
        done=lambda one: found.append(one.key),
        timed=lambda _, some: found.extend(one.trial for one in some),
    )
    study.embedded(folder, ("blobs", "tables", "partition", "nodes"))
    study.files(f"file://{folder}")
    study.sizes("", f"file://{folder}")
    study.sql([f"sqlite:///{folder / 'database'}", f"sqlite:///{folder / 'other'}"])
    return found


def test_a_study_with_the_same_seed_measures_the_same_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.platform.sql_mix.TRADES", 50)
    first, again, other = (order_of(tmp_path, seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert sorted(map(str, first)) == sorted(map(str, other))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["database", "other"]


@pytest.mark.proof
@pytest.mark.integration
@pytest.mark.slow
def test_embedded_storage_is_measured_by_the_services_own_stores(
    tmp_path: Path, clients: Clients
) -> None:
    """Clients of several processes share its files; nothing is left in the folder."""
    points: list[Point] = []
    study = Study(clients=clients, plan=replace(QUICK, clients=(1, 3)), done=points.append)
    study.embedded(tmp_path, ("blobs", "tables", "partition", "nodes"))
    assert not [call for one in points for call in one.calls if call.failure]
    assert {(one.experiment, one.operation) for one in points} == {
        *(("blobs", way) for way in ("download", "upload")),
        *(("nodes", way) for way in ("download", "upload")),
        *(("tables", way) for way in ("insert", "query", "update", "update shared", "delete")),
        ("partition", "filter of 100 rows"),
    }
    assert list(tmp_path.iterdir()) == []


def test_the_amounts_are_the_sources_times_one_factor() -> None:
    whole = Plan(scale=1.0)
    assert (whole.blob, len(whole.file_sizes), whole.many(220_000)) == (10**9, 15, 220_000)
    assert (whole.file_sizes[0], whole.file_sizes[-1]) == (2000, 10**9)
    assert Plan(scale=0.01).file_sizes[-1] == 10**7
    assert Plan(scale=0.01).cut_sizes == (2 * 10**6, 2 * 10**7, 64 * 10**6)
    assert Plan(scale=3e-4).cut_sizes == (10**6, 1_920_000)  # each size once
    assert len(row_of("k", 64 * 1024)["text"]) * 2 * 2 == 64 * 1024  # type: ignore[arg-type]


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
    monkeypatch.setattr("bench.platform.study._CUT_SIZES", (0.1,))  # the least, which is 1 MB
    monkeypatch.setattr("bench.platform.sql_mix.TRADES", 500)
    folder = tmp_path / "study"
    report = Report(folder, {"began": "2026-01-01T00:00:00+00:00"})

    def done(one: Point) -> None:
        report.add(one)

    with Clients() as fresh:  # they inherit where the S3 server is
        study = Study(clients=fresh, plan=QUICK, done=done, timed=report.add_trials)
        study.blobs(azurite)
        study.tables(azurite)
        study.partition(azurite)
        study.queue(azurite)
        study.lengths(azurite)
        study.transfers(azurite)
        study.sizes(azurite, s3)
        study.nodes(azurite)
        study.files(s3)
        study.redis(redis_server)
        study.tcp("", 0)
        study.sql([f"sqlite:///{tmp_path / 'database'}"])
    names = {path.name for path in report.finish()}
    plots = {
        *("blobs", "tables", "partition", "queue", "lengths", "transfers", "sizes", "nodes"),
        *("files", "redis", "tcp", "sql"),
    }
    assert names >= {CALLS, RATES, FAILURES, *(f"{plot}.svg" for plot in plots)}
    with (folder / RATES).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["experiment"] for row in rows} == plots
    assert all(float(row["per_second"]) > 0 for row in rows)
    received = [row for row in rows if row["operation"] == "receive"]
    assert len(received) == 2
    for row in received:  # each brought a message
        per_second, mb_per_second = float(row["per_second"]), float(row["mb_per_second"])
        assert mb_per_second == pytest.approx(per_second * 500 / 1e6, rel=1e-4)
    assert {row["operation"] for row in rows if row["experiment"] == "sizes"} == {
        f"{way}, {service}" for way in ("upload", "download") for service in Service
    }
    with (folder / CALLS).open(newline="") as file:
        assert sum(1 for _ in file) - 1 == sum(int(row["calls"]) for row in rows)
    store = fsspec.filesystem("s3", skip_instance_cache=True)
    assert store.find("bucket") == []
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "study.json").write_text('{"began": "2026-01-02T00:00:00+00:00"}')
    made = merged(tmp_path / "both", [other, folder])
    assert {"merged.csv", "course.svg", "tcp.svg"} <= {path.name for path in made}
    with (tmp_path / "both" / "merged.csv").open(newline="") as file:
        both = list(csv.DictReader(file))
    assert {row["runs"] for row in both} == {"2"}
    assert {float(row["deviation_between_runs"]) for row in both} == {0.0}


def test_one_run_or_another_folder_is_not_merged(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="One run is no series"):
        merged(tmp_path / "out", [tmp_path])
    with pytest.raises(ArgumentError, match="is not a run of a study"):
        merged(tmp_path / "out", [tmp_path, tmp_path])


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
        (["--starts", "local"], "'local' is not NAME=ENGINE"),
        (["--starts", "a=nowhere"], "names no engine"),
        (["--starts", "a=local:nobody"], "There is no role 'nobody'"),
        (["--tcp", "local", "--fleet", "2", "--engine", "slurm:"], "There is no batch script"),
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
