"""Whether the granules that a raster was made of are at hand, by name and digest."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from reprojection.read.description import SourceGranule


def lacking(granules: Sequence[SourceGranule], found: Mapping[str, Path]) -> str:
    """Tell which granules are not at hand, and what to do; "" if all are.

    A file that has a granule's name and other bytes than the raster was made of is not the granule.
    """
    missing = [one.name for one in granules if one.name not in found]
    if missing:
        return f"to see the source pixel, name where {', '.join(missing)} can be found"
    for one in granules:
        digest = _sha256(found[one.name]) if one.sha256 else ""
        if digest != one.sha256:
            return (
                f"{found[one.name]} has SHA-256 {digest}, and the raster was made of {one.sha256}; "
                "name where that one can be found"
            )
    return ""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
