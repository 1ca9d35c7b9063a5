"""Files of a folder that look like granules and are not listed: packed, or in small letters."""

import re
from collections.abc import Iterable

from modis.formats import GRANULE_SUFFIXES
from modis.granule_name import parse_granule_name

_ENDING = re.compile(
    rf"({'|'.join(map(re.escape, GRANULE_SUFFIXES))})(?P<packed>\.(gz|bz2|xz|zst|zip|z))?$"
)


def overlooked(names: Iterable[str], product: str) -> list[str]:
    """Say of which files a granule of a product could be had, and how; a sentence for each kind."""
    packed, small = list[str](), list[str]()
    for name in sorted(names):
        match = _ENDING.search(name.lower())
        if match is None or not name.lower().startswith(f"{product.lower()}."):
            continue
        if match["packed"]:
            packed.append(name)
        elif (parts := parse_granule_name(name)) is None or parts.product != product:
            small.append(name)
    found = []
    if packed:
        found.append(
            f"{_files(packed)} packed, and granules are read as HDF or netCDF: unpack what is "
            "packed."
        )
    if small:
        found.append(
            f"{_files(small)} not named as data centres name granules: that name is "
            f"{_renamed(small[0])}."
        )
    return found


def _files(names: list[str]) -> str:
    if len(names) == 1:
        return f"The file {names[0]} is"
    return f"{len(names):,} files, such as {names[0]}, are"


def _renamed(name: str) -> str:
    """Put the product and the A before the date into capitals, all else into small letters."""
    product, _, rest = name.partition(".")
    return f"{product.upper()}.{rest[:1].upper()}{rest[1:].lower()}"
