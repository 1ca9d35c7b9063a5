"""Workers as Kubernetes jobs: by a server of the calls that are made of its API.

Forms and rules (labels of pods, preconditions, conditions) are those of the Kubernetes API
reference, "Job v1 batch" and "Pod v1 core".
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from swathmill.commands.fleet import kubernetes
from swathmill.commands.fleet.kubernetes import Kubernetes
from swathmill.commands.fleet.registry import open_engine
from swathmill.commands.fleet.rest import Rest
from swathmill.errors import ArgumentError, StackError
from tests.swathmill.commands.fleet.engine_server import (
    TOKEN,
    Answer,
    Call,
    Document,
    engine_server,
)

FLEET = Path(__file__).parents[4] / "infra" / "kubernetes" / "fleet.yaml"
JOB_NAME = "batch.kubernetes.io/job-name"
TEMPLATE: Document = {
    "metadata": {"labels": {"app.kubernetes.io/component": "worker"}},
    "spec": {
        "terminationGracePeriodSeconds": 600,
        "containers": [{"name": "worker", "image": "i", "env": [{"name": "A", "value": "1"}]}],
    },
}


@dataclass
class Cluster:
    """The jobs and pods of one namespace."""

    jobs: dict[str, Document] = field(default_factory=dict)
    pods: dict[str, Document] = field(default_factory=dict)
    version: int = 0
    races: list[str] = field(default_factory=list)  # jobs that begin before they are deleted

    def answer(self, call: Call) -> Answer:
        address = urlsplit(call.path)
        kind, _, name = address.path.partition("/namespaces/mill/")[2].partition("/")
        if kind == "deployments":
            return (200, {"spec": {"template": TEMPLATE}}) if name == "mill-worker" else (404, {})
        held = self.jobs if kind == "jobs" else self.pods
        if call.method == "POST":
            return 201, self.make(call.document)
        if call.method == "DELETE":
            return self.delete(held, name, call.document)
        key, _, value = parse_qs(address.query)["labelSelector"][0].partition("=")
        found = [one for one in held.values() if one["metadata"]["labels"].get(key) == value]
        return 200, {"items": found}

    def about(self, name: str, labels: Document) -> Document:
        self.version += 1
        return {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": f"{self.version}",
            "creationTimestamp": f"2026-01-01T00:00:{self.version:02}Z",
            "labels": labels,
        }

    def make(self, job: Document) -> Document:
        name = f"{job['metadata']['generateName']}{len(self.jobs) + 1}"
        job = {**job, "metadata": self.about(name, job["metadata"]["labels"]), "status": {}}
        self.jobs[name] = job
        labels = {**job["spec"]["template"]["metadata"]["labels"], JOB_NAME: name}
        about = self.about(f"{name}-pod", labels)
        self.pods[f"{name}-pod"] = {"metadata": about, "status": {"phase": "Pending"}}
        return job

    def begin(self, job: str) -> None:
        pod = self.pods[f"{job}-pod"]
        self.pods[f"{job}-pod"] = {
            "metadata": self.about(f"{job}-pod", pod["metadata"]["labels"]),
            "status": {"phase": "Running"},
        }

    def delete(self, held: dict[str, Document], name: str, order: Document) -> Answer:
        for job in self.races:
            self.begin(job)
        self.races = []
        about = held[name]["metadata"]
        if any(about[key] != value for key, value in order["preconditions"].items()):
            return 409, {}
        del held[name]
        if held is self.pods:
            failed = {"conditions": [{"type": "Failed", "status": "True"}]}
            self.jobs[name.removesuffix("-pod")]["status"] = failed
        return 200, {}


def jobs_of(url: str, deployment: str = "mill-worker", place: str = "") -> Kubernetes:
    return Kubernetes(deployment, place, Rest(base=url, permission=lambda: TOKEN), "mill")


def test_workers_are_jobs_of_the_deployment_s_pods_and_only_those_that_wait_are_ended() -> None:
    cluster = Cluster()
    with engine_server(cluster.answer) as engine:
        one = jobs_of(engine.url)
        assert one.there() == []
        one.start(4)
        names = [f"mill-worker-{n}" for n in range(1, 5)]
        cluster.begin(names[0])
        there = [(each.name, each.running) for each in one.there()]
        assert there == [(name, name == names[0]) for name in names]
        cluster.races = [names[1]]  # it begins between the look and the call
        one.end(names)
        assert [each.name for each in one.there()] == names[:2]
        cluster.jobs[names[0]]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
        del cluster.pods[f"{names[1]}-pod"]  # not made yet, for a quota perhaps
        assert [(each.name, each.running) for each in one.there()] == [(names[1], False)]
        one.end(names)
        assert one.there() == []
        with pytest.raises(StackError, match="deployments/absent was answered 404"):
            jobs_of(engine.url, "absent").start(1)
        with pytest.raises(StackError, match="was answered 401"):
            Kubernetes("w", "", Rest(base=engine.url, permission=lambda: "no"), "mill").there()
    with pytest.raises(StackError, match="does not answer"):
        one.there()


BACK_OFF = {"reason": "ImagePullBackOff", "message": "Back-off pulling image mill/worker:2"}
NO_ROOM = {"reason": "Unschedulable", "message": "0/3 nodes are available: Insufficient cpu."}


def test_what_kubernetes_says_of_pods_that_wait_is_told() -> None:
    cluster = Cluster()
    made = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
    statuses = [
        {"containerStatuses": [{"state": {"waiting": BACK_OFF}}], "conditions": [made]},
        {"conditions": [{"type": "PodScheduled", "status": "False", **NO_ROOM}]},
        {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]},
        {},
    ]
    with engine_server(cluster.answer) as engine:
        one = jobs_of(engine.url)
        one.start(5)
        for number, status in enumerate(statuses, 1):
            cluster.pods[f"mill-worker-{number}-pod"]["status"] |= status
        cluster.begin("mill-worker-5")
        assert [each.why for each in one.there()] == [
            "ImagePullBackOff: Back-off pulling image mill/worker:2",
            "Unschedulable: 0/3 nodes are available: Insufficient cpu.",
            *("", "", ""),
        ]


def test_a_job_is_one_pod_that_is_not_tried_again_and_bears_the_job_s_name() -> None:
    cluster = Cluster()
    with engine_server(cluster.answer) as engine:
        jobs_of(engine.url).start(1)
    (job,) = cluster.jobs.values()
    spec: dict[str, Any] = job["spec"]
    assert spec["backoffLimit"] == 0
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 600)
    assert spec["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"
    plain, name = pod["containers"][0]["env"]
    assert plain == {"name": "A", "value": "1"}
    assert name["name"] == "SWATHMILL_WORKER_NAME"
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": f"metadata.labels['{JOB_NAME}']"}}


def test_a_job_of_a_place_says_so_to_its_worker() -> None:
    cluster = Cluster()
    with engine_server(cluster.answer) as engine:
        jobs_of(engine.url, place="gpu").start(1)
    (job,) = cluster.jobs.values()
    *_, last = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert last == {"name": "SWATHMILL_WORKER_PLACE", "value": "gpu"}


def test_the_role_permits_the_calls_that_are_made_and_no_others() -> None:
    documents = [*yaml.safe_load_all(FLEET.read_text("utf-8"))]
    (role,) = (one for one in documents if one["kind"] == "Role")
    permitted = {
        (group, kind, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }
    cluster = Cluster()
    with engine_server(cluster.answer) as engine:
        one = jobs_of(engine.url)
        one.start(2)
        one.end([each.name for each in one.there()][:1])
        del cluster.pods["mill-worker-2-pod"]
        one.end(["mill-worker-2"])
    verbs = {"GET": "list", "POST": "create", "DELETE": "delete"}
    made = set()
    for call in engine.calls:
        before, _, after = urlsplit(call.path).path.partition("/namespaces/mill/")
        kind, group = after.split("/")[0], before.split("/")[2]
        verb = "get" if kind == "deployments" else verbs[call.method]
        made.add(("" if group == "v1" else group, kind, verb))
    assert made == permitted
    (fleet,) = (one for one in documents if one["kind"] == "Deployment")
    (container,) = fleet["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == ["swathmill", "fleet", "kubernetes:mill-worker"]


def test_outside_a_pod_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ArgumentError, match="no pod with a service account"):
        open_engine("kubernetes:mill-worker", 2)
    (tmp_path / "namespace").write_text("mill")
    with pytest.raises(ArgumentError, match="KUBERNETES_SERVICE_HOST"):
        open_engine("kubernetes:mill-worker", 2)
    with pytest.raises(ArgumentError, match="No deployment"):
        open_engine("kubernetes:", 2)
