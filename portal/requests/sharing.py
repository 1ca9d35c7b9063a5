"""What an owner says of a request besides its document: labels, group, new data, links."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from fastapi import Form, Response
from fastapi.responses import RedirectResponse
from pydantic import Field

from portal.requests.answers import request_answer
from portal.serving.access import audited_for_others, load_to_change
from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotNowError
from portal.serving.quantities import moment
from portal.serving.tokens import Person
from portal.submit.forms import STANDING, labels_in
from tasks.accounts import reader_links
from tasks.accounts.group_table import LONGEST_REFERENCE, GroupTable
from tasks.answers.answer import Answer
from tasks.answers.requests import RequestAnswer
from tasks.refusal_wording import refusal
from tasks.request.document import GUIDE, Labels
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow
from tasks.strict_model import StrictModel

router = Router(prefix="/api", tags=["requests"])
pages = Router(include_in_schema=False)


class Changes(StrictModel):
    """What changes of a request; what is left out stays."""

    labels: Labels | None = None
    group: str | None = Field(
        None,
        max_length=LONGEST_REFERENCE,
        description="The group whose members may read it, `NAME` or `OWNER/NAME`; empty: none.",
    )
    standing: int | None = Field(
        None,
        ge=0,
        le=366,
        strict=True,
        description="Days after which it goes on with new data; 0: never.",
    )


class LinkAnswer(Answer):
    """An address that shows a request to whoever has it, and until when."""

    url: str
    expires: dt.datetime


@router.patch("/requests/{request_id}", summary="Change labels, group, or whether it goes on")
def change(request_id: str, body: Changes, caller: Caller, portal: CurrentPortal) -> RequestAnswer:
    """Change what is said of a request besides its document."""
    return request_answer(changed(portal, caller, request_id, body))


@router.post("/requests/{request_id}/links", status_code=201, summary="Make a link to a request")
def make_link(request_id: str, caller: Caller, portal: CurrentPortal) -> LinkAnswer:
    """Return a link that shows the request, read-only, to whoever has it, for 30 days."""
    row = load_to_change(portal.runtime, caller, request_id)
    url, expires = link_to(portal, row)
    return LinkAnswer(url=url, expires=moment(expires))


@router.delete(
    "/requests/{request_id}/links",
    status_code=HTTPStatus.NO_CONTENT,
    summary="End all links to a request",
)
def end_links(request_id: str, caller: Caller, portal: CurrentPortal) -> None:
    """End all links to the request that were given so far, those in mails included."""
    end_links_to(portal, caller, request_id)


@pages.post("/requests/{request_id}/about")
def change_on_page(
    request_id: str,
    caller: Caller,
    portal: CurrentPortal,
    labels: Annotated[str, Form(max_length=1000)] = "",
    group: Annotated[str, Form(max_length=LONGEST_REFERENCE)] = "",
    standing: Annotated[str, Form(max_length=20)] = "0",
) -> Response:
    """Change labels, group and standing, and show the request again."""
    days = int(standing) if standing.isdecimal() else standing
    given = {"labels": labels_in(labels), "group": group, "standing": days}
    try:
        body = Changes.model_validate(given)
    except ValueError as error:
        raise refusal(error, given, GUIDE) from None  # type: ignore[arg-type]
    changed(portal, caller, request_id, body)
    return RedirectResponse(f"/requests/{request_id}#sharing", 303)


@pages.post("/requests/{request_id}/links/end")
def end_links_on_page(request_id: str, caller: Caller, portal: CurrentPortal) -> Response:
    """End all links to a request, and show it again."""
    end_links_to(portal, caller, request_id)
    return RedirectResponse(f"/requests/{request_id}#sharing", 303)


def changed(portal: Portal, caller: Person, request_id: str, changes: Changes) -> RequestRow:
    """Change a request that the caller may change; return its row.

    Raises:
        NoSuchGroupError: the caller is in no such group, or in several of the name.
        NotNowError: the request has gone on already, as another one.
    """
    row = load_to_change(portal.runtime, caller, request_id)
    given = changes.model_dump(exclude_none=True)
    if changes.group and changes.group != row.group:
        given["group"] = GroupTable(portal.runtime.store).meant(changes.group, caller.owner).key

    def after(current: RequestRow) -> RequestRow:
        if changes.standing and current.dry_run:
            raise NotNowError(
                f"Request {current.id} is a dry run: it cannot go on with new data.",
                "Submit it first.",
            )
        if changes.standing and current.continued_as:
            raise NotNowError(
                f"Request {current.id} has gone on as {current.continued_as}.", "Change that one."
            )
        return replace(current, **given)

    with audited_for_others(portal.runtime, caller, row, "change"):
        return request_operations.change_request(portal.runtime, row.id, after)


def end_links_to(portal: Portal, caller: Person, request_id: str) -> None:
    """End all links to a request that the caller may change."""
    row = load_to_change(portal.runtime, caller, request_id)

    def after(current: RequestRow) -> RequestRow:
        return replace(current, links=current.links + 1)

    with audited_for_others(portal.runtime, caller, row, "end links to"):
        request_operations.change_request(portal.runtime, row.id, after)


def link_to(portal: Portal, row: RequestRow) -> tuple[str, float]:
    """Return the address that shows a request to whoever has it, and until when."""
    expires = portal.runtime.clock.now() + reader_links.LIFETIME
    secret = portal.settings.secret.get_secret_value()
    opened = reader_links.key(row.id, row.links)
    return reader_links.address(portal.settings.portal_url, secret, opened, expires), expires


def shared_view(portal: Portal, caller: Person, row: RequestRow) -> Mapping[str, object]:
    """Return what the page of a request shows its owner of labels, groups and links."""
    url, expires = link_to(portal, row)
    return {
        "my_groups": GroupTable(portal.runtime.store).of(caller.owner),
        "standings": STANDING,
        "link": url,
        "link_until": expires,
    }
