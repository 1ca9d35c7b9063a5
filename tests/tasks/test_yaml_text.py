"""YAML of strangers: text that would exhaust its reader is refused, wherever it is read."""

from pathlib import Path

import pytest
import yaml

from tasks.errors import RequestRefusedError
from tasks.model.packages import PackageError, load_package
from tasks.request.document import load_request
from tasks.yaml_text import TooDeepError, load_yaml

ALIASES = "a: &a [x, x]\nb: [*a, *a]\n"


def nested(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


def test_what_people_write_is_read() -> None:
    assert load_yaml("{start: 2012-01-01, layers: [a, 1, true, 0.5]}") == {
        "start": "2012-01-01",
        "layers": ["a", 1, True, 0.5],
    }


@pytest.mark.parametrize(
    "text",
    [nested(65), "- " * 65, "? " * 65, '{"a":' * 65 + "1" + "}" * 65],
    ids=["brackets", "dashes", "keys", "braces"],
)
def test_deep_nesting_is_refused_before_anything_is_built(text: str) -> None:
    with pytest.raises(TooDeepError):
        load_yaml(text)


def test_sixty_four_levels_are_read() -> None:
    assert load_yaml(nested(64))


@pytest.mark.parametrize("text", [nested(65), ALIASES], ids=["deep", "aliases"])
def test_every_reader_refuses_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)
    (tmp_path / "package.yaml").write_text(text)
    with pytest.raises(PackageError, match="is not YAML"):
        load_package(tmp_path)
    (tmp_path / "request.yaml").write_text(text)
    with pytest.raises(RequestRefusedError, match="is not YAML"):
        load_request(tmp_path / "request.yaml")
