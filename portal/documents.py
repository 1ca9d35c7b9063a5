"""Request documents as they arrive: JSON or YAML text, of a bounded size."""

import json

import yaml
from fastapi import Request

from portal.problems import TooLargeError
from tasks.errors import RequestRefusedError

MOST_BYTES = 2 * 2**20


async def read_body(request: Request) -> bytes:
    """The body of a call; TooLargeError beyond 2 MiB."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise TooLargeError(
                f"The document is larger than {MOST_BYTES >> 20} MiB.",
                "Simplify its polygon, or split the request.",
            )
        parts.append(part)
    return b"".join(parts)


def decode(text: bytes) -> object:
    """The content of a document in JSON or YAML (of which JSON is a part).

    Raises RequestRefusedError when it is neither. YAML aliases are refused: a few of them can
    stand for a document without end.
    """
    try:
        plain = text.decode("utf-8")
        if plain.lstrip().startswith("{"):
            return json.loads(plain)
        return yaml.load(plain, _NoAliases)
    except (UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        where = " ".join(str(error).split())[:200]
        raise RequestRefusedError(
            "document",
            f"is neither JSON nor YAML: {where}.",
            "Mend it; examples/ has some to copy.",
        ) from None
    except RecursionError:
        raise RequestRefusedError(
            "document", "is nested too deeply.", "Write it as the examples do."
        ) from None


class _NoAliases(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name) is not allowed here")
        return super().compose_node(parent, index)
