"""What a request's page shows of values at sites: the pictures of each layer, and the tables."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

TABLE = "sites/sites.csv"
_COMPARISON = "sites/comparison."
_PICTURE = re.compile(r"sites/(?P<layer>[^~]+)(?:~\d+)?\.png")


@dataclass(frozen=True, kw_only=True)
class SiteSeries:
    """The pictures of one layer's series, the first with the first sites."""

    layer: str
    pictures: tuple[str, ...]


def site_series(paths: Iterable[str]) -> tuple[SiteSeries, ...]:
    """Find the pictures of series at sites among the paths of results, by layer."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths, key=lambda path: (len(path), path)):
        picture = _PICTURE.fullmatch(path)
        if picture is not None and not path.startswith(_COMPARISON):
            found.setdefault(picture["layer"], []).append(path)
    return tuple(
        SiteSeries(layer=layer, pictures=tuple(pictures))
        for layer, pictures in sorted(found.items())
    )
