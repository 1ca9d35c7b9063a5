"""The JSON Schema of a request document, made from the model that parses it."""

import re
from functools import lru_cache
from typing import Any

from tasks.request.document import Request

_LINE = re.compile(r"^    (\w+): (.+(?:\n        .+)*)", re.MULTILINE)
Schema = dict[str, Any]


PARTS = "#/components/schemas/Request{model}"  # an API has other schemas of the same names


@lru_cache(maxsize=1)
def request_schemas() -> dict[str, Schema]:
    """Return the schema of the document, `Request`, and those of its parts, for an API.

    Each field has the description of the model's docstring. The caller must not change them.
    """
    schema = Request.model_json_schema(ref_template=PARTS)
    text = schema.pop("description", "")
    described = {_key(name): " ".join(words.split()) for name, words in _LINE.findall(text)}
    parts = {f"Request{name}": part for name, part in schema.pop("$defs", {}).items()}
    for name, field in schema["properties"].items():
        field["description"] = described[name].replace("`", "")
    schema |= {"title": "Request", "description": text.partition("\n")[0]}
    return {"Request": schema, **parts}


@lru_cache(maxsize=1)
def request_schema() -> Schema:
    """Return the schema of the document, self-contained. The caller must not change it."""
    schemas = request_schemas()
    inlined: Schema = _inlined(schemas["Request"], schemas)
    return inlined


def _key(name: str) -> str:
    """Return how the document spells an attribute of the model."""
    field = Request.model_fields.get(name)
    return (field and field.alias) or name


def _inlined(value: Any, defined: Schema) -> Any:
    """Return a schema with its definitions in place of the references to them."""
    if isinstance(value, list):
        return [_inlined(one, defined) for one in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return _inlined(
            {**defined[name], **{k: v for k, v in value.items() if k != "$ref"}}, defined
        )
    return {key: _inlined(one, defined) for key, one in value.items()}
