"""Tell the layers that are data from those that say how, when or how well a pixel was seen."""

import re

from reprojection.catalogue import LayerEntry, Product
from reprojection.catalogue.layers import LayerKind

_ABOUT_PIXELS = re.compile(
    r"(^|[^a-z])(q[ac]|quality|reliability|angle?|pnt|gflags|flags?|zenith|azimuth|latitude"
    r"|longitude|std ?dev|uncertainty|number of|day of|scan start time|view time)([^a-z]|$)"
)


def layers_about_pixels(product: Product) -> frozenset[str]:
    """Return the names of a product's layers that are bit fields, or judge or describe pixels."""
    entries = {name: product.layer(name) or LayerEntry() for name in product.layer_names}
    judging = {entry.qa for entry in entries.values()}
    return frozenset(
        name
        for name, entry in entries.items()
        if entry.kind is LayerKind.BITFIELD or name in judging or _describes(name)
    )


def _describes(name: str) -> bool:
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()
    return _ABOUT_PIXELS.search(plain) is not None
