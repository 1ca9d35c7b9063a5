"""YAML as request documents are written in it: days stay text until the field is known.

YAML's own days raise an error without a place ("month must be in 1..12") where one is wrong.
"""

import yaml

# libyaml's parser is some ten times faster and does not recurse; not every build has it.
_Fast: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DAYS = "tag:yaml.org,2002:timestamp"


class Loader(_Fast):  # type: ignore[misc, valid-type]
    """As `yaml.CSafeLoader`, for documents."""


Loader.yaml_implicit_resolvers = {
    start: [(tag, pattern) for tag, pattern in known if tag != _DAYS]
    for start, known in _Fast.yaml_implicit_resolvers.items()
}


def load_yaml(text: str) -> object:
    """Load the content of a YAML document. Raises yaml.YAMLError and ValueError."""
    return yaml.load(text, Loader)
