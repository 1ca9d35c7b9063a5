"""The part of the HTTP API that all kinds of uploads have: list, find, show, share, delete."""

from typing import Annotated, Any

from fastapi import Path, Query, Response
from pydantic import BaseModel

from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal
from portal.uploads.kind import Kind
from tasks.answers.uploads import Visibility
from tasks.uploads import upload_operations
from tasks.uploads.upload_table import Version


def upload_api(kind: Kind[Version]) -> Router:
    """Make the calls about uploads of a kind; how one is pushed is the kind's own."""
    word, place = kind.word, kind.place
    router = Router(prefix=f"/api/{place}", tags=[place])
    path = f"/{{{word}_id}}"
    upload_id = Annotated[str, Path(alias=f"{word}_id")]
    one: dict[str, Any] = {"response_model": kind.answer}

    @router.get(
        "",
        name=f"list_{place}",
        summary=f"The {place} that you may {kind.use}",
        response_model=list[kind.answer],  # type: ignore[name-defined]
    )
    def listed(caller: Caller, portal: CurrentPortal) -> list[BaseModel]:
        """List yours, those of the installation, everyone's, and those opened by a link."""
        return [kind.answered(view, ()) for view in kind.offered(portal, caller.owner)]

    @router.get("/find", summary="What a reference means to you", **one)
    def find(
        reference: Annotated[
            str, Query(description="As a request names it: NAME, OWNER/NAME@VERSION.")
        ],
        caller: Caller,
        portal: CurrentPortal,
    ) -> BaseModel:
        """Find one by `NAME`, `OWNER/NAME` or either with `@VERSION`, as a request names it."""
        upload, is_meant = kind.meant(portal, caller, reference[:400])
        view, versions = kind.look(portal, caller.owner, upload)
        return kind.answered(view, [version for version in versions if is_meant(version)])

    @router.post("/open", summary=f"Take up a {word} by its link", **one)
    def open_link(
        link: Annotated[str, Query(description="What the link says after `link=`.")],
        caller: Caller,
        portal: CurrentPortal,
    ) -> BaseModel:
        """Add what a link leads to to what you may use."""
        row = kind.open(portal, caller.owner, link)
        return kind.answered(*kind.look(portal, caller.owner, row.id))

    @router.get(path, summary=f"A {word} and its versions", **one)
    def show(upload: upload_id, caller: Caller, portal: CurrentPortal) -> BaseModel:
        """Return one with what its versions are, the last one pushed first."""
        return kind.answered(*kind.look(portal, caller.owner, upload))

    @router.post(
        f"{path}/share",
        summary=f"Say who sees a {word}",
        description=f"Have yourself alone, whoever has a link, or everyone {kind.sharing}.",
        **one,
    )
    def share(
        upload: upload_id,
        visibility: Annotated[Visibility, Query(description="Who sees it.")],
        caller: Caller,
        portal: CurrentPortal,
        renew: Annotated[bool, Query(description="A new link; the old one opens nothing.")] = False,
    ) -> BaseModel:
        row = kind.own(portal, caller.owner, upload)
        upload_operations.share(kind.table(portal), row, visibility, renew=renew)
        return kind.answered(*kind.look(portal, caller.owner, row.id))

    @router.delete(path, status_code=204, summary=f"Delete a {word}")
    def delete(upload: upload_id, caller: Caller, portal: CurrentPortal) -> Response:
        """Delete one with all its versions; requests that use it by now go on."""
        row = kind.own(portal, caller.owner, upload)
        upload_operations.delete(kind.table(portal), row)
        return Response(status_code=204)

    @router.delete(f"{path}/versions/{{version}}", status_code=204, summary="Delete a version")
    def delete_version(
        upload: upload_id, version: str, caller: Caller, portal: CurrentPortal
    ) -> Response:
        """Delete a version, and all with its last one; requests that use it by now go on."""
        row = kind.own(portal, caller.owner, upload)
        upload_operations.delete(kind.table(portal), row, version)
        return Response(status_code=204)

    return router
