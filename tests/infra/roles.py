"""What the image of each role leaves out of requirements.lock: what none of its modules imports.

`python -m tests.infra.roles` writes `infra/roles.txt` anew, from the imports of the modules that a
role's program reaches and from what these packages need themselves. It names packages to leave
out, not to keep: what is new in the lock is in every image until somebody writes this file.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LEFT_OUT = ROOT / "infra" / "roles.txt"
OURS = frozenset(
    ("portal", "service_manager", "worker", "tasks", "reprojection", "archives", "modis")
) | {"processes", "swathmill"}
PROGRAMS = {
    "portal": "portal.__main__",
    "manager": "service_manager.__main__",
    "worker": "worker.__main__",
    "runner": "worker.pool.__main__",
}

# Of functions of the library and of commands, which no process of the service calls.
_LIBRARY = {"xarray", "odc", "zarr"}
# Only sites and polygons write tables.
NOT_CALLED = {
    "portal": _LIBRARY,
    "manager": _LIBRARY,
    "worker": _LIBRARY,
    "runner": _LIBRARY | {"pyarrow"},
}
_STORES = {"adlfs", "s3fs", "opentelemetry-exporter-otlp-proto-http"}
# What packages that stay require, and no process of the service imports: Celery's own command.
NOT_IMPORTED = {"click-repl", "prompt-toolkit", "wcwidth"}
# Programs that a role starts, which none of its modules imports.
SCRIPTS = {"worker": "worker/packages"}
# What is opened by name: stores of archives, by fsspec; parts of uvicorn; a reader of forms; what
# resolves the Python dependencies of uploads.
FOUND_BY_NAME = {
    "portal": _STORES | {"pip", "uvloop", "httptools", "python-multipart", "typer", "rich"},
    "manager": _STORES,
    "worker": _STORES,
    "runner": {"scipy"},
}
"""The portal's image has the command `swathmill`, too. Packages of others may import scipy
(docs/reductions.md); they run in the pool, where there is one."""


# What a package needs depends on the patch version, too; the first needs most.
_IMAGE = {"python_version": "3.11", "python_full_version": "3.11.0"}


def reached(program: str) -> dict[str, frozenset[str]]:
    """Return the modules of ours that a program may import, each with what it imports of others."""
    found: dict[str, frozenset[str]] = {}
    ahead = [program]
    while ahead:
        module = ahead.pop()
        if module in found or (path := _path(module)) is None:
            continue
        named = imported(path, module)
        found[module] = frozenset(one.partition(".")[0] for one in named) - OURS
        ahead += [one for one in named if one.partition(".")[0] in OURS]
        ahead.append(module.rpartition(".")[0])
    return found


def imported(path: Path, module: str) -> set[str]:
    """Return the names that a module imports, but for types alone."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{module} imports relatively")
            names |= {str(node.module), *(f"{node.module}.{one.name}" for one in node.names)}
    return names


def _path(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    some = (place / "__init__.py", place.with_suffix(".py"))
    return next((path for path in some if path.is_file()), None)


@cache
def locked() -> frozenset[str]:
    """Return the packages of requirements.lock."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    return frozenset(normal(one) for one in re.findall(r"^([\w.-]+)==", text, re.MULTILINE))


def normal(name: str) -> str:
    """Return the normal form of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _providers() -> dict[str, list[str]]:
    found = metadata.packages_distributions()
    return {top: sorted({normal(one) for one in names}) for top, names in found.items()}


def needed(role: str) -> frozenset[str]:
    """Return the packages that a role's modules import, with all that these depend on."""
    tops = frozenset[str]().union(*reached(PROGRAMS[role]).values())
    tops |= _of_scripts(role)
    tops = tops - sys.stdlib_module_names - NOT_CALLED[role]
    ahead = [name for top in tops for name in _providers().get(top, ())]
    ahead += FOUND_BY_NAME[role]
    found: set[str] = set()
    while ahead:
        name, _, extra = ahead.pop().partition("[")
        if f"{name}[{extra}" in found or name not in locked() - NOT_IMPORTED:
            continue
        found |= {name, f"{name}[{extra}"}
        ahead += _requires(name, extra.rstrip("]"))
    return frozenset(name for name in found if "[" not in name)


def _of_scripts(role: str) -> frozenset[str]:
    """Return what the programs import that a role starts by their files."""
    folder = SCRIPTS.get(role)
    files = sorted((ROOT / folder).glob("**/*.py")) if folder else []
    return frozenset(name.partition(".")[0] for path in files for name in imported(path, path.name))


def _requires(name: str, extra: str) -> Iterator[str]:
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # locked for another platform
        return
    for line in lines:
        one = Requirement(line)
        if one.marker is None or one.marker.evaluate(_IMAGE | {"extra": extra}):
            yield from (f"{normal(one.name)}[{more}]" for more in one.extras)
            yield normal(one.name)


def left_out(role: str) -> list[str]:
    """Return the packages that a role's image leaves out."""
    return sorted(locked() - needed(role))


def tops_of(packages: list[str]) -> frozenset[str]:
    """Return the names by which packages are imported, unless another package has them, too."""
    gone = set(packages)
    return frozenset(top for top, names in _providers().items() if gone.issuperset(names))


def text() -> str:
    """Return the file: a line for each role."""
    head = "# What the image of each role leaves out of requirements.lock (tests/infra/roles.py).\n"
    return head + "".join(f"{role}: {' '.join(left_out(role))}\n" for role in PROGRAMS)


if __name__ == "__main__":
    LEFT_OUT.write_text(text(), "utf-8")
