"""Docstrings say what a function does, and name what there is."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = (
    "archives",
    "bench",
    "modis",
    "portal",
    "processes",
    "reprojection",
    "service_manager",
    "swathmill",
    "tasks",
    "tests",
    "tools",
    "worker",
)
ASKED = re.compile(r'\) -> [^\n]+:\n +"""(How|What|When|Where|Whether|Which|Who|Why)\b[^\n]*')
DOTTED = re.compile(rf"`(({'|'.join(HOUSE)})(?:\.\w+)+)`")
SHORT = re.compile(r"\{[\w.]*\bcollection\}|\{\{[^}]*\bcollection(?:\.dotted)?(?:\|\w+)* *\}\}")
"""A collection put into a text as it is stored, as 5, not as granules have it, as 005."""

STORED = {
    "archives/web_registry.py": "the setting is shown as it was typed",
    "modis/granule_name.py": "near real time, whose name is the catalogue's",
    "portal/templates/found.html": "a query, which takes any spelling",
    "portal/standards/stac_items.py": "an address, of a collection of STAC",
    "tasks/bag/site_specs.py": "classes, which are identities, and words, which are padded",
    "tasks/bag/spec.py": "classes, which are identities, and words, which are padded",
}
FILES = re.compile(r"\.(py|md|json|yaml|sh|toml)$")


def texts(package: str) -> Iterator[tuple[Path, str]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path.relative_to(ROOT), path.read_text("utf-8")


def exists(dotted: str) -> bool:
    """Tell whether a module, or a name at its top or in a class there, is there."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:count])
        if module.is_dir():
            return count == len(parts) or named(module / "__init__.py", parts[count:])
        if module.with_suffix(".py").is_file():
            return named(module.with_suffix(".py"), parts[count:])
    return False


def named(module: Path, parts: list[str]) -> bool:
    text = module.read_text("utf-8") if module.is_file() else ""
    return all(re.search(rf"\b{part}\b", text) for part in parts)


@pytest.mark.parametrize("package", [one for one in HOUSE if one != "tests"])
def test_no_function_is_described_by_a_question(package: str) -> None:
    asked = [
        f"{path}: {found[0]}" for path, text in texts(package) for found in ASKED.finditer(text)
    ]
    assert not asked, "begin with a verb, of a property with a noun"


@pytest.mark.parametrize("package", [one for one in HOUSE if one != "tests"])
def test_dotted_names_are_there(package: str) -> None:
    gone = [
        f"{path}: {found[0]}"
        for path, text in texts(package)
        for found in DOTTED.finditer(text)
        if not FILES.search(found[1]) and not exists(found[1])
    ]
    assert not gone


def test_collections_are_written_as_granules_have_them() -> None:
    """`modis.collection.versioned` makes such a name, `Collection.padded` the number."""
    short = {}
    for package in (one for one in HOUSE if one not in ("bench", "tests", "tools")):
        for kind in ("*.py", "*.html"):
            for path in sorted((ROOT / package).rglob(kind)):
                if found := SHORT.findall(path.read_text("utf-8")):
                    short[path.relative_to(ROOT).as_posix()] = found
    assert {path: found for path, found in short.items() if path not in STORED} == {}
    assert set(STORED) <= set(short), "none of these is needed any more"


@pytest.mark.parametrize(
    "text",
    [
        'f"{one.name}.{one.collection}"',
        "{{ from.product }} collection {{ from.collection }}",
        "{{ item.name }} {{ item.collection.dotted }}",
        "{{ item.collection|lower }}",
    ],
)
def test_a_short_collection_in_a_text_is_seen(text: str) -> None:
    assert SHORT.search(text)


def test_questions_are_seen() -> None:
    assert ASKED.search('def is_so(\n    self,\n) -> bool:\n    """Whether it is."""')


def test_a_name_that_is_gone_is_seen() -> None:
    assert exists("tasks.storage.codec.Codec.dump")
    assert not exists("tasks.storage.codec.Gone")
    assert not exists("tasks.keys.canonical")
