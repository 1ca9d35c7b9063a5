"""Pages that packages and rasters of users share: links, who sees one, deletion."""

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Form, Response
from fastapi.responses import RedirectResponse

from portal.serving.identity import Caller
from portal.serving.portal import CurrentPortal
from tasks.bag.runtime import Runtime
from tasks.uploads import upload_operations
from tasks.uploads.upload_table import UploadTable, Version, Visibility

SHARING = (
    (Visibility.PRIVATE, "Me alone"),
    (Visibility.LINK, "Whoever has a link"),
    (Visibility.EVERYONE, "Everyone"),
)


def sharing_pages(
    place: Literal["packages", "rasters"],
    use: str,
    table_of: Callable[[Runtime], UploadTable[Version]],
) -> APIRouter:
    """Make these pages of uploads that are kept at `place`; `use` is what one may do with one."""
    router = APIRouter(prefix=f"/{place}", include_in_schema=False)

    @router.get("/open")
    def ask_to_open(caller: Caller, portal: CurrentPortal, link: str = "") -> Response:
        """Ask whoever follows a link whether to take it up."""
        return portal.pages.page(
            "take_up.html", caller, place, 200, kind=place, use=use, link=link[:200]
        )

    @router.post("/open")
    def open_link(
        caller: Caller, portal: CurrentPortal, link: Annotated[str, Form(max_length=200)] = ""
    ) -> RedirectResponse:
        """Add what a link leads to to what the caller may use."""
        upload, _, secret = link.partition(".")
        row = upload_operations.open_link(table_of(portal.runtime), caller.owner, upload, secret)
        return RedirectResponse(f"/{place}/{row.id}", 303)

    @router.post("/{upload}/share")
    def share(
        upload: str,
        caller: Caller,
        portal: CurrentPortal,
        visibility: Annotated[Visibility, Form()],
        renew: Annotated[bool, Form()] = False,
    ) -> RedirectResponse:
        """Say who sees an upload."""
        row = upload_operations.own(table_of(portal.runtime), caller.owner, upload)
        upload_operations.share(table_of(portal.runtime), row, visibility, renew=renew)
        return RedirectResponse(f"/{place}/{upload}", 303)

    @router.post("/{upload}/delete")
    def delete(
        upload: str,
        caller: Caller,
        portal: CurrentPortal,
        version: Annotated[str, Form(max_length=40)] = "",
    ) -> RedirectResponse:
        """Delete a version, or the whole upload."""
        row = upload_operations.own(table_of(portal.runtime), caller.owner, upload)
        upload_operations.delete(table_of(portal.runtime), row, version)
        left = table_of(portal.runtime).upload(row.id)
        return RedirectResponse(f"/{place}/{upload}" if left else f"/{place}", 303)

    return router
