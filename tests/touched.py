"""Tell the tests under which something has changed, by what each imports, through other files too.

A test whose imports lead to no changed file runs the same code as before.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_WHOLE_TREE = ("tests/infra/", "tests/mutants/", "tests/test_")
"""Tests that read files of the tree by their paths."""


def touched(tree: Path, changed: Iterable[str]) -> list[str]:
    """List the test files of a tree that a change of files may concern, by path.

    A file that is not Python concerns all of its package.
    """
    modules = {_name(path.relative_to(tree)): path for path in _python(tree)}
    users: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        for used in {*_imported(path, modules), *_fixtures(path, tree)}:
            users[used].add(name)
    paths = map(Path, changed)
    reached = {_name(one) if one.suffix == ".py" else one.parts[0] for one in paths}
    left = list(reached)
    while left:
        found = users[left.pop()] - reached
        reached |= found
        left += found
    tests = (modules[name].relative_to(tree).as_posix() for name in modules)
    return sorted(
        one
        for one in tests
        if Path(one).name.startswith("test_")
        and (one.startswith(_WHOLE_TREE) or _name(Path(one)) in reached)
    )


def _python(tree: Path) -> Iterator[Path]:
    for top in tree.iterdir():
        if top.is_dir() and not top.name.startswith((".", "build", "node_modules")):
            yield from top.rglob("*.py")


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports, also within functions, and the packages around."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            within = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
            yield from (one for one in within if one in modules)


def _fixtures(path: Path, tree: Path) -> Iterator[str]:
    """Yield the modules of fixtures that pytest gives to a test by itself."""
    for folder in path.relative_to(tree).parents:
        if (tree / folder / "conftest.py").exists() and path.name != "conftest.py":
            yield _name(folder / "conftest.py")
