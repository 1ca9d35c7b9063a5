"""The page to submit a request: the form, its checks while it is filled in, previews, documents."""

import datetime as dt
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from portal.serving.access import load_for, read_for
from portal.serving.documents import decode, read_form_data
from portal.serving.identity import Caller, person
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import PortalError
from portal.serving.tokens import Person
from portal.submit import catalogue, record_items
from portal.submit.archive_lines import archive_slots, lacks_of
from portal.submit.estimates import Estimate, estimate
from portal.submit.field_problems import Problems, problems_of, slots_of
from portal.submit.forms import (
    STANDING,
    STEPS,
    WINDOWS,
    Form,
    ProductCard,
    form_of,
    new_card,
    quality_of,
    read_form,
    request_of,
    request_yaml,
)
from portal.submit.parameter_fields import parameter_fields
from portal.submit.product_items import ProductItem
from portal.submit.state import Submit
from portal.submit.steps import steps_of
from portal.submit.submissions import (
    accept,
    check_for,
    refusal,
    resent,
)
from reprojection.resampling import TRAITS
from tasks.accounts.group_table import GroupTable
from tasks.bag.model import RequestState
from tasks.errors import RequestRefusedError
from tasks.holdings.held import check_held, doubts
from tasks.mail_address import is_address
from tasks.packages.rasters import is_raster
from tasks.request.admission import check
from tasks.request.document import Request as RequestDocument
from tasks.request.document import dump_request, parse_request
from tasks.request.records.part import is_record
from tasks.request.resolved import ResolvedRequest
from tasks.requests import request_operations

router = Router(include_in_schema=False)


async def _form_data(request: Request) -> FormData:
    return await read_form_data(request)


Sent = Annotated[FormData, Depends(_form_data)]

KNOWN_CRS = (
    ("EPSG:4326", "Longitude and latitude, WGS 84 (degrees)"),
    ("EPSG:3857", "Web Mercator (metres)"),
    ("EPSG:3035", "Europe, equal area (metres)"),
    ("EPSG:6933", "The Earth, cylindrical equal area (metres)"),
    ("EPSG:5070", "Contiguous United States, equal area (metres)"),
    ("EPSG:3413", "Arctic, polar stereographic (metres)"),
    ("EPSG:3031", "Antarctic, polar stereographic (metres)"),
    ("EPSG:27700", "British National Grid (metres)"),
)


@dataclass(frozen=True, kw_only=True)
class FileRead:
    """How a region differs from the file that it was read from, or why the file gives none."""

    notes: tuple[str, ...] = ()
    wrong: str = ""


@router.get("/new")
def new(caller: Caller, portal: CurrentPortal, again: str = "", package: str = "") -> Response:
    """Show an empty form, or the form that would submit a request again, or run a package."""
    address = caller.owner if is_address(caller.owner) else ""
    if not again:
        return new_page(portal, caller, Form(package=package[:400], notify=address))
    row = read_for(portal.runtime, caller, again)
    form = form_of(request_operations.document_of(row))
    if caller.owner == row.owner:
        return new_page(portal, caller, replace(form, labels=", ".join(row.labels)))
    return new_page(
        portal, caller, replace(form, labels="", group="", standing="0", notify=address)
    )


@router.post("/new")
def submit(data: Sent, caller: Caller, portal: CurrentPortal) -> Response:
    """Submit the form's request, or show the form again with the errors at their fields."""
    form = read_form(data)
    try:
        made = request_of(form)
        key = _key(form, made)
        row = resent(portal.runtime, caller, made, key)
        if row is None:
            row = accept(portal.runtime, caller, _checked(form, caller, portal), key=key)
    except RequestRefusedError as error:
        return new_page(portal, caller, form, problems=problems_of(error, form), status=422)
    return RedirectResponse(f"/requests/{row.id}", 303)


def _key(form: Form, made: RequestDocument) -> str:
    """Derive a form's idempotency key: a resent form makes one request, a changed one another."""
    document = hashlib.sha256(dump_request(made).encode()).hexdigest()
    return f"form-{form.submission}-{document}"


