"""What a file is made of: its granules by name and digest, its packages by content hash."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from reprojection.read.description import SourceGranule
from reprojection.read.lineage import StepRecord
from swathmill.errors import ArgumentError
from tasks.packages.packages import MANIFEST, PackageError, pack
from worker.phases.package_files import shipped_packages

_MOST_NAMED = 10
_ARCHIVES = (".tar",)


class CannotRemakeError(ArgumentError):
    """A file cannot be made again here: what is missing, and what to do."""


def find_granules(
    wanted: Sequence[SourceGranule], places: Iterable[Path]
) -> Mapping[SourceGranule, Path]:
    """Find granules by name and digest in files and folders; by name where there is no digest.

    Raises:
        CannotRemakeError: one is absent, or has another content than the file was made of.
    """
    by_name: dict[str, list[Path]] = {one.name: [] for one in wanted}
    for place in places:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.name in by_name and path.is_file():
                by_name[path.name].append(path)
    found: dict[SourceGranule, Path] = {}
    problems: list[str] = []
    for one in wanted:
        there = by_name[one.name]
        same = next((path for path in there if one.sha256 in ("", _sha256(path))), None)
        if same is not None:
            found[one] = same
        elif there:
            problems.append(
                f"{there[0]} has SHA-256 {_sha256(there[0])}, and the file was made of {one.sha256}"
            )
        else:
            problems.append(f"{one.name} is not there")
    if problems:
        named = "; ".join(problems[:_MOST_NAMED])
        more = len(problems) - _MOST_NAMED
        raise CannotRemakeError(
            f"{len(problems)} of {len(wanted)} granules are missing: {named}"
            + (f"; and {more} more." if more > 0 else "."),
            "Name with --granules where they lie, as they were when the file was made.",
        )
    return found


def find_packages(steps: Sequence[StepRecord], places: Iterable[Path]) -> Mapping[str, bytes]:
    """Find the archives of packages by the SHA-256 of their content.

    Raises:
        CannotRemakeError: one is absent, or is there with another content only.
    """
    wanted = {step.sha256: step for step in steps}
    ours = shipped_packages()
    found = {digest: ours[digest] for digest in wanted if digest in ours}
    others: dict[str, list[str]] = {}
    for path, name, data in _archives(places) if len(found) < len(wanted) else ():
        digest = hashlib.sha256(data).hexdigest()
        if digest in wanted:
            found.setdefault(digest, data)
        others.setdefault(name, []).append(f"{path} ({digest})")
    for digest, step in wanted.items():
        if digest not in found:
            there = others.get(step.package, [])
            but = f" There is {', '.join(there)}." if there else ""
            raise CannotRemakeError(
                f"the package {step.package} {step.version} with content hash {digest} is not "
                f"there.{but}",
                "Name with --packages the package as it was when the file was made.",
            )
    return found


def _archives(places: Iterable[Path]) -> Iterable[tuple[Path, str, bytes]]:
    """Yield the packages in places: path, name, and archive."""
    for place in places:
        if place.is_file():
            yield place, place.stem, place.read_bytes()
            continue
        for path in sorted(place.rglob("*")):
            if path.suffix in _ARCHIVES and path.is_file():
                yield path, path.stem, path.read_bytes()
            elif path.name == MANIFEST:
                try:
                    yield path.parent, path.parent.name, pack(path.parent).data
                except PackageError:
                    continue  # it is none that was run


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
