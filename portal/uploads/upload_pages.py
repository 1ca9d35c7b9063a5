"""The pages that all kinds of uploads have: the list, one upload, links, who sees it, deletion."""

from typing import Annotated

from fastapi import Form, Response
from fastapi.responses import RedirectResponse

from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.tokens import Person
from portal.uploads.kind import Kind
from tasks.answers.uploads import Visibility
from tasks.uploads import upload_operations
from tasks.uploads.upload_table import Version

_SHARING = (
    (Visibility.PRIVATE, "Me alone"),
    (Visibility.LINK, "Whoever has a link"),
    (Visibility.EVERYONE, "Everyone"),
)


def list_page(
    kind: Kind[Version], portal: Portal, caller: Person, *, wrong: str = "", **typed: object
) -> Response:
    """Show those that the caller may use, with a form to upload one, and what is wrong with it."""
    return portal.pages.page(
        f"{kind.place}.html",
        caller,
        kind.place,
        422 if wrong else 200,
        kind=kind,
        uploads=kind.offered(portal, caller.owner),
        wrong=wrong,
        **{**kind.form(portal), **typed},
    )


def upload_pages(kind: Kind[Version]) -> Router:
    """Make the pages of uploads of a kind; the form that uploads one is the kind's own."""
    place = kind.place
    router = Router(prefix=f"/{place}", include_in_schema=False)

    @router.get("")
    def listed(caller: Caller, portal: CurrentPortal) -> Response:
        """List those that the caller may use, with a form to upload one."""
        return list_page(kind, portal, caller)

    @router.get("/open")
    def ask_to_open(caller: Caller, portal: CurrentPortal, link: str = "") -> Response:
        """Ask whoever follows a link whether to take it up."""
        return portal.pages.page("take_up.html", caller, place, 200, kind=kind, link=link[:200])

    @router.post("/open")
    def open_link(
        caller: Caller, portal: CurrentPortal, link: Annotated[str, Form(max_length=200)] = ""
    ) -> RedirectResponse:
        """Add what a link leads to to what the caller may use."""
        row = kind.open(portal, caller.owner, link)
        return RedirectResponse(f"/{place}/{row.id}", 303)

    @router.get("/{upload}")
    def show(upload: str, caller: Caller, portal: CurrentPortal) -> Response:
        """Show one: what it is, its versions, who sees it."""
        view, versions = kind.look(portal, caller.owner, upload)
        newest = next((one for one in versions if one.version == view.newest), None)
        return portal.pages.page(
            f"{kind.word}.html",
            caller,
            place,
            200,
            kind=kind,
            upload=view,
            versions=versions,
            newest=newest,
            sharing=_SHARING,
            **(kind.facts(newest) if newest else {}),
        )

    @router.post("/{upload}/share")
    def share(
        upload: str,
        caller: Caller,
        portal: CurrentPortal,
        visibility: Annotated[Visibility, Form()],
        renew: Annotated[bool, Form()] = False,
    ) -> RedirectResponse:
        """Say who sees an upload."""
        row = kind.own(portal, caller.owner, upload)
        upload_operations.share(kind.table(portal), row, visibility, renew=renew)
        return RedirectResponse(f"/{place}/{upload}", 303)

    @router.post("/{upload}/delete")
    def delete(
        upload: str,
        caller: Caller,
        portal: CurrentPortal,
        version: Annotated[str, Form(max_length=40)] = "",
    ) -> RedirectResponse:
        """Delete a version, or the whole upload."""
        row = kind.own(portal, caller.owner, upload)
        upload_operations.delete(kind.table(portal), row, version)
        left = kind.table(portal).upload(row.id)
        return RedirectResponse(f"/{place}/{upload}" if left else f"/{place}", 303)

    return router
