"""The page to submit: the form, what it will be while it is filled in, previews, documents."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from portal.core import catalogue
from portal.core.documents import MOST_BYTES, decode
from portal.core.estimates import Estimate, estimate
from portal.core.identity import Caller, person
from portal.core.problems import PortalError, TooLargeError
from portal.core.submissions import accept, check, load_for, refusal
from portal.core.tokens import Person
from portal.web.context import Here, Portal
from portal.web.forms import Form, document, form_of, new_card, read_form, request_yaml
from tasks.errors import RequestRefusedError
from tasks.model.model import RequestState
from tasks.model.packages import Package, PackageError
from tasks.request.request import METHODS, parse_request
from tasks.request.request import Request as RequestDocument
from tasks.tables import requests

router = APIRouter(include_in_schema=False)

_MOST_PARTS = 2000


async def _form_data(request: Request) -> FormData:
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > MOST_BYTES:
        raise TooLargeError(
            f"The form is larger than {MOST_BYTES >> 20} MiB, or does not say its size.",
            "Simplify its polygon.",
        )
    return await request.form(max_files=0, max_fields=_MOST_PARTS)


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

SLOTS = (
    "products",
    "region",
    "time",
    "grid.crs",
    "grid.resolution",
    "grid",
    "resampling",
    "qa",
    "reduction",
    "title",
    "notify",
)
"""Places on the form where an error can stand; a field of the document belongs to the longest."""


@dataclass(frozen=True, kw_only=True)
class FieldProblem:
    """An error and the place on the form where it stands."""

    slot: str
    text: str
    remedy: str = ""

    @classmethod
    def of(cls, error: RequestRefusedError) -> "FieldProblem":
        """Where and how the form tells of a refusal."""
        slot = next(
            (
                s
                for s in sorted(SLOTS, key=len, reverse=True)
                if f"{error.field}.".startswith(f"{s}.")
            ),
            "options",
        )
        name = error.field.replace(".", " ")
        text = f"{name} {error.problem}" if error.problem[:1].islower() else error.problem
        return cls(slot=slot, text=f"{text[:1].upper()}{text[1:]} {error.remedy}".strip())


@router.get("/new")
def new(caller: Caller, here: Here, again: str = "") -> Response:
    """An empty form, or the one that would submit a request again."""
    if not again:
        return _page(here, caller, Form())
    row = load_for(here.services, caller, again)
    return _page(here, caller, form_of(requests.document_of(row)))


@router.post("/new")
def submit(data: Sent, caller: Caller, here: Here) -> Response:
    """Hand the form's request in, or show the form again with the error at its field."""
    form = read_form(data)
    try:
        made = parse_request(document(form))
        check(made, here.settings, here.packages)
    except RequestRefusedError as error:
        return _page(here, caller, form, problem=FieldProblem.of(error), status=422)
    row = accept(here.services, caller, made, key=f"form-{form.submission}")
    return RedirectResponse(f"/requests/{row.id}", 303)


@router.post("/new/check", dependencies=[Depends(person)])
def check_form(data: Sent, here: Here) -> Response:
    """What the form means so far: the rasters it would make, and the document."""
    try:
        made = parse_request(document(read_form(data)))
        return here.pages.part("summary.html", **_summary(here, made))
    except RequestRefusedError as error:
        waiting = FieldProblem.of(error)
        return here.pages.part("summary.html", estimate=None, yaml="", waiting=waiting)


@router.post("/new/preview")
def preview(data: Sent, caller: Caller, here: Here) -> Response:
    """Start a dry run of the form's request."""
    try:
        made = parse_request(document(read_form(data)))
        check(made, here.settings, here.packages)
    except RequestRefusedError as error:
        problem = FieldProblem.of(error)
        return here.pages.part("preview.html", row=None, problem=problem, slots=SLOTS)
    row = accept(here.services, caller, made, dry_run=True)
    return here.pages.part("preview.html", row=row, problem=None, slots=SLOTS)


@router.get("/previews/{request_id}")
def preview_state(request_id: str, caller: Caller, here: Here) -> Response:
    """Where a dry run stands; its counts when planning has made them."""
    row = load_for(here.services, caller, request_id)
    problem = None
    if row.state is RequestState.REFUSED:
        problem = FieldProblem.of(refusal(row))
    return here.pages.part("preview.html", row=row, problem=problem, slots=SLOTS)


@router.post("/new/document")
def load_document(data: Sent, caller: Caller, here: Here) -> Response:
    """The form filled in from a request document."""
    text = str(data.get("document", ""))
    try:
        made = parse_request(decode(text.encode()))
    except RequestRefusedError as error:
        problem = FieldProblem(
            slot="document", text=f"{error.field}: {error.problem} {error.remedy}"
        )
        return _page(here, caller, Form(), problem=problem, status=422, document_text=text)
    return _page(here, caller, form_of(made))


@router.get("/new/products", dependencies=[Depends(person)])
def products(here: Here, q: str = "") -> Response:
    """The products a search finds."""
    found, all_of_them = catalogue.search(q[:200]), len(catalogue.search(""))
    return here.pages.part("found.html", found=found, counted=True, all=all_of_them)


@router.get("/new/product", dependencies=[Depends(person)])
def product(
    here: Here,
    name: str = "",
    collection: str = "",
    other_name: str = "",
    other_collection: str = "",
) -> Response:
    """A card for one more product."""
    name, collection = name or other_name, collection or other_collection
    if not name.strip() or not collection.strip():
        raise PortalError("A product needs a short name and a collection.", "Fill both in.")
    return here.pages.part(
        "product.html", card=new_card(name[:40], collection[:10]), catalogue=catalogue
    )


def _page(
    here: Portal,
    caller: Person,
    form: Form,
    *,
    problem: FieldProblem | None = None,
    status: int = 200,
    document_text: str = "",
) -> Response:
    try:
        summary = _summary(here, parse_request(document(form)))
    except RequestRefusedError:
        summary = {"estimate": None, "yaml": "", "waiting": None}
    return here.pages.page(
        "new.html",
        caller,
        "new",
        status,
        form=form,
        problem=problem,
        document_text=document_text,
        found=catalogue.search(""),
        counted=False,
        catalogue=catalogue,
        methods=METHODS,
        known_crs=KNOWN_CRS,
        packages=_packages(here),
        more_options=_has_more(form),
        **summary,
    )


def _summary(here: Portal, made: RequestDocument) -> dict[str, object]:
    """What `summary.html` shows. Raises RequestRefusedError."""
    found: Estimate = estimate(made, here.settings)
    return {"estimate": found, "yaml": request_yaml(made), "waiting": None}


def _has_more(form: Form) -> bool:
    plain = Form()
    names = ("merge", "mask", "units", "codes", "extra_bands", "cells", "cube", "weight")
    return any(getattr(form, name) != getattr(plain, name) for name in (*names, "on_missing"))


def _packages(here: Portal) -> list[Package]:
    found = []
    for name in here.packages.names():
        try:
            found.append(here.packages.find(name).package)
        except PackageError:
            # A broken package is not offered; naming it in a document says what is wrong.
            continue
    return found
