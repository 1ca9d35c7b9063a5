"""YAML by the rules of version 1.2, as people write it in requests, packages and catalogues.

PyYAML reads version 1.1, in which a bare `021` is 17, `1:30` is 90, `no` is false and `2012-01-01`
is a day (and a wrong day an error without a place). Here plain values have the types of the core
schema (YAML 1.2.2, section 10.3.2): `021` is 21, the others are texts.
"""

import re
from collections.abc import Iterable

import yaml

# libyaml's parser is some ten times faster, its emitter three times; not every build has them.
_Fast: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FastDumper: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TAG = "tag:yaml.org,2002:"
_DEEPEST = 64

_CORE = (  # type, pattern, and the characters that such a value can begin with
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
)
_TAGS = ("!", *(_TAG + name for name in ("str", "map", "seq")))
_Known = dict[str, list[tuple[str, re.Pattern[str]]]]


class TooDeepError(yaml.YAMLError):
    """A text is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {_DEEPEST} levels deep")


def _resolvers(known: _Known, kept: Iterable[str]) -> _Known:
    """Put the types of the core schema before those of a loader or dumper that are `kept`."""
    tags = {_TAG + name for name in kept}
    made: _Known = {}
    for name, pattern, starts in _CORE:
        for start in starts:
            made.setdefault(start, []).append((_TAG + name, re.compile(f"(?:{pattern})$")))
    for start, found in known.items():
        made.setdefault(start, []).extend(one for one in found if one[0] in tags)
    return made


class _Loader(_Fast):  # type: ignore[misc, valid-type]
    """Load as `yaml.SafeLoader` does, by the core schema of YAML 1.2."""


class _Dumper(_FastDumper):  # type: ignore[misc, valid-type]
    """Dump as `yaml.SafeDumper` does, with quotes where either version would read another type."""


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text if base == 10 else text[2:], base)


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_Loader.yaml_implicit_resolvers = _resolvers(_Fast.yaml_implicit_resolvers, ["merge"])
_Loader.add_constructor(f"{_TAG}int", _integer)
_Loader.add_constructor(f"{_TAG}float", _number)
_Loader.add_constructor(f"{_TAG}merge", _Fast.construct_yaml_str)  # `<<` that is no key
_Dumper.yaml_implicit_resolvers = _resolvers(
    _FastDumper.yaml_implicit_resolvers,
    ["bool", "int", "float", "null", "timestamp", "merge", "value"],
)


def load_yaml(text: str) -> object:
    """Load the content of a YAML document, which may be a stranger's.

    Events are looked at first: libyaml makes them without recursion, but builds what they say by
    recursion, and a text that is nested very deeply ends the process. A few aliases can expand
    without limit. A tag is a claim that its value may break.

    Raises yaml.YAMLError (TooDeepError among them) and ValueError.
    """
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"the alias *{event.anchor} is not allowed here")
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in _TAGS:
            raise yaml.YAMLError(f"the tag {tag.replace(_TAG, '!!')} is not allowed here")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise TooDeepError
    return load_own_yaml(text)


def load_own_yaml(text: str) -> object:
    """Load a YAML document of ours, which may have aliases and nest as deeply as it likes.

    Raises yaml.YAMLError and ValueError.
    """
    return yaml.load(text, _Loader)


def dump_yaml(document: object) -> str:
    """Write a document as YAML as a person would: in its order, short lists on one line."""
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None,
        width=96,
        allow_unicode=True,
    )
    return text
