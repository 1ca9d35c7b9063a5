"""Calls of an engine's API over HTTPS, with JSON; each failure is a StackError that says what."""

import ssl
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx

from swathmill.errors import StackError

_SECONDS = 30.0


class ChangedError(StackError):
    """What the call was about is not as it was, or is gone: the engine has refused it."""


@dataclass(frozen=True, kw_only=True)
class Rest:
    """An API at `base`; `permission` returns the value of the header Authorization.

    It raises StackError or OSError where there is none.
    """

    base: str
    permission: Callable[[], str]
    kind: str = "application/json"
    context: ssl.SSLContext | None = None

    def call(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send a call and return its answer; `path` may be a whole address below `base`.

        Raises:
            ChangedError: the answer is 404, 409 or 412.
            StackError: the API cannot be reached or refuses the call.
        """
        below = path.removeprefix(self.base)
        if not below.startswith("/"):
            raise StackError(f"{self.base} leads to another address: {path[:200]}.", "Look at it.")
        url = f"{self.base}{below}"
        said = {"Accept": "application/json", **(headers or {})}
        if document is not None:
            said["Content-Type"] = self.kind
        with self._named_errors():
            said["Authorization"] = self.permission()
            answer = self._client.request(method, url, json=document, headers=said)
            if answer.status_code in (404, 409, 412):
                raise ChangedError(*_refused(method, answer))
            if not answer.is_success:
                raise StackError(*_refused(method, answer))
            return answer.json() if answer.content else {}

    def pages(self, path: str, following: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page; `following` names the next page's address.

        Raises StackError, also for pages that repeat.
        """
        seen = set[str]()
        while path:
            if path in seen:
                raise StackError(f"{self.base} lists the same page twice.", "It is asked again.")
            seen.add(path)
            page = self.call("GET", path)
            yield from page.get("value") or ()
            path = str(page.get(following) or "")

    @cached_property
    def _client(self) -> httpx.Client:
        verify = self.context or not self.base.startswith("http://")
        made = httpx.Client(timeout=_SECONDS, verify=verify)
        weakref.finalize(self, made.close)
        return made

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
            raise StackError(
                f"{self.base} does not answer as expected: {error}.", "It is asked again."
            ) from error


def _refused(method: str, answer: httpx.Response) -> tuple[str, str]:
    where = answer.url.copy_with(query=None)
    return (
        f"{method} {where} was answered {answer.status_code}: {answer.text[:300]}",
        "See that it is there, and that this program may call it.",
    )


def azure_permission(scope: str) -> Callable[[], str]:
    """Return what signs calls for a scope of Azure: by this process' identity, or that of `az`."""
    from azure.core.exceptions import AzureError
    from azure.identity import DefaultAzureCredential

    identity = DefaultAzureCredential()

    def permission() -> str:
        try:
            return f"Bearer {identity.get_token(scope).token}"
        except AzureError as error:
            raise StackError(
                f"Azure gives this process no permission: {str(error)[:300]}",
                "Run it with a managed identity, or after `az login`.",
            ) from error

    return permission
