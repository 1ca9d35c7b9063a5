"""Groups, with whose members requests are shared: on a page, and as JSON."""

import re
from http import HTTPStatus
from typing import Annotated

from fastapi import Form, Path, Query, Response
from fastapi.responses import RedirectResponse
from pydantic import Field

from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import BadCallError, NotFoundError, NotNowError, PortalError, begun
from portal.serving.tokens import LONGEST_OWNER, Person
from tasks.accounts.group_table import MOST_MEMBERS, GroupRow, GroupTable, NoSuchGroupError
from tasks.answers.answer import Answer
from tasks.packages.package_reference import NAME
from tasks.strict_model import StrictModel

api = Router(prefix="/api/groups", tags=["groups"])
pages = Router(include_in_schema=False)

MOST_GROUPS = 50
_NAME = re.compile(NAME)
Member = Annotated[str, Field(min_length=1, max_length=LONGEST_OWNER)]
Members = Annotated[tuple[Member, ...], Field(max_length=MOST_MEMBERS)]
Name = Annotated[str, Path(max_length=63)]
Owner = Annotated[str, Field(max_length=LONGEST_OWNER)]
_OWNERS = "Whose group, if you are in several of the name and own none."


class NewMembers(StrictModel):
    """Who is in a group, besides its owner."""

    members: Members = ()


class GroupAnswer(Answer):
    """A group that you are in."""

    name: str
    owner: str
    members: tuple[str, ...]
    reference: str = Field(description="What requests call it.")


@api.get("", summary="Your groups")
def list_groups(caller: Caller, portal: CurrentPortal) -> list[GroupAnswer]:
    """List the groups that you own or are in, by name."""
    return [_answer(row) for row in GroupTable(portal.runtime.store).of(caller.owner)]


@api.put("/{name}", summary="Make a group, or say who is in it")
def put_group(name: Name, body: NewMembers, caller: Caller, portal: CurrentPortal) -> GroupAnswer:
    """Say who is in a group of yours, which is made if there is none of this name."""
    return _answer(_write(portal, caller, name, body.members))


@api.delete("/{name}", status_code=HTTPStatus.NO_CONTENT, summary="Disband or leave a group")
def delete_group(
    name: Name,
    caller: Caller,
    portal: CurrentPortal,
    owner: Annotated[Owner, Query(description=_OWNERS)] = "",
) -> None:
    """Disband a group of yours, or leave another's. Requests shared with it are kept."""
    _leave(portal, caller, name, owner)


@pages.get("/groups")
def groups(caller: Caller, portal: CurrentPortal) -> Response:
    """List the caller's groups, with a form to make one."""
    return _page(portal, caller)


@pages.post("/groups")
def save(
    caller: Caller,
    portal: CurrentPortal,
    name: Annotated[str, Form(max_length=200)] = "",
    members: Annotated[str, Form(max_length=20_000)] = "",
) -> Response:
    """Make a group, or say who is in it; or show what is wrong."""
    named = tuple(re.split(r"[\s,;]+", members.strip())) if members.strip() else ()
    try:
        _write(portal, caller, name.strip(), named)
    except PortalError as error:
        return _page(portal, caller, name=name, members=members, wrong=error)
    return RedirectResponse("/groups", 303)


@pages.post("/groups/{name}/leave")
def leave(
    name: Name,
    caller: Caller,
    portal: CurrentPortal,
    owner: Annotated[str, Form(max_length=LONGEST_OWNER)] = "",
) -> Response:
    """Disband the caller's group, or leave another's."""
    _leave(portal, caller, name, owner)
    return RedirectResponse("/groups", 303)


def _write(portal: Portal, caller: Person, name: str, members: tuple[str, ...]) -> GroupRow:
    if not _NAME.fullmatch(name) or len(name) > 63:
        raise BadCallError(
            f"{name!r} is not a name of a group." if name else "The group has no name.",
            "A name has small letters, digits and dashes, like forest-team.",
            field="name",
        )
    others = tuple(dict.fromkeys(one for one in members if one != caller.owner))
    if any(len(one) > LONGEST_OWNER for one in others):
        raise BadCallError(
            f"A member has more than {LONGEST_OWNER} characters.",
            "Write one name to a line.",
            field="members",
        )
    if len(others) > MOST_MEMBERS:
        raise BadCallError(
            f"A group has at most {MOST_MEMBERS} members besides its owner.",
            "Make a second group.",
            field="members",
        )
    table = GroupTable(portal.runtime.store)
    own = [row.name for row in table.of(caller.owner) if row.owner == caller.owner]
    if len(own) >= MOST_GROUPS and name not in own:
        raise NotNowError(f"You own {MOST_GROUPS} groups, the most there may be.", "Disband one.")
    return table.write(
        portal.runtime.clock, GroupRow(name=name, owner=caller.owner, members=others)
    )


def _leave(portal: Portal, caller: Person, name: str, owner: str) -> None:
    table = GroupTable(portal.runtime.store)
    try:
        found = table.meant(f"{owner}/{name}" if owner else name, caller.owner)
    except NoSuchGroupError as error:
        raise NotFoundError(begun(error.problem), "Your groups are at /groups.") from None
    table.leave(portal.runtime.clock, found.key, caller.owner)


def _answer(row: GroupRow) -> GroupAnswer:
    return GroupAnswer(name=row.name, owner=row.owner, members=row.members, reference=row.reference)


def _page(
    portal: Portal,
    caller: Person,
    *,
    name: str = "",
    members: str = "",
    wrong: PortalError | None = None,
) -> Response:
    return portal.pages.page(
        "groups.html",
        caller,
        "requests",
        200 if wrong is None else HTTPStatus.UNPROCESSABLE_ENTITY,
        groups=GroupTable(portal.runtime.store).of(caller.owner),
        name=name,
        members=members,
        wrong=wrong,
    )
