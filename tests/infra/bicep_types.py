"""The templates against the published types of Azure's resources, as Bicep's compiler checks them.

The compiler and its package of types come from a registry that neither CI nor pip reaches. The
types are published as JSON, too, in the repository Azure/bicep-types-az (MIT).
`bicep_types.json` has what our templates use of them: of each object that a template writes, the
names of all properties, and the literals that a value may be. It finds a property that the type
does not have, one that is required and absent, one that is read-only, and a wrong literal.

After a change of the templates that it does not cover, write it anew from a clone of the
repository:

    python -m tests.infra.bicep_types CLONE

What is not checked: the types of functions, of plain numbers and texts, and what only a deployment
finds out.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeGuard

from pycep import BicepParser

ROOT = Path(__file__).parents[2]
TEMPLATES = (ROOT / "infra/bicep", ROOT / "infra/scale-set", ROOT / "infra/batch")
KNOWN = Path(__file__).with_name("bicep_types.json")

Value = object
Shape = Mapping[str, object]
"""What is known of a type: `properties` with flags and `of`, `items`, `literals`, or nothing."""

_REQUIRED, _READ_ONLY = 1, 2  # flags of a property, ObjectTypePropertyFlags of bicep-types
_OF_BICEP = {"parent", "scope", "dependsOn"}  # of any resource, which no type names


class Template:
    """A parsed file: its resources, and what its variables stand for."""

    def __init__(self, parsed: Mapping[str, Value]) -> None:
        self._variables = _mapping(parsed.get("variables"))
        self._names = {*self._variables, *_mapping(parsed.get("parameters"))}
        self._resources = _mapping(parsed.get("resources"))

    def resources(self) -> Iterator[tuple[str, str, Value | None]]:
        """Yield name, type and content of each resource; no content of one that exists already."""
        for name, found in self._resources.items():
            one = _mapping(found)
            kind = f"{one['type']}@{one['api_version']}"
            yield name, kind, None if one["existing"] else one["config"]

    def plain(self, value: Value) -> Iterator[Value]:
        """Yield what an expression may stand for, as far as the file says it."""
        if isinstance(value, str) and value in self._variables:
            yield from self.plain(_mapping(self._variables[value])["value"])
            return
        found = _mapping(value)
        if found.keys() in ({"condition", "config"}, {"loop_type", "condition", "config"}):
            yield from self.plain(found["config"])
            return
        kind = next(iter(found)) if len(found) == 1 else ""
        inner = _mapping(found.get(kind)) if kind in ("function", "operator") else {}
        if "type" not in inner:
            yield value
        elif inner["type"] == "conditional":
            operands = _mapping(inner["operands"])
            yield from self.plain(operands["true_value"])
            yield from self.plain(operands["false_value"])
        elif inner["type"] in ("concat", "union"):
            for argument in _mapping(inner["parameters"]).values():
                yield from self.plain(argument)

    def is_literal(self, value: Value) -> TypeGuard[str]:
        """Tell whether a text is one, and no name of a variable and no expression."""
        return isinstance(value, str) and value not in self._names and "${" not in value


def problems(template: Template, known: Mapping[str, Shape]) -> Iterator[str]:
    """Yield what of a template does not fit the types."""
    for name, kind, content in template.resources():
        if kind not in known:
            yield f"{name}: no type {kind}"
        elif content is not None:
            yield from _unfit(template, content, known[kind], name, top=True)


def _unfit(
    template: Template, value: Value, shape: Shape, path: str, *, top: bool = False
) -> Iterator[str]:
    for one in template.plain(value):
        if isinstance(one, list) and "items" in shape:
            for each in one:
                yield from _unfit(template, each, _mapping(shape["items"]), f"{path}[]")
        elif isinstance(one, dict) and "properties" in shape:
            flags, of = _mapping(shape["properties"]), _mapping(shape.get("of"))
            written = {name.strip("'"): given for name, given in one.items()}
            for name, given in written.items():
                if name in flags:
                    if _flag(flags[name]) & _READ_ONLY and not _flag(flags[name]) & _REQUIRED:
                        yield f"{path}.{name} is read-only"
                    yield from _unfit(template, given, _mapping(of.get(name)), f"{path}.{name}")
                elif not shape.get("others") and not (top and name in _OF_BICEP):
                    yield f"{path}.{name} is no property; there are {', '.join(sorted(flags))}"
            lacking = {n for n, flag in flags.items() if _flag(flag) & _REQUIRED} - written.keys()
            lacking -= {"id", "type", "apiVersion"} if top else set()
            yield from (f"{path} lacks {name}" for name in sorted(lacking))
        elif template.is_literal(one) and "literals" in shape:
            literals = shape["literals"]
            if isinstance(literals, list) and one not in literals:
                yield f"{path}: {one!r} is none of {', '.join(map(str, literals))}"


class Published:
    """The types of a clone of Azure/bicep-types-az."""

    def __init__(self, clone: Path) -> None:
        self._clone = clone
        listed = self._git("ls-tree", "-r", "--name-only", "HEAD", "generated").splitlines()
        self._files = [name for name in listed if name.endswith("/types.json")]
        self.commit = self._git("rev-parse", "HEAD").strip()

    def _git(self, *words: str) -> str:
        command = ["git", "-C", str(self._clone), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @cache  # noqa: B019 - it lives as long as the program
    def _types(self, file: str) -> list[dict[str, Value]]:
        read: list[dict[str, Value]] = json.loads(self._git("show", f"HEAD:{file}"))
        return read

    def shape(self, kind: str, template: Template, content: Value | None) -> Shape | None:
        """Return what is known of the type of a resource, as far as this content uses it."""
        provider, version = kind.partition("/")[0].lower(), kind.partition("@")[2]
        for file in self._files:
            if file.endswith(f"/{provider}/{version}/types.json"):
                types = self._types(file)
                for one in types:
                    if one["$type"] == "ResourceType" and str(one["name"]).lower() == kind.lower():
                        values = [] if content is None else [content]
                        return self._seen(types, _mapping(one["body"]), template, values)
        return None

    def _seen(
        self,
        types: list[dict[str, Value]],
        reference: Mapping[str, Value],
        template: Template,
        values: list[Value],
    ) -> Shape:
        found = types[int(str(reference["$ref"]).removeprefix("#/"))]
        plain = [one for value in values for one in template.plain(value)]
        match found["$type"]:
            case "ArrayType":
                items = [each for one in plain if isinstance(one, list) for each in one]
                return {"items": self._seen(types, _mapping(found["itemType"]), template, items)}
            case "StringLiteralType":
                return {"literals": [found["value"]]}
            case "UnionType":
                some = [
                    self._seen(types, _mapping(one), template, [])
                    for one in _list(found["elements"])
                ]
                if not all("literals" in one for one in some):
                    return {}  # any text, of which some are named
                return {"literals": sorted(str(v) for one in some for v in _list(one["literals"]))}
            case "ObjectType":
                return self._object(types, found, template, plain)
            case "DiscriminatedObjectType":
                return self._discriminated(types, found, template, plain)
        return {}

    def _object(
        self,
        types: list[dict[str, Value]],
        found: Mapping[str, Value],
        template: Template,
        plain: list[Value],
    ) -> Shape:
        properties = {name: _mapping(one) for name, one in _mapping(found["properties"]).items()}
        written: dict[str, list[Value]] = {}
        for one in plain:
            if isinstance(one, dict):
                for name, given in one.items():
                    written.setdefault(name.strip("'"), []).append(given)
        shape: dict[str, object] = {
            "properties": {name: one["flags"] for name, one in sorted(properties.items())}
        }
        of = {
            name: self._seen(types, _mapping(properties[name]["type"]), template, values)
            for name, values in sorted(written.items())
            if name in properties
        }
        if some := {name: one for name, one in of.items() if one}:
            shape["of"] = some
        if "additionalProperties" in found:
            shape["others"] = True
        return shape

    def _discriminated(
        self,
        types: list[dict[str, Value]],
        found: Mapping[str, Value],
        template: Template,
        plain: list[Value],
    ) -> Shape:
        """Return the properties of all kinds of an object that the content is one of."""
        by = str(found["discriminator"])
        elements = _mapping(found["elements"])
        kinds = {
            str(given)
            for one in plain
            if isinstance(one, dict)
            for name, given in one.items()
            if name.strip("'") == by
        }
        merged = dict(_mapping(found["baseProperties"]))
        for kind in sorted(kinds & elements.keys()):
            element = types[int(str(_mapping(elements[kind])["$ref"]).removeprefix("#/"))]
            merged |= _mapping(element["properties"])
        return self._object(types, {"properties": merged}, template, plain)


def templates() -> Iterator[tuple[str, Template]]:
    """Yield the templates by path, parsed."""
    parser = BicepParser()
    for folder in TEMPLATES:
        for path in sorted(folder.glob("*.bicep")):
            yield path.relative_to(ROOT).as_posix(), Template({**parser.parse(file_path=path)})


def read_known() -> dict[str, Shape]:
    """Return the types that are kept."""
    read: dict[str, dict[str, Shape]] = json.loads(KNOWN.read_text("utf-8"))
    return read["types"]


def write_known(clone: Path) -> None:
    """Write what the templates use of the types of a clone."""
    published = Published(clone)
    types: dict[str, Shape] = {}
    for path, template in templates():
        for name, kind, content in template.resources():
            shape = published.shape(kind, template, content)
            if shape is None:
                sys.exit(f"{path}: {name}: no type {kind}")
            types[kind] = _merged(types.get(kind, {}), shape)
    source = f"Azure/bicep-types-az {published.commit[:12]}, MIT License, (c) Microsoft Corporation"
    text = json.dumps({"source": source, "types": types}, sort_keys=True, separators=(",", ":"))
    KNOWN.write_text(text.replace(',"Microsoft.', ',\n"Microsoft.') + "\n", "utf-8")


def _merged(one: Shape, other: Shape) -> Shape:
    """Return what two uses of one type know of it."""
    found: dict[str, object] = {}
    for name in {**one, **other}:
        left, right = one.get(name), other.get(name)
        both = isinstance(left, dict) and isinstance(right, dict)
        found[name] = _merged(_mapping(left), _mapping(right)) if both else right or left
    return found


def _mapping(value: Value) -> Mapping[str, Value]:
    return value if isinstance(value, dict) else {}


def _list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else []


def _flag(value: Value) -> int:
    return value if isinstance(value, int) else 0


if __name__ == "__main__":
    write_known(Path(sys.argv[1]))
