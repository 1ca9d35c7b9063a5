"""Everything a reader can be asked of one granule, as one call for a process of its own."""

from pathlib import Path

from reprojection.granule import open_granule
from reprojection.inspect import report


def read_everything(path: Path) -> str:
    """Read all layers, and where the swath layers lie; says how many there were."""
    with open_granule(path) as granule:
        found = report(granule)
        for layer in list(granule.layers.values())[:4]:
            if layer.swath and not layer.bands:
                granule.geolocation(layer)
    return f"{len(found.layers)} layers"
