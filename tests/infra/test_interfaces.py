"""What a version promises changes with an entry in CHANGELOG.md; docs/versions.md has the rule.

An entry under "### Interfaces" names an interface and its digest. Here the newest entry of each
is held to the code.
"""

import hashlib
import importlib
import json
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import tasks
from tasks.bag.kinds import Spec
from tasks.packages.packages import Package
from tasks.request.document import Request
from tasks.storage.codec import Codec
from tasks.storage.schema import OLDEST, SCHEMA
from tests.portal.scripted import live_portal, live_runtime, settings
from worker.phases.group import Manifest

CHANGES = Path(__file__).parents[2] / "CHANGELOG.md"
ENTRY = re.compile(r"^- (?P<name>[A-Z][A-Za-z ]+) `(?P<digest>[0-9a-f]{12})`: \S", re.MULTILINE)
# Words may change: they are no part of what is promised.
WORDS = frozenset(("description", "summary", "title", "example", "examples", "externalDocs"))


def plain(described: Any) -> Any:
    """Leave out of a JSON schema what is for people."""
    if isinstance(described, dict):
        return {
            key: {name: plain(one) for name, one in value.items()}
            if key == "properties"
            else plain(value)
            for key, value in described.items()
            if key not in WORDS
        }
    return [plain(one) for one in described] if isinstance(described, list) else described


def http_api() -> Any:
    with live_portal(live_runtime(), settings()) as portal, portal.client() as client:
        described = client.get("/api/openapi.json").json()
    return plain({name: described[name] for name in ("paths", "components")})


def codecs() -> Iterator[tuple[str, Codec[Any]]]:
    for module in pkgutil.walk_packages(tasks.__path__, "tasks."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Codec):
                yield value.kind, value


def rows() -> Any:
    kinds = {
        kind: {each.name: str(each.type) for each in fields(codec.of) if each.name != "etag"}
        for kind, codec in codecs()
    }
    made = plain(TypeAdapter(Spec).json_schema())
    return {"oldest": OLDEST, "newest": SCHEMA, "kinds": kinds, "specifications": made}


INTERFACES: dict[str, Callable[[], Any]] = {
    "Request document": lambda: plain(Request.model_json_schema()),
    "HTTP API": http_api,
    "Rows": rows,
    "Package manifest": lambda: plain([Package.model_json_schema(), Manifest.model_json_schema()]),
}


def digest(described: Any) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]


@pytest.mark.parametrize("name", INTERFACES)
def test_the_newest_entry_of_an_interface_is_that_of_the_code(name: str) -> None:
    """Where it fails: say under "### Interfaces" of CHANGELOG.md what changed, with the digest."""
    entries = reversed([*ENTRY.finditer(CHANGES.read_text("utf-8"))])
    newest = {entry["name"]: entry["digest"] for entry in entries}
    assert newest.get(name) == digest(INTERFACES[name]()), f"{name} changed: docs/versions.md"


def test_words_are_no_part_and_fields_are() -> None:
    schema = {"properties": {"title": {"type": "string", "description": "a"}}, "title": "T"}
    assert plain(schema) == {"properties": {"title": {"type": "string"}}}
    assert {"task", "request", "token", "package"} <= {kind for kind, _ in codecs()}


def test_each_change_is_told_once() -> None:
    """An entry that was mended, or stands under two versions, is easily kept beside itself."""
    entries = re.findall(r"^- (.{40})", CHANGES.read_text("utf-8"), re.MULTILINE)
    told = Counter(one for one in entries if not re.match(r"[A-Z][A-Za-z ]+ `[0-9a-f]{12}`", one))
    assert [one for one, times in told.items() if times > 1] == []
