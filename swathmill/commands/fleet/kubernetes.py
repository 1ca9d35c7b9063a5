"""Workers as Kubernetes jobs, made of the pod template of a deployment that has no replicas."""

import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from swathmill.commands.fleet.engine import Started
from swathmill.commands.fleet.rest import ChangedError, Rest
from swathmill.errors import ArgumentError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has its service account: token, certificate, namespace."""

_LABEL = "swathmill/fleet-of"
_JOB_NAME = "batch.kubernetes.io/job-name"  # a label that Kubernetes gives pods of jobs
_KEPT_SECONDS = 600
_USUAL = ("ContainerCreating", "PodInitializing", "ContainersNotReady", "ContainersNotInitialized")


class Kubernetes:
    """Makes jobs of one pod each, in the namespace of the service account."""

    def __init__(
        self, deployment: str, place: str = "", api: Rest | None = None, namespace: str = ""
    ) -> None:
        """Raise ArgumentError outside a pod, unless the API is given."""
        if not deployment:
            raise ArgumentError("No deployment is named.", "Name it: kubernetes:mill-worker.")
        self._deployment = deployment
        self._place = place
        self._namespace = namespace or _namespace()
        self._api = api or _api_of_pod()

    def there(self) -> list[Started]:
        """Implement `Engine.there`, in the order in which they were made."""
        pods = self._pods()
        return [
            Started(
                name=name,
                running=name in pods and _has_begun(pods[name]),
                why=_why_it_waits(pods[name]) if name in pods else "",
            )
            for name in (job["metadata"]["name"] for job in self._jobs())
        ]

    def start(self, count: int) -> None:
        """Implement `Engine.start`."""
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{quote(self._deployment)}"
        template = self._api.call("GET", path)["spec"]["template"]
        job = _job(self._deployment, template, self._place)
        for _ in range(count):
            self._api.call("POST", self._path(), job)

    def end(self, names: Sequence[str]) -> None:
        """Implement `Engine.end`: what waits is deleted as it was seen, and fails its job."""
        pods = self._pods()
        for job in self._jobs():
            name = job["metadata"]["name"]
            if name not in names or (name in pods and _has_begun(pods[name])):
                continue
            path, seen = (f"{self._path()}/{quote(name)}", job)
            if name in pods:
                seen = pods[name]
                path = (
                    f"/api/v1/namespaces/{self._namespace}/pods/{quote(seen['metadata']['name'])}"
                )
            order = {
                "propagationPolicy": "Background",
                "preconditions": {key: seen["metadata"][key] for key in ("uid", "resourceVersion")},
            }
            try:
                self._api.call("DELETE", path, order)
            except ChangedError:
                continue  # it has begun, or is gone

    def _jobs(self) -> list[dict[str, Any]]:
        """List the jobs that have neither succeeded nor failed."""
        found = self._api.call("GET", f"{self._path()}?labelSelector={self._selector}")["items"]
        going = [job for job in found if not _has_ended(job)]
        return sorted(going, key=lambda job: str(job["metadata"]["creationTimestamp"]))

    def _pods(self) -> dict[str, dict[str, Any]]:
        """List the pods of the jobs by the names of these."""
        path = f"/api/v1/namespaces/{self._namespace}/pods?labelSelector={self._selector}"
        found = self._api.call("GET", path)["items"]
        return {pod["metadata"]["labels"][_JOB_NAME]: pod for pod in found}

    @property
    def _selector(self) -> str:
        return quote(f"{_LABEL}={self._deployment}")

    def _path(self) -> str:
        return f"/apis/batch/v1/namespaces/{self._namespace}/jobs"


def _has_begun(pod: dict[str, Any]) -> bool:
    """Tell whether a container of a pod has started: before, it waits for a machine or an image."""
    return bool(pod["status"].get("phase", "Pending") != "Pending")


def _why_it_waits(pod: dict[str, Any]) -> str:
    """Return what Kubernetes says of a pod without a machine, or whose image is not there.

    A container that is only being made waits for nothing that anybody has to mend.
    """
    if _has_begun(pod):
        return ""
    status = pod["status"]
    said = [one["state"].get("waiting") or {} for one in status.get("containerStatuses") or ()]
    said += [one for one in status.get("conditions") or () if one["status"] == "False"]
    for one in said:
        reason = str(one.get("reason") or "")
        if reason and reason not in _USUAL:
            return f"{reason}: {one['message']}" if one.get("message") else reason
    return ""


def _has_ended(job: dict[str, Any]) -> bool:
    conditions = job["status"].get("conditions") or ()
    ends = {one["type"] for one in conditions if one["status"] == "True"}
    return bool(ends & {"Complete", "Failed"} or job["metadata"].get("deletionTimestamp"))


def _job(deployment: str, template: dict[str, Any], place: str) -> dict[str, Any]:
    """Make a job of one pod as in a template; its worker bears the job's name, and has a place."""
    spec = {**template["spec"], "restartPolicy": "Never"}
    worker, *others = spec["containers"]
    name = {
        "name": "SWATHMILL_WORKER_NAME",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{_JOB_NAME}']"}},
    }
    own = [name, *([{"name": "SWATHMILL_WORKER_PLACE", "value": place}] if place else ())]
    names = {one["name"] for one in own}
    kept = [one for one in worker.get("env") or () if one["name"] not in names]
    spec["containers"] = [{**worker, "env": [*kept, *own]}, *others]
    metadata = {
        "labels": {**template["metadata"].get("labels", {}), _LABEL: deployment},
        "annotations": template["metadata"].get("annotations", {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": f"{deployment}-", "labels": {_LABEL: deployment}},
        "spec": {
            # What a worker ran is taken up by others: the job is not tried again.
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def _namespace() -> str:
    try:
        return (ACCOUNT / "namespace").read_text("utf-8").strip()
    except OSError as error:
        raise ArgumentError(
            f"This is no pod with a service account: {error}.",
            "Run it in the cluster: infra/kubernetes/fleet.yaml.",
        ) from error


def _api_of_pod() -> Rest:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host:
        raise ArgumentError(
            "KUBERNETES_SERVICE_HOST is not set: this is no pod.",
            "Run it in the cluster: infra/kubernetes/fleet.yaml.",
        )
    return Rest(
        base=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        # The kubelet renews it.
        permission=lambda: f"Bearer {(ACCOUNT / 'token').read_text('utf-8').strip()}",
        context=ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt")),
    )
