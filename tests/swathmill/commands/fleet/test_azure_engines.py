"""Workers as tasks of Azure Batch and executions of Container Apps jobs, by servers of the calls.

Addresses, states and headers are those of the REST references: Batch service 2024-07-01.20.0,
Container Apps 2024-03-01.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.exceptions import ClientAuthenticationError

from swathmill.commands.fleet.batch import Batch
from swathmill.commands.fleet.container_apps import ContainerAppsJob
from swathmill.commands.fleet.registry import open_engine
from swathmill.commands.fleet.rest import Rest, azure_permission
from swathmill.errors import ArgumentError, StackError
from tasks.settings import Settings
from tests.swathmill.commands.fleet.engine_server import (
    TOKEN,
    Answer,
    Call,
    Document,
    engine_server,
)

WORKER = Path(__file__).parents[4] / "infra" / "batch" / "worker.json"
JOB = "/subscriptions/s/resourceGroups/g/providers/Microsoft.App/jobs/mill-worker"
PAGE = 2


def page_of(call: Call, base: str, items: list[Document], following: str) -> Document:
    """A page of a list, which names the next one by its whole address."""
    path, _, query = call.path.partition("?")
    begin = int(parse_qs(query).get("skip", ["0"])[0])
    said: Document = {"value": items[begin : begin + PAGE]}
    if begin + PAGE < len(items):
        said[following] = f"{base}{path}?{query.partition('&skip')[0]}&skip={begin + PAGE}"
    return said


@dataclass
class BatchJob:
    """The tasks of a job; each change of a task gives it another ETag."""

    base: str = ""
    tasks: dict[str, Document] = field(default_factory=dict)
    version: int = 0
    races: list[str] = field(default_factory=list)
    pool: Document | None = None
    nodes: list[Document] = field(default_factory=list)

    def put(self, name: str, state: str, **more: object) -> None:
        self.version += 1
        made = {"creationTime": f"2026-01-01T00:00:{self.version:02}Z", **self.tasks.get(name, {})}
        self.tasks[name] = {**made, **more, "id": name, "state": state, "eTag": f"{self.version}"}

    def answer(self, call: Call) -> Answer:
        address = urlsplit(call.path)
        assert parse_qs(address.query)["api-version"] == ["2024-07-01.20.0"]
        if address.path == "/jobs/swathmill-workers":
            return 200, {"poolInfo": {"poolId": "mill"}}
        if address.path == "/pools/mill":
            return (403, {}) if self.pool is None else (200, self.pool)
        if address.path == "/pools/mill/nodes":
            assert "'unusable'" in parse_qs(address.query)["$filter"][0]
            return 200, page_of(call, self.base, self.nodes, "odata.nextLink")
        name, _, order = address.path.removeprefix("/jobs/swathmill-workers/tasks/").partition("/")
        if call.method == "GET":
            return 200, page_of(call, self.base, [*self.tasks.values()], "odata.nextLink")
        if order == "terminate":
            for one in self.races:
                self.put(one, "running")
            self.races = []
            if call.headers["if-match"] != self.tasks[name]["eTag"]:
                return 412, {}
            self.put(name, "completed")
            return 204, {}
        assert call.headers["content-type"] == "application/json; odata=minimalmetadata"
        self.put(call.document["id"], "active", task=call.document)
        return 201, {}


def test_workers_are_tasks_of_batch_and_only_those_that_wait_are_ended() -> None:
    job = BatchJob()
    with engine_server(job.answer) as engine:
        job.base = engine.url
        kind = "application/json; odata=minimalmetadata"
        started = Batch(
            str(WORKER), "gpu", Rest(base=engine.url, permission=lambda: TOKEN, kind=kind)
        )
        assert started.there() == []
        started.start(5)
        names = [one.name for one in started.there()]
        assert len({*names}) == 5
        job.put(names[0], "running")
        job.put(names[1], "preparing")
        job.put(names[2], "completed")
        assert [(one.name, one.running) for one in started.there()] == [
            (names[0], True), (names[1], True), (names[3], False), (names[4], False),
        ]  # fmt: skip
        job.races = [names[3]]
        started.end(names)
        assert [one.name for one in started.there()] == [names[0], names[1], names[3]]
        task = job.tasks[names[0]]["task"]
        said = {one["name"]: one["value"] for one in task["environmentSettings"]}
        assert said["SWATHMILL_WORKER_NAME"] == names[0]
        assert said["SWATHMILL_WORKER_PLACE"] == "gpu"
        assert task["commandLine"] == "python -P -m worker"


QUOTA = {"code": "AccountCoreQuotaReached", "message": "No cores."}
IMAGE = {"code": "ImageError", "message": "No such tag."}


@pytest.mark.parametrize(
    ("pool", "nodes", "why"),
    [
        (None, [], ""),
        ({}, [], ""),
        ({"resizeErrors": [QUOTA]}, [], "AccountCoreQuotaReached: No cores."),
        ({}, [{}, {"errors": None}, {"errors": [IMAGE]}], "ImageError: No such tag."),
    ],
)  # fmt: skip
def test_what_batch_says_of_workers_that_wait_is_told(
    pool: Document | None, nodes: list[Document], why: str
) -> None:
    job = BatchJob(pool=pool, nodes=nodes)
    with engine_server(job.answer) as engine:
        job.base = engine.url
        kind = "application/json; odata=minimalmetadata"
        started = Batch(str(WORKER), "", Rest(base=engine.url, permission=lambda: TOKEN, kind=kind))
        started.start(2)
        first, second = (one.name for one in started.there())
        job.put(first, "running")
        assert [(one.name, one.why) for one in started.there()] == [(first, ""), (second, why)]
        job.put(second, "running")
        calls = len(engine.calls)
        started.there()
        assert len(engine.calls) == calls + 1  # nobody waits: nothing else is asked


def test_the_example_of_a_task_names_settings_that_exist() -> None:
    said = json.loads(WORKER.read_text("utf-8"))
    named = {one["name"] for one in said["task"]["environmentSettings"]}
    assert named <= {f"SWATHMILL_{name.upper()}" for name in Settings.model_fields}
    assert said["task"]["constraints"]["maxTaskRetryCount"] == 0


def test_workers_are_executions_of_a_job_of_container_apps_and_none_is_ended() -> None:
    executions: list[Document] = []
    base = ""

    def answer(call: Call) -> Answer:
        address = urlsplit(call.path)
        assert parse_qs(address.query)["api-version"] == ["2024-03-01"]
        if call.method == "POST":
            assert address.path == f"{JOB}/start"
            name = f"mill-worker-{len(executions)}"
            executions.append({"name": name, "properties": {"status": "Running"}})
            return 202, {}
        assert address.path == f"{JOB}/executions"
        return 200, page_of(call, base, executions, "nextLink")

    with engine_server(answer) as engine:
        base = engine.url
        started = ContainerAppsJob(JOB, Rest(base=engine.url, permission=lambda: TOKEN))
        started.start(5)
        for number, state in enumerate(("Succeeded", "Processing", "Failed", "Unknown")):
            executions[number]["properties"]["status"] = state
        there = [(one.name, one.running) for one in started.there()]
        assert there == [(f"mill-worker-{n}", True) for n in (1, 3, 4)]
        calls = len(engine.calls)
        started.end([name for name, _ in there])
        assert len(engine.calls) == calls


def test_a_list_that_never_ends_is_an_error() -> None:
    base = ""

    def answer(call: Call) -> Answer:
        return 200, {"value": [], "nextLink": f"{base}{call.path}"}

    with engine_server(answer) as engine:
        base = engine.url
        with pytest.raises(StackError, match="the same page twice"):
            ContainerAppsJob(JOB, Rest(base=base, permission=lambda: TOKEN)).there()


def test_a_list_that_goes_on_elsewhere_is_an_error_and_the_token_stays() -> None:
    with engine_server(lambda _: (200, {"value": []})) as other:
        page = {"value": [], "nextLink": f"{other.url}/next"}
        with engine_server(lambda _: (200, page)) as engine:
            started = ContainerAppsJob(JOB, Rest(base=engine.url, permission=lambda: TOKEN))
            with pytest.raises(StackError, match="leads to another address"):
                started.there()
        assert other.calls == []


def test_a_permission_that_cannot_be_had_is_an_error_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Azure's identity fails by its own class, and a pod's token may be away for a moment."""

    class Identity:
        def get_token(self, scope: str) -> str:
            raise ClientAuthenticationError(f"none for {scope}")

    def away() -> str:
        raise FileNotFoundError("token")

    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Identity)
    for permission, said in (
        (azure_permission("a-scope"), "no permission: none for a-scope"),
        (away, "does not answer as expected: token"),
    ):
        with pytest.raises(StackError, match=said):
            ContainerAppsJob(JOB, Rest(base="http://127.0.0.1:9", permission=permission)).there()


def test_engines_that_cannot_be_are_refused(tmp_path: Path) -> None:
    plain = json.loads(WORKER.read_text("utf-8")) | {"account": "http://a.batch.azure.com"}
    (tmp_path / "plain.json").write_text(json.dumps(plain))
    (tmp_path / "less.json").write_text('{"job": "j"}')
    for text, said in (
        (f"container-apps:{JOB}/executions", "not the id of a Container Apps job"),
        ("container-apps:mill-worker", "not the id of a Container Apps job"),
        ("batch:nowhere.json", "no file of account"),
        (f"batch:{tmp_path}/less.json", "no file of account"),
        (f"batch:{tmp_path}/plain.json", "no address with https"),
    ):
        with pytest.raises(ArgumentError, match=said):
            open_engine(text, 2)
