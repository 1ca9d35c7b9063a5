"""Workers as executions of a job of Azure Container Apps, each of one replica."""

import re
from collections.abc import Sequence

from swathmill.commands.fleet.engine import Started
from swathmill.commands.fleet.rest import Rest, azure_permission
from swathmill.errors import ArgumentError

_MANAGEMENT = "https://management.azure.com"
_VERSION = "api-version=2024-03-01"
_ID = re.compile(
    r"/subscriptions/[^/?#]+/resourceGroups/[^/?#]+/providers/Microsoft\.App/jobs/[^/?#]+"
)
_GOING = ("Running", "Processing", "Unknown")


class ContainerAppsJob:
    """Starts executions of a job that is started by hand (`triggerType: Manual`)."""

    def __init__(self, resource: str, api: Rest | None = None) -> None:
        """Raise ArgumentError for what is no id of such a job."""
        if not _ID.fullmatch(resource):
            raise ArgumentError(
                f"{resource or '(nothing)'} is not the id of a Container Apps job.",
                "Take it from `az containerapp job show --query id`.",
            )
        self._path = resource
        self._api = api or Rest(
            base=_MANAGEMENT, permission=azure_permission(f"{_MANAGEMENT}/.default")
        )

    def there(self) -> list[Started]:
        """Implement `Engine.there`: an execution counts as running from its start.

        Azure does not say whether its replica waits for a machine.
        """
        found = self._api.pages(f"{self._path}/executions?{_VERSION}", "nextLink")
        return [
            Started(name=str(one["name"]), running=True)
            for one in found
            if one["properties"]["status"] in _GOING
        ]

    def start(self, count: int) -> None:
        """Implement `Engine.start`."""
        for _ in range(count):
            self._api.call("POST", f"{self._path}/start?{_VERSION}")

    def end(self, names: Sequence[str]) -> None:
        """Implement `Engine.end`: none is known to wait, so none is ended."""
