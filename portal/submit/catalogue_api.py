"""The product catalogue as JSON."""

from typing import Annotated

from fastapi import Depends, Query

from portal.serving.identity import person
from portal.serving.late_routes import Router
from portal.submit import catalogue
from tasks.answers.answer import Answer

# Generated clients name the call after the first tag.
router = Router(prefix="/api", tags=["operations", "catalogue"])


class LayerAnswer(Answer):
    """A layer of a product: `continuous`, `class` or `bitfield`; of a band, which one it is."""

    name: str
    kind: str
    band: str = ""


class ProductAnswer(Answer):
    """A product of the catalogue in one collection; resolution in metres.

    A record, `record:NAME`, has no collection. `platform` names the sensors.
    """

    name: str
    collection: str
    title: str
    platform: str = ""
    geometry: str
    resolution: float
    layers: tuple[LayerAnswer, ...]


@router.get("/products", summary="The product catalogue", dependencies=[Depends(person)])
def products(
    q: Annotated[str, Query(description="Words to search for: a subject, product or layer.")] = "",
) -> list[ProductAnswer]:
    """List the products that match a search, or all; products not listed work too, by name."""
    return [
        ProductAnswer(
            name=item.name,
            collection=item.collection,
            title=item.title,
            platform=item.platform,
            geometry=item.geometry,
            resolution=item.resolution,
            layers=tuple(
                LayerAnswer(name=one.name, kind=one.kind, band=one.band) for one in item.layers
            ),
        )
        for collections in catalogue.search(q[:200])
        for item in collections
    ]
