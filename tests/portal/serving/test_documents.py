"""Forms that browsers send, at their bounds."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import pytest
from fastapi import Request
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from portal.serving import documents
from portal.serving.documents import read_form_data
from portal.serving.problems import TooLargeError
from tests.own_loop import run_on_own_loop

T = TypeVar("T")


def read(sent: httpx.Request, how: Callable[[Request], Awaitable[T]]) -> T:
    """What is read of a call as it comes from a server."""
    body = sent.read()

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def reading() -> T:
        headers = [(name.lower(), value) for name, value in sent.headers.raw]
        scope = {"type": "http", "method": "POST", "headers": headers, "app": None}
        return await how(Request(scope, receive))

    return run_on_own_loop(reading())


@pytest.mark.parametrize("files", [0, 1])
def test_a_form_has_so_many_fields_and_files(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    monkeypatch.setattr(documents, "_MOST_FIELDS", 3)

    def form(fields: int, files: int) -> int:
        data = {f"f{number}": "1" for number in range(fields)}
        sent = {f"file{number}": ("name", b"x") for number in range(files)}
        made = httpx.Request("POST", "http://portal/new", data=data, files=sent or None)

        async def counted(request: Request) -> int:
            found = await read_form_data(request, files=1)
            await found.close()
            return len(found)

        return read(made, counted)

    assert form(3, files) == 3 + files
    with pytest.raises(HTTPException, match=r"Too many fields\. Maximum number of fields is 3"):
        form(4, files)
    if files:
        with pytest.raises(HTTPException, match=r"Too many files\. Maximum number of files is 1"):
            form(3, 2)


def test_a_form_has_so_many_bytes_and_says_how_many() -> None:
    def form(size: int, *, said: bool = True) -> FormData:
        made = httpx.Request("POST", "http://portal/new", data={"f": "1" * (size - 2)})
        if not said:
            del made.headers["content-length"]
        return read(made, lambda request: read_form_data(request, 1000))

    assert len(form(1000)) == 1
    for size, said in ((1001, True), (1000, False)):
        with pytest.raises(TooLargeError, match="or does not say its size"):
            form(size, said=said)
