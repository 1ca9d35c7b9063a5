"""Owners of requests by name: names differ in letter case where people did not mean it."""

from collections.abc import Iterator

from tasks.bag.runtime import Runtime
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow

_NEWEST = 1000  # requests among which owners are looked for


def folded(name: str) -> str:
    """Return what the spellings of a name or an address have in common.

    Letters beyond ASCII are compared as they are: folding them would make two hosts equal.
    """
    return name.lower() if name.isascii() else name


def has_requests(runtime: Runtime, owner: str) -> bool:
    """Tell whether an owner, spelt just so, has made a request. Raises StoreError."""
    return any(request_operations.list_requests(runtime, owner, 1))


def spellings(runtime: Runtime, owner: str) -> list[str]:
    """List the other spellings of a name that own some of the newest requests. StoreError."""
    rows = request_operations.list_requests(runtime, None, _NEWEST)
    key = folded(owner)
    return sorted({row.owner for row in rows if row.owner != owner and folded(row.owner) == key})


def unfinished(runtime: Runtime, owner: str) -> Iterator[RequestRow]:
    """Yield an owner's requests that have not ended, of the newest ones. Raises StoreError."""
    rows = request_operations.list_requests(runtime, owner, _NEWEST)
    return (row for row in rows if not row.state.ended)
