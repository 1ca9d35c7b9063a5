"""The page that shows a folder's granules on a map."""

from datetime import date

from fastapi import Response
from fastapi.responses import JSONResponse

from modis.collection import parted, versioned
from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal
from portal.serving.problems import NotFoundError
from portal.viewer.shelf import place_of, shelf_of
from portal.views.state import Chosen, Views
from portal.views.wmts import WHOLE_EARTH
from reprojection.resampling import TRAITS
from tasks.holdings import holdings

router = Router(include_in_schema=False)


@router.get("/")
def page(caller: Caller, portal: CurrentPortal, product: str = "") -> Response:
    """Show the map of a product, of the first one where none is named."""
    known = holdings.read(portal.runtime.store)[0]
    every = known.products if known is not None else ()
    held = {versioned(one.name, one.collection): one for one in every}
    chosen = held.get(versioned(*parted(product)) if product else next(iter(held), ""))
    if chosen is None:
        raise NotFoundError(f"The folder has no {product}.", f"It has {', '.join(held)}.")
    return portal.pages.page(
        "viewer.html",
        caller,
        "",
        200,
        products=list(held),
        shelf=shelf_of(chosen),
        methods=sorted(TRAITS),
        folder=portal.settings.archive,
    )


@router.get("/place.json")
def place(caller: Caller, portal: CurrentPortal, product: str, day: date) -> JSONResponse:
    """Say where a product's granules of a day lie: a box of degrees."""
    del caller
    name, collection = parted(product)
    chosen = Chosen(product=name, collection=collection, day=day)
    records = portal.state(Views).granules(chosen, WHOLE_EARTH, 10**6)
    box = place_of([one for one in records if one.product == name])
    return JSONResponse({"bbox": [box.west, box.south, box.east, box.north]})
