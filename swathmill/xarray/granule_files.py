"""Granules as users have them: paths, folders, what a search found, STAC items, opened files."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from modis.granule_name import parse_granule_name
from reprojection.errors import ChoiceRefusedError
from swathmill.granule_search import FoundGranules

_SUFFIXES = (".hdf", ".h5", ".he5", ".nc", ".nc4")
_ELSEWHERE = "is not on this machine: fetch it, and give its path"


def paths_of(granules: object, folder: Path | None = None) -> list[Path]:
    """Return the files of granules; a folder of granules stands for those in it, by their names.

    What is not on this machine is fetched into `folder`: what `swathmill.search` found by its
    sources, results of earthaccess by its login.

    Raises:
        ChoiceRefusedError: there is none, or one is not on this machine and cannot be fetched.
        ArchiveError: a source does not give a granule.
    """
    every = list(_flat(granules))
    results = [one for one in every if hasattr(one, "data_links")]
    found = [path for one in every if one not in results for path in _paths(one, folder)]
    found += _downloaded(results, folder)
    if not found:
        raise ChoiceRefusedError(
            "no granule was given; name files, or a folder that has files with granules' names"
        )
    return list(dict.fromkeys(found))


def _flat(granules: Any) -> Iterator[Any]:
    """Yield one granule, or one collection that knows its files, after the other."""
    single = isinstance(granules, str | os.PathLike | FoundGranules) or any(
        hasattr(granules, name) for name in ("assets", "data_links", "read")
    )
    if not single and isinstance(granules, Iterable) and not isinstance(granules, Mapping | bytes):
        for one in granules:
            yield from _flat(one)
    else:
        yield granules


def _paths(granule: Any, folder: Path | None) -> list[Path]:
    if isinstance(granule, FoundGranules):
        return granule.paths(folder)
    if isinstance(granule, str | os.PathLike):
        return _named(os.fspath(granule))
    if hasattr(granule, "assets"):
        return [_asset(granule)]
    if hasattr(granule, "read"):
        return [_copied(granule, folder)]
    raise ChoiceRefusedError(
        f"{type(granule).__name__} is no granule: give paths, what `swathmill.search` found, STAC "
        "items, or what earthaccess found, opened or downloaded"
    )


def _named(text: str) -> list[Path]:
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        raise ChoiceRefusedError(f"{text} {_ELSEWHERE}")
    path = Path(text).expanduser()
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if _is_granule(one))
    return [path]


def _is_granule(path: Path) -> bool:
    return (
        path.suffix.lower() in _SUFFIXES
        and parse_granule_name(path.name) is not None
        and path.is_file()
    )


def _asset(item: Any) -> Path:
    """Return the granule's file of a STAC item: of its assets the one in a granule's format."""
    hrefs = [str(asset.href) for asset in item.assets.values()]
    for href in hrefs:
        if Path(urlsplit(href).path).suffix.lower() in _SUFFIXES:
            return _named(href)[0]
    raise ChoiceRefusedError(
        f"STAC item {getattr(item, 'id', '')!r} has no asset in HDF or netCDF; its assets are: "
        f"{', '.join(hrefs) or 'none'}"
    )


def _copied(opened: Any, folder: Path | None) -> Path:
    """Return the file of an opened one; one that is elsewhere is copied into the folder."""
    name = str(getattr(opened, "path", "") or getattr(opened, "name", ""))
    if name and Path(name).is_file():
        return Path(name)
    if folder is None or not name:
        raise ChoiceRefusedError(
            f"{opened!r} is an opened file, and HDF4 is read from files of this machine alone: "
            "name a folder to copy it into, by folder=..."
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name.rsplit("/", 1)[-1]
    if not path.exists():
        partial = path.with_name(f"{path.name}.partial")
        with partial.open("wb") as file:
            shutil.copyfileobj(opened, file)
        partial.replace(path)
    return path


def _downloaded(results: list[Any], folder: Path | None) -> list[Path]:
    """Fetch results of earthaccess by earthaccess, whose login counts."""
    if not results:
        return []
    if folder is None:
        raise ChoiceRefusedError(
            "results of earthaccess are not on this machine: name a folder to fetch them into, by "
            "folder=..., or give what earthaccess.download(results, folder) returns"
        )
    import earthaccess

    folder.mkdir(parents=True, exist_ok=True)
    return [Path(path) for path in earthaccess.download(results, str(folder))]