@router.get("/new/parameters")
def parameters_part(caller: Caller, portal: CurrentPortal, package: str = "") -> Response:
    """Show the fields of a package's parameters."""
    found = parameter_fields(portal, caller, Form(package=package[:400]))
    return portal.pages.part("parameters.html", parameters=found)


@router.post("/new/check")
def check_form(data: Sent, caller: Caller, portal: CurrentPortal) -> Response:
    """Show what the form means so far.

    This includes the rasters it would make, the document, what is wrong and what is still to do.
    """
    form = read_form(data)
    shown: dict[str, object] = {"estimate": None, "yaml": "", "waiting": ()}
    kept = portal.state(Submit)
    problems, held = Problems(), kept.holdings.known()
    every = problems
    try:
        resolved = kept.names.resolved(caller, request_of(form))
        shown = _summary(portal, resolved)
        check(resolved, portal.settings, kept.names.library.packages_of(caller.owner))
        if held is not None and data.get("tried"):
            check_held(resolved, held)
    except RequestRefusedError as error:
        every = problems = problems_of(error, form)
        shown["waiting"] = problems.waiting()
        if not data.get("tried"):  # before the form is sent, an empty field is no error
            problems = problems.wrong()
    return portal.pages.part(
        "checked.html",
        problems=problems,
        course=steps_of(every),
        slots=slots_of(form),
        archive=lacks_of(form, held),
        archive_slots=archive_slots(form),
        form=form,
        quality=quality_of(form),
        **shown,
    )


def _checked(form: Form, caller: Person, portal: Portal) -> RequestDocument:
    """Build the form's request if it can be worked on; raise RequestRefusedError otherwise."""
    made = request_of(form)
    check_for(portal, caller, made)
    return made


@router.post("/new/preview")
def preview(data: Sent, caller: Caller, portal: CurrentPortal) -> Response:
    """Start a dry run of the form's request."""
    form = read_form(data)
    try:
        made = _checked(form, caller, portal)
    except RequestRefusedError as error:
        problems = problems_of(error, form)
        return portal.pages.part("preview.html", row=None, problems=problems, slots=slots_of(form))
    row = accept(portal.runtime, caller, made, dry_run=True)
    return portal.pages.part("preview.html", row=row, problems=Problems(), slots=slots_of(form))


