"""Tests lie as the modules do: by the module of their name, or by the folder they tell of."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIRRORED = (
    "archives",
    "modis",
    "portal",
    "processes",
    "reprojection",
    "service_manager",
    "swathmill",
    "tasks",
    "worker",
)


def homes(package: Path) -> Mapping[str, set[Path]]:
    """The folders of a package that have a module of a name."""
    found: dict[str, set[Path]] = {}
    for path in package.rglob("*.py"):
        if "packages" in path.relative_to(package).parts and package.name == "worker":
            continue  # shipped packages are programs of their own
        found.setdefault(path.stem, set()).add(path.parent.relative_to(package))
    return found


def misplaced(package: str, root: Path) -> list[str]:
    """The test files that lie in another folder than the one module whose name they bear."""
    modules, tests = homes(root / package), root / "tests" / package
    wrong = []
    for path in sorted(tests.rglob("test_*.py")):
        if path.parent.name == "hostile":
            continue  # programs that a sandbox is to hold
        there, known = path.parent.relative_to(tests), modules.get(path.stem.removeprefix("test_"))
        if known is not None and there not in known:
            wrong.append(f"{path.relative_to(root)}: the module is in {sorted(map(str, known))}")
        if not (root / package / there).is_dir():
            wrong.append(f"{path.relative_to(root)}: {package} has no folder {there}")
    return wrong


@pytest.mark.parametrize("package", MIRRORED)
def test_a_folder_is_seen_at_one_glance(package: str) -> None:
    """Twenty modules are the most; then a part of them is a subject of its own."""
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    counts = {one: sum(path.stem != "__init__" for path in one.glob("*.py")) for one in folders}
    assert {one.relative_to(ROOT): n for one, n in counts.items() if n > 20} == {}


def test_no_test_runs_a_loop_in_its_own_thread() -> None:
    """Tests with a browser leave one there, and each test may follow them in its process."""
    work = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="running"):
        asyncio.run(work)
    work.close()


@pytest.mark.parametrize("package", MIRRORED)
def test_a_test_lies_where_its_module_does(package: str) -> None:
    assert misplaced(package, ROOT) == []


def told_of_one(package: str, root: Path) -> list[str]:
    """The stories, which lie above all folders of a package, that tell of one folder alone."""
    modules, found = homes(root / package), []
    for path in sorted((root / "tests" / package).glob("test_*.py")):
        text = path.read_text("utf-8")
        named = set(re.findall(rf"^from {package}([\w.]*) import", text, re.MULTILINE))
        folders = {one.split(".")[1] for one in named if one}
        if path.stem.removeprefix("test_") not in modules and "" not in named and len(folders) == 1:
            folder = folders.pop()
            if (root / "tests" / package / folder).is_dir():
                found.append(f"{path.relative_to(root)}: tells of {package}/{folder}")
    return found


@pytest.mark.parametrize("package", [one for one in MIRRORED if one != "portal"])
def test_a_story_tells_of_several_folders(package: str) -> None:
    """Tests of the portal ask by HTTP: what they import says nothing of their subject."""
    assert told_of_one(package, ROOT) == []


def test_a_story_of_one_folder_is_named(tmp_path: Path) -> None:
    for name in ("p/a/one.py", "p/b/two.py", "tests/p/a/test_one.py", "tests/p/b/test_two.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    story = tmp_path / "tests/p/test_story.py"
    story.write_text("from p.a.one import x\nfrom p.b.two import y\n", "utf-8")
    assert told_of_one("p", tmp_path) == []
    story.write_text("from p.a.one import x\nfrom tests.p.b.tool import y\n", "utf-8")
    assert told_of_one("p", tmp_path) == ["tests/p/test_story.py: tells of p/a"]


def test_what_lies_elsewhere_is_named(tmp_path: Path) -> None:
    for name in ("p/a/one.py", "p/b/two.py", "tests/p/a/test_one.py", "tests/p/a/test_story.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert misplaced("p", tmp_path) == []
    for name in ("tests/p/a/test_two.py", "tests/p/c/test_other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert misplaced("p", tmp_path) == [
        "tests/p/a/test_two.py: the module is in ['b']",
        "tests/p/c/test_other.py: p has no folder c",
    ]
