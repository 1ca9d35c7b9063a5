"""Tell the STAC items among a request's results: each lies beside its raster, under its name."""

from collections.abc import Iterable


def without_items(paths: Iterable[str]) -> list[str]:
    """Leave out the items that describe rasters of the same name: people count rasters."""
    every = list(paths)
    rasters = {path.removesuffix(".tif") for path in every if path.endswith(".tif")}
    return [
        path
        for path in every
        if not (path.endswith(".json") and path.removesuffix(".json") in rasters)
    ]
