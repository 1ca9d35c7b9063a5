"""The JSON Schema of a request document, made from the model that parses it."""

import re
from functools import lru_cache
from typing import Any

from tasks.request.document import Request

_LINE = re.compile(r"^    (\w+): (.+(?:\n        .+)*)", re.MULTILINE)
Schema = dict[str, Any]


@lru_cache(maxsize=1)
def request_schema() -> Schema:
    """Return the schema, self-contained; each field has the description of the model's docstring.

    The caller must not change it.
    """
    schema = Request.model_json_schema()
    text = schema.pop("description", "")
    told = {_key(name): " ".join(words.split()) for name, words in _LINE.findall(text)}
    defined = schema.pop("$defs", {})
    inlined: Schema = _inlined(schema, defined)
    for name, field in inlined["properties"].items():
        field["description"] = told[name].replace("`", "")
    return {**inlined, "title": "Request", "description": text.partition("\n")[0]}


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
