"""YAML as people write it in requests and packages: bounded, and days stay text.

YAML's own days raise an error without a place ("month must be in 1..12") where one is wrong.
"""

import yaml

# libyaml's parser is some ten times faster, its emitter three times; not every build has them.
_Fast: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FastDumper: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_DAYS = "tag:yaml.org,2002:timestamp"
_DEEPEST = 64


class TooDeepError(yaml.YAMLError):
    """A text is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {_DEEPEST} levels deep")


class _Loader(_Fast):  # type: ignore[misc, valid-type]
    """Load as `yaml.SafeLoader` does, except days."""


_Loader.yaml_implicit_resolvers = {
    start: [(tag, pattern) for tag, pattern in known if tag != _DAYS]
    for start, known in _Fast.yaml_implicit_resolvers.items()
}


def load_yaml(text: str) -> object:
    """Load the content of a YAML document, which may be a stranger's.

    Events are looked at first: libyaml makes them without recursion, but builds what they say by
    recursion, and a text that is nested very deeply ends the process. A few aliases can expand
    without limit.

    Raises yaml.YAMLError (TooDeepError among them) and ValueError.
    """
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"the alias *{event.anchor} is not allowed here")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise TooDeepError
    return yaml.load(text, _Loader)


def dump_yaml(document: object) -> str:
    """Write a document as YAML as a person would: in its order, short lists on one line."""
    text: str = yaml.dump(
        document,
        Dumper=_FastDumper,
        sort_keys=False,
        default_flow_style=None,
        width=96,
        allow_unicode=True,
    )
    return text
