"""Granules as users have them: paths, folders, records, STAC items, what earthaccess returns."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from modis.granule_name import parse_granule_name
from reprojection.errors import ChoiceRefusedError

_SUFFIXES = (".hdf", ".h5", ".he5", ".nc", ".nc4")
_REMOTE = (
    "fetch them first, and give their paths, as `swathmill find --fetch` and "
    "earthaccess.download(results, folder) do"
)


def paths_of(granules: object) -> list[Path]:
    """Return the files of granules; a folder stands for the granules in it, by their names.

    Raises:
        ChoiceRefusedError: there is none, or one is no file of this machine.
    """
    found = list(_each(granules))
    if not found:
        raise ChoiceRefusedError(
            "no granule was given; name files, or a folder that has files with granules' names"
        )
    return list(dict.fromkeys(found))


def _each(granules: Any) -> Iterable[Path]:
    if isinstance(granules, str | os.PathLike):
        return _named(os.fspath(granules))
    if hasattr(granules, "assets"):
        return [_asset(granules)]
    if hasattr(granules, "data_links"):
        raise ChoiceRefusedError(f"granules of earthaccess are not on this machine: {_REMOTE}")
    if hasattr(granules, "read"):
        name = getattr(granules, "path", "") or getattr(granules, "name", "")
        if name and Path(name).is_file():
            return [Path(name)]
        raise ChoiceRefusedError(
            f"{granules!r} is an opened file, and HDF4 is read from files of this machine alone: "
            f"{_REMOTE}"
        )
    if isinstance(granules, Iterable) and not isinstance(granules, Mapping | bytes):
        return [path for one in granules for path in _each(one)]
    raise ChoiceRefusedError(
        f"{type(granules).__name__} is no granule: give paths, STAC items, or "
        " what earthaccess downloaded"
    )


def _named(text: str) -> list[Path]:
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        raise ChoiceRefusedError(f"{text} is not on this machine: {_REMOTE}")
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
    hrefs: Sequence[str] = [str(asset.href) for asset in item.assets.values()]
    for href in hrefs:
        if Path(urlsplit(href).path).suffix.lower() in _SUFFIXES:
            (path,) = _named(href)
            return path
    raise ChoiceRefusedError(
        f"STAC item {getattr(item, 'id', '')!r} has no asset in HDF or netCDF; its assets are: "
        f"{', '.join(hrefs) or 'none'}"
    )
