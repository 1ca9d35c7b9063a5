"""Workers as tasks of a job of Azure Batch, whose pool has as many nodes as there are tasks."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from swathmill.commands.fleet.engine import Started
from swathmill.commands.fleet.rest import ChangedError, Rest, azure_permission
from swathmill.errors import ArgumentError, StackError

_VERSION = "api-version=2024-07-01.20.0"
_SCOPE = "https://batch.core.windows.net/.default"
_KIND = "application/json; odata=minimalmetadata"
_SELECT = "$select=id,state,creationTime,eTag"
_LOST_NODES = "$select=errors&$filter=" + quote("state eq 'unusable' or state eq 'starttaskfailed'")


class Batch:
    """Adds tasks like the one in a file to the job that the file names."""

    def __init__(self, file: str, place: str = "", api: Rest | None = None) -> None:
        """Raise ArgumentError for a file that says nothing of the kind."""
        try:
            said = json.loads(Path(file).read_text("utf-8"))
            account, job, self._task = str(said["account"]), str(said["job"]), dict(said["task"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArgumentError(
                f"{file or '(nothing)'} is no file of account, job and task: {error!r}.",
                "Copy infra/batch/worker.json and fill it in.",
            ) from error
        if urlsplit(account).scheme != "https":
            raise ArgumentError(
                f"{file} names the account {account}, which is no address with https://.",
                "Take it from `az batch account show --query accountEndpoint`.",
            )
        self._place = place
        self._job = f"/jobs/{quote(job)}"
        self._path = f"{self._job}/tasks"
        self._api = api or Rest(
            base=account.rstrip("/"), permission=azure_permission(_SCOPE), kind=_KIND
        )

    def there(self) -> list[Started]:
        """Implement `Engine.there`, in the order in which they were added."""
        going = self._going()
        why = self._why() if any(one["state"] == "active" for one in going) else ""
        return [
            Started(
                name=str(one["id"]),
                running=one["state"] != "active",
                why=why if one["state"] == "active" else "",
            )
            for one in going
        ]

    def start(self, count: int) -> None:
        """Implement `Engine.start`."""
        for _ in range(count):
            name = f"batch-{uuid.uuid4().hex}"
            own = [{"name": "SWATHMILL_WORKER_NAME", "value": name}]
            if self._place:
                own.append({"name": "SWATHMILL_WORKER_PLACE", "value": self._place})
            said = [*self._task.get("environmentSettings", ()), *own]
            task = {**self._task, "id": name, "environmentSettings": said}
            self._api.call("POST", f"{self._path}?{_VERSION}", task)

    def end(self, names: Sequence[str]) -> None:
        """Implement `Engine.end`: a task that waits is ended as it was seen."""
        for one in self._going():
            if one["id"] not in names or one["state"] != "active":
                continue
            path = f"{self._path}/{quote(one['id'])}/terminate?{_VERSION}"
            try:
                self._api.call("POST", path, headers={"If-Match": one["eTag"]})
            except ChangedError:
                continue  # it has begun, or is gone

    def _why(self) -> str:
        """Return what Batch says of a pool that gets no nodes, or of nodes that cannot work.

        An image that cannot be pulled is an error of a node, a quota one of the pool.
        """
        try:
            info = self._api.call("GET", f"{self._job}?{_VERSION}&$select=poolInfo")["poolInfo"]
            pool = f"/pools/{quote(info['poolId'])}"
            said = self._api.call("GET", f"{pool}?{_VERSION}&$select=resizeErrors")
            nodes = self._api.pages(f"{pool}/nodes?{_VERSION}&{_LOST_NODES}", "odata.nextLink")
            errors = [*(said.get("resizeErrors") or ())]
            errors += [error for node in nodes for error in node.get("errors") or ()]
        except StackError:  # who may start tasks may not see pools
            return ""
        return next((f"{one['code']}: {one.get('message', '')}" for one in errors), "")

    def _going(self) -> list[dict[str, Any]]:
        """List the tasks that are not completed."""
        found = self._api.pages(f"{self._path}?{_VERSION}&{_SELECT}", "odata.nextLink")
        going = [one for one in found if one["state"] != "completed"]
        return sorted(going, key=lambda one: str(one["creationTime"]))
