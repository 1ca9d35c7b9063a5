"""Read what callers send: bodies, forms and documents of limited size, few uploads at once."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

import yaml
from fastapi import Request
from starlette.datastructures import FormData

from modis.yaml_text import TooDeepError, load_yaml
from portal.serving.problems import BusyError, TooLargeError
from tasks.errors import RequestRefusedError, refusal_of
from tasks.plain_text import NotUtf8Error, decoded

MOST_BYTES = 2 * 2**20
_MOST_FIELDS = 2000


async def read_body(request: Request) -> bytes:
    """Read the body of a call; raise TooLargeError beyond 2 MiB.

    It is a dependency of routes: what else it took would be a parameter of their addresses.
    """
    return await read_body_up_to(request, MOST_BYTES)


async def read_body_up_to(request: Request, most: int) -> bytes:
    """Read the body of a call; raise TooLargeError beyond `most` bytes."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLargeError(
                f"The document is larger than {most >> 20} MiB.",
                "Simplify its polygon, or split the request.",
            )
        parts.append(part)
    return b"".join(parts)


async def read_form_data(request: Request, most: int = MOST_BYTES, files: int = 0) -> FormData:
    """Read a form that a browser sent; raise TooLargeError beyond `most` bytes."""
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > most:
        raise TooLargeError(
            f"The form is larger than {most >> 20} MiB, or does not say its size.",
            "Simplify its polygon.",
        )
    return await request.form(max_files=files, max_fields=_MOST_FIELDS, max_part_size=MOST_BYTES)


def decode(text: bytes) -> object:
    """Decode a document in JSON or YAML (JSON is a subset of YAML).

    Raises RequestRefusedError for text that is neither, and for text made to exhaust its reader:
    nesting that is too deep, or YAML aliases, a few of which can expand without limit.
    """
    try:
        plain = decoded(text)
        if plain.lstrip().startswith("{"):
            return json.loads(plain)
        return load_yaml(plain)
    except (TooDeepError, RecursionError):
        raise RequestRefusedError(
            "document", "is nested too deeply.", "Write it as the examples do."
        ) from None
    except NotUtf8Error as error:
        raise refusal_of("document", str(error)) from None
    except (ValueError, yaml.YAMLError) as error:
        where = " ".join(str(error).split())[:200]
        raise RequestRefusedError(
            "document",
            f"is neither JSON nor YAML: {where}.",
            "Correct it; examples/ has documents to copy.",
        ) from None


@contextmanager
def turn(turns: BoundedSemaphore) -> Iterator[None]:
    """Take one of the few turns to read an upload; raise BusyError if there is none."""
    if not turns.acquire(blocking=False):
        raise BusyError("Other uploads are being read.", "Try again in a moment.")
    try:
        yield
    finally:
        turns.release()
