"""YAML of strangers: text that would exhaust its reader is refused, wherever it is read."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from modis import yaml_text
from modis.yaml_text import TooDeepError, dump_yaml, load_yaml
from tasks.errors import RequestRefusedError
from tasks.packages.packages import PackageError, load_package
from tasks.request.request_file import load_request

ALIASES = "a: &a [x, x]\nb: [*a, *a]\n"


def nested(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


def test_lists_nest_so_many_levels() -> None:
    assert yaml_text._DEEPEST == 64
    assert load_yaml(nested(64))
    with pytest.raises(TooDeepError, match="it is nested more than 64 levels deep"):
        load_yaml(nested(65))


def test_what_people_write_is_read() -> None:
    assert load_yaml("{start: 2012-01-01, layers: [a, 1, true, 0.5]}") == {
        "start": "2012-01-01",
        "layers": ["a", 1, True, 0.5],
    }


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("021", 21),
        ("051", 51),
        ("089", 89),
        ("-0", 0),
        ("+5", 5),
        ("0o17", 15),
        ("0x1F", 31),
        ("6.10", 6.1),
        (".5", 0.5),
        ("1e3", 1000.0),
        (".inf", float("inf")),
        ("1:30", "1:30"),
        ("1:1.5", "1:1.5"),
        (":".join(["1"] * 20_000), ":".join(["1"] * 20_000)),
        ("1_000", "1_000"),
        ("no", "no"),
        ("Off", "Off"),
        ("y", "y"),
        ("TRUE", True),
        ("2012-01-01", "2012-01-01"),
        ("2012-13-01 25:00:00", "2012-13-01 25:00:00"),
        ("~", None),
        ("", None),
        ("<<", "<<"),
        ("=", "="),
        ("'021'", "021"),
    ],
)
def test_plain_values_are_those_of_the_core_schema_of_version_1_2(
    written: str, meant: object
) -> None:
    found = load_yaml(f"a: {written}")
    assert found == {"a": meant}
    assert type(found["a"]) is type(meant)


_VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    st.from_regex(
        r"[-+]?[0-9_:.]{1,9}(e[0-9])?|0[ox][0-9a-f]{1,4}|(yes|no|on|off|y|n|null|~)",
        fullmatch=True,
    ),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
)


@given(st.dictionaries(st.text("abc", min_size=1), _VALUES))
def test_what_is_written_is_read_as_it_was(document: dict[str, object]) -> None:
    assert load_yaml(dump_yaml(document)) == document


@given(st.text("\n -:[]{}!&*#|>'\"%@`,?~<=.0123456789abeinotx_"))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(yaml.YAMLError, ValueError):
        load_yaml(text)


@pytest.mark.parametrize("text", ["a: !!bool maybe", "a: !!timestamp never", "a: !!int x", "!x 1"])
def test_a_tag_is_no_claim_that_a_value_can_break(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"the tag !.* is not allowed here"):
        load_yaml(text)
    assert load_yaml("a: !!str 021") == {"a": "021"}


def test_all_yaml_is_loaded_here() -> None:
    root = Path(__file__).parents[2]
    folders = [path.parent for path in root.glob("*/__init__.py") if path.parent.name != "tests"]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    loading = re.compile(r"yaml\.(safe_|full_|unsafe_)?load|SafeLoader|ruamel")
    found = [path for path in files if loading.search(path.read_text("utf-8"))]
    assert [path.relative_to(root).as_posix() for path in found] == ["modis/yaml_text.py"]


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