@router.get("/previews/{request_id}")
def preview_state(request_id: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Show the state of a dry run, and its counts when planning has made them."""
    row = load_for(portal.runtime, caller, request_id)
    problems = Problems()
    # The form on the page may have changed since, so its cards are not known here.
    form = replace(form_of(request_operations.document_of(row)), products=())
    if row.state is RequestState.REFUSED:
        problems = problems_of(refusal(row), form)
    form_again = f"/new?again={row.id}"
    return portal.pages.part(
        "preview.html", form_again, row=row, problems=problems, slots=slots_of(form)
    )


@router.post("/new/document")
def load_document(data: Sent, caller: Caller, portal: CurrentPortal) -> Response:
    """Fill in the form from a request document."""
    text = str(data.get("document", ""))
    try:
        made = parse_request(decode(text.encode()))
    except RequestRefusedError as error:
        wrong = (error, *error.also)
        return new_page(portal, caller, Form(), document=text, wrong=wrong, status=422)
    return new_page(portal, caller, form_of(made))


@router.get("/new/products", dependencies=[Depends(person)])
def products(portal: CurrentPortal, q: str = "", every: bool = False) -> Response:
    """Show the products that a search finds, or all; without words, show how to search."""
    held = portal.state(Submit).holdings.known()
    return portal.pages.part(
        "found.html",
        found=catalogue.search(q[:200], held) if q.strip() or every else None,
        known=catalogue.product_count(),
        counted=True,
        words=q.strip()[:200],
        held=held,
        archive_text=record_items.archive_text,
        records=record_items,
    )


@router.get("/new/product")
def product(
    caller: Caller,
    portal: CurrentPortal,
    name: str = "",
    collection: str = "",
    other_name: str = "",
    other_collection: str = "",
    words: str = "",
) -> Response:
    """Render a card for one more product; the layers that `words` searched for are ticked."""
    name, collection = name or other_name, collection or other_collection
    if is_raster(name):
        card = new_card(name[:400], "")
        known = portal.state(Submit).names.library.raster(caller.owner, card.name)
        if known is not None and not known.days:
            card = replace(card, use="static")
    elif name.strip() and (collection.strip() or is_record(name)):
        card = new_card(name[:48], collection[:10])
        item = catalogue.find(card.name, card.collection)
        card = replace(card, layers=catalogue.sought(item, words[:200]) if item else ())
    else:
        raise PortalError("A product needs a short name and a collection.", "Fill both in.")
    return portal.pages.part(
        "product.html",
        card=card,
        known_of=partial(_known, portal, caller),
        catalogue=catalogue,
        held=portal.state(Submit).holdings.known(),
        archive_text=record_items.archive_text,
        records=record_items,
        problems=Problems(),
    )


def _known(portal: Portal, caller: Person, card: ProductCard) -> ProductItem | None:
    """Return what is known of a card's product: by the catalogue, or of the caller's raster."""
    if not is_raster(card.name):
        return catalogue.find(card.name, card.collection)
    raster = portal.state(Submit).names.library.raster(caller.owner, card.name)
    return catalogue.item_of_raster(raster, card.collection) if raster is not None else None


def new_page(
    portal: Portal,
    caller: Person,
    form: Form,
    *,
    problems: Problems | None = None,
    status: int = 200,
    document: str = "",
    wrong: Sequence[RequestRefusedError] = (),
    file_read: FileRead | None = None,
) -> Response:
    """Render the page with the form.

    `document` is the text of a request document that could not be loaded, `wrong` its errors;
    `file_read` is what the form says of a file that was to give the region.
    Browsers do not cache the page: after Back, the form is a new submission.
    """
    if "-" not in form.submission:
        day = dt.datetime.fromtimestamp(portal.runtime.clock.now(), dt.UTC)
        form = replace(form, submission=f"{day:%y%m%d}-{form.submission}")
    steps, names = steps_of(problems or Problems()), portal.state(Submit).names
    try:
        summary = _summary(portal, names.resolved(caller, request_of(form)))
    except RequestRefusedError as error:
        steps = steps_of(problems or problems_of(error, form))
        summary = {"estimate": None, "yaml": "", "waiting": ()}
    response = portal.pages.page(
        "new.html",
        caller,
        "new",
        status,
        form=form,
        problems=problems or Problems(),
        course=steps,
        swap=False,
        document_text=document,
        document_wrong=wrong,
        file_read=file_read,
        held=portal.state(Submit).holdings.known(),
        archive_text=record_items.archive_text,
        records=record_items,
        found=None,
        known=catalogue.product_count(),
        counted=False,
        catalogue=catalogue,
        known_of=partial(_known, portal, caller),
        rasters=names.rasters(caller.owner),
        quality=quality_of(form),
        methods=tuple(TRAITS),
        known_crs=KNOWN_CRS,
        windows=WINDOWS,
        steps=STEPS,
        every=STANDING,
        groups=GroupTable(portal.runtime.store).of(caller.owner),
        packages=names.packages(caller.owner),
        parameters=parameter_fields(portal, caller, form),
        more_options=_has_more(form),
        **summary,
    )
    response.headers["Cache-Control"] = "no-store"
    return response


def _summary(portal: Portal, resolved: ResolvedRequest) -> dict[str, object]:
    """Collect what `summary.html` shows; raise RequestRefusedError for a wrong document."""
    found: Estimate = estimate(resolved, portal.settings)
    held = portal.state(Submit).holdings.known()
    if held is not None:
        found = replace(found, notes=(*found.notes, *doubts(resolved, held)))
    yaml = request_yaml(resolved.request)
    return {"estimate": found, "yaml": yaml, "waiting": ()}


def _has_more(form: Form) -> bool:
    plain = Form()
    names = ("merge", "mask", "units", "codes", "extra_bands", "clamp", "cells", "cube", "weight")
    more = (*names, "on_missing", "first")
    return any(getattr(form, name) != getattr(plain, name) for name in more)
