"""Products and layers as the product list shows them."""

from dataclasses import dataclass

from modis.collection import Collection
from portal.serving.quantities import unit_text
from portal.submit.layer_words import words_of


@dataclass(frozen=True, kw_only=True)
class LayerItem:
    """A layer to tick.

    `kind` says whether values may be blended, `band` which band of a layer it is. `title` and
    `units` are empty where the catalogue does not state them; `resolution` is in metres, None if
    unknown. `is_quality` marks layers that say how, when or how well a pixel was seen.
    """

    name: str
    kind: str
    band: str = ""
    title: str = ""
    units: str = ""
    resolution: float | None = None
    is_quality: bool = False

    @property
    def about(self) -> str:
        """Title, band, kind, unit and resolution, as far as they are known: "class, 500 m"."""
        size = self.resolution
        title, units = words_of(self.name)
        parts = (
            self.title or title,
            self.band,
            {"class": "classes", "bitfield": "bit fields"}.get(self.kind, ""),
            unit_text(self.units or units),
            "" if size is None else f"{size / 1000:g} km" if size >= 1000 else f"{size:g} m",
        )
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class ProductItem:
    """A product in one collection, as the product list shows it."""

    name: str
    collection: Collection
    title: str
    platform: str
    keywords: str
    geometry: str
    resolution: float
    period: int
    layers: tuple[LayerItem, ...]
    has_patterns: bool

    @property
    def layer_count(self) -> int:
        """Number of layers that can be ticked."""
        return len(self.layers)
