"""Answer a call that is made again as before, while the rows of its answer are the same.

Programs ask every few seconds how a request stands, and most often nothing has changed. Whoever
calls is identified at each call, and the rows' ETags are read at each call: only the work between
is spared. It is done where tables are on this machine (`LocalStore`), since reading a few ETags
takes as long there as finding the route does.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portal.serving.identity import find_person
from portal.serving.sending import unchanged
from portal.serving.tokens import Person
from tasks.errors import StoreError
from tasks.requests.request_table import RequestRow, Seen, seen_in_list, seen_row
from tasks.storage.store import LocalStore

_MOST = 1024  # answers that are kept
_LARGEST = 2**15  # bytes of one, with those of its call
_MARK = "swathmill.seen"  # where a route notes in the scope what its answer was made from
_HAD = b"if-none-match"
# Who calls and what the caller has is looked at apart; the others tell which call it is.
_OTHER = {b"authorization", b"cookie", _HAD, b"traceparent", b"x-request-id"}

_Call = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class _Noted:
    """What a route has noted: who called, the rows, and seconds for which the answer serves."""

    caller: Person
    seen: Seen
    seconds: float


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """An answer, until when it serves, and what those who count calls look for in the scope."""

    start: Mapping[str, Any]
    body: bytes
    noted: _Noted
    route: object
    parameters: Mapping[str, Any]
    until: float


def made_from_row(request: Request, caller: Person, row: RequestRow, seconds: float = 1e9) -> None:
    """Note that the answer is a function of the call and this row, which the caller may see.

    It then serves until the row has changed, for some seconds at most (`SHORTLY` for what is made
    from results or failures, too).
    """
    # Groups and links may be ended without a change of the row.
    if caller.may_see(row.owner):
        request.scope[_MARK] = _Noted(caller=caller, seen=seen_row(row), seconds=seconds)


def made_from_list(
    request: Request, caller: Person, of: str, limit: int, rows: Iterable[RequestRow]
) -> None:
    """Note that the answer is a function of the call and the first rows of a list of requests."""
    seen = seen_in_list(of, limit, rows)
    request.scope[_MARK] = _Noted(caller=caller, seen=seen, seconds=1e9)


class Repeats:
    """Keeps short answers of calls that read, and gives them again."""

    def __init__(self, app: ASGIApp, store: LocalStore) -> None:
        self._app = app
        self._store = store
        self._kept: OrderedDict[_Call, _Kept] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        call: _Call = (
            scope["scheme"],
            scope["path"],
            scope["query_string"],
            tuple(header for header in scope["headers"] if header[0] not in _OTHER),
        )
        kept = self._kept.get(call)
        had = ""
        if kept is not None:
            had = Headers(scope=scope).get("if-none-match", "")
            if self._is_good(kept, scope):
                self._kept.move_to_end(call)
                scope["route"], scope["path_params"] = kept.route, kept.parameters
                await _send(send, dict(kept.start), kept.body, had)
                return
            # The answer is made whole, to be kept: the next call will have its ETag.
            scope["headers"] = [header for header in scope["headers"] if header[0] != _HAD]
        start: Message = {}

        async def keep(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            elif start and start["status"] == 200 and not message.get("more_body", False):
                if _MARK in scope:
                    self._keep(call, scope, dict(start), message.get("body", b""))
                await _send(send, start, message.get("body", b""), had)
            else:
                if start:
                    await send(start)
                    start = {}
                await send(message)

        await self._app(scope, receive, keep)

    def _is_good(self, kept: _Kept, scope: Scope) -> bool:
        """Tell whether the same person calls, and the answer would be the same."""
        with suppress(StoreError):  # whoever is asked next says so
            return (
                time.monotonic() < kept.until
                and find_person(Request(scope)) == kept.noted.caller
                and kept.noted.seen.are_same(self._store)
            )
        return False

    def _keep(self, call: _Call, scope: Scope, start: Message, body: bytes) -> None:
        of_headers = sum(len(name) + len(value) for name, value in scope["headers"])
        size = len(scope["path"]) + len(scope["query_string"]) + of_headers + len(body)
        if size > _LARGEST:
            return
        noted: _Noted = scope[_MARK]
        self._kept[call] = _Kept(
            start=start,
            body=body,
            noted=noted,
            route=scope.get("route"),
            parameters=scope.get("path_params", {}),
            until=time.monotonic() + noted.seconds,
        )
        self._kept.move_to_end(call)
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)


async def _send(send: Send, start: Message, body: bytes, had: str) -> None:
    """Send an answer, or that it is what the caller has."""
    same = unchanged(start, had)
    await send(start)
    await send({"type": "http.response.body", "body": b"" if same else body})
