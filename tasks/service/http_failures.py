"""The categories of httpx's exceptions."""

import httpx

from tasks.bag.categories import Category
from tasks.service.http_status import category_of_status

_TYPES: tuple[tuple[tuple[type[BaseException], ...], Category], ...] = (
    ((httpx.ConnectTimeout,), Category.CONNECTION_FAILURE),
    ((httpx.TimeoutException,), Category.OPERATION_TIMEOUT),
    ((httpx.NetworkError, httpx.ProxyError), Category.CONNECTION_FAILURE),
    ((httpx.TransportError, httpx.DecodingError), Category.TRANSPORT_ERROR),
)


def category_of(error: BaseException) -> Category | None:
    """Return the category of an exception; None if it says nothing."""
    if isinstance(error, httpx.HTTPStatusError):
        return category_of_status(error.response.status_code)
    return next((category for types, category in _TYPES if isinstance(error, types)), None)
