"""Make a folder of packages that holds what `pip install swathmill` brings, and nothing else.

`python tools/library_files.py FOLDER` links the files of this environment's packages that the
library's dependencies name, whichever extras are installed beside them.
"""

import os
import re
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def library() -> dict[str, Distribution]:
    """Find the packages that the library needs, by name, with what these need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found: dict[str, Distribution] = {}
    ahead = [Requirement(line) for line in project["dependencies"]]
    while ahead:
        wanted = ahead.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        found[name] = distribution(name)
        ahead += [Requirement(line) for line in found[name].requires or ()]
    return found


def link(packages: dict[str, Distribution], folder: Path) -> int:
    """Link the packages' files into the folder; return their size in bytes."""
    size = 0
    for package in packages.values():
        for file in package.files or ():
            if file.suffix == ".pyc" or ".." in file.parts:
                continue
            at = folder / file
            at.parent.mkdir(parents=True, exist_ok=True)
            os.link(file.locate(), at)
            size += at.stat().st_size
    return size


if __name__ == "__main__":
    packages = library()
    size = link(packages, Path(sys.argv[1]))
    sys.stdout.write(f"The library needs {len(packages)} packages of {size / 1e6:.0f} MB\n")
