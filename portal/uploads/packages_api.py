"""The HTTP API of packages: push, list, show, share, deprecate, delete and download them."""

import datetime as dt
from pathlib import Path
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from portal.serving.attachments import attachment
from portal.serving.caller_limits import CountedResponse
from portal.serving.documents import turn
from portal.serving.identity import Caller
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.quantities import moment
from portal.serving.tokens import Person
from portal.uploads.packages import (
    PackageView,
    Source,
    VersionView,
    archive_of,
    find_local,
    id_of,
    local_views,
    offered,
    push,
    received,
    version_view,
    view_of,
)
from portal.uploads.state import Uploads
from tasks.packages.package_reference import PackageReference
from tasks.packages.packages import Package
from tasks.uploads import upload_operations
from tasks.uploads.package_operations import PACKAGE_UPLOADS
from tasks.uploads.upload_table import UploadRow, Visibility

router = APIRouter(prefix="/api/packages", tags=["packages"])

Uploaded = Annotated[Path, Depends(received)]
_UPLOAD_SCHEMA = {
    "requestBody": {
        "required": True,
        "description": "A zip, or a tar as it is or packed by gzip, bzip2 or xz.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class VersionAnswer(_Answer):
    """A version of a package: its manifest, and the digest, bytes and files of its archive."""

    version: str
    digest: str
    size: int
    files: int
    pushed: dt.datetime | None
    deprecated: str = Field("", description="Why; empty if it is not.")
    dependencies: tuple[str, ...] = Field(
        (), description="The Python packages that were resolved for it, NAME==VERSION."
    )
    manifest: Package
    archive_url: str

    @classmethod
    def of(cls, package: str, view: VersionView) -> Self:
        """Build the answer for a version."""
        return cls(
            version=view.version,
            digest=view.digest,
            size=view.size,
            files=view.files,
            pushed=moment(view.pushed) if view.pushed else None,
            deprecated=view.deprecated,
            dependencies=view.dependencies,
            manifest=view.manifest,
            archive_url=f"/api/packages/{package}/versions/{view.version}/archive.tar",
        )


class PackageAnswer(_Answer):
    """A package. `reference` is what a request names; `link` is told to its owner alone."""

    id: str
    reference: str
    owner: str
    name: str
    description: str
    source: Source
    visibility: Visibility
    newest: str = Field(description="The version that its name alone means.")
    link: str = ""
    versions: tuple[VersionAnswer, ...] = ()
    url: str

    @classmethod
    def of(cls, view: PackageView, versions: tuple[VersionView, ...] = ()) -> Self:
        """Build the answer for a package."""
        return cls(
            id=view.id,
            reference=view.reference,
            owner=view.owner,
            name=view.name,
            description=view.description,
            source=view.source,
            visibility=view.visibility,
            newest=view.newest,
            link=view.link,
            versions=tuple(VersionAnswer.of(view.id, one) for one in versions),
            url=f"/packages/{view.id}",
        )


def look(
    portal: Portal, caller: Person, package: str
) -> tuple[PackageView, tuple[VersionView, ...]]:
    """Find a package that the caller may see, by its id; raise NoSuchUploadError."""
    found = find_local(portal.state(Uploads).local, package)
    if found is not None:
        return local_views(found)
    row = upload_operations.load_for(PACKAGE_UPLOADS.table(portal.runtime), caller.owner, package)
    versions = tuple(map(version_view, PACKAGE_UPLOADS.table(portal.runtime).versions(row.id)))
    return view_of(row, caller.owner, portal.settings.portal_url), versions


def _answer(portal: Portal, caller: Person, row: UploadRow) -> PackageAnswer:
    return PackageAnswer.of(*look(portal, caller, row.id))


@router.get("", summary="The packages that you may run")
def list_packages(caller: Caller, portal: CurrentPortal) -> list[PackageAnswer]:
    """List your own packages, those of the installation, everyone's, and those opened by a link."""
    found = offered(portal.runtime, portal.state(Uploads).local, caller.owner)
    return [PackageAnswer.of(view) for view in found]


@router.post("", status_code=201, openapi_extra=_UPLOAD_SCHEMA, summary="Upload a package")
def upload(body: Uploaded, caller: Caller, portal: CurrentPortal) -> PackageAnswer:
    """Store the uploaded archive as a version of your package; a new package is private.

    The name and the version are those of its `package.yaml`. The same content again changes
    nothing; other content needs another version.
    """
    with turn(portal.state(Uploads).uploading):
        row, _ = push(portal.runtime, portal.settings, caller.owner, body)
    return _answer(portal, caller, row)


@router.get("/find", summary="What a reference means to you")
def find(reference: str, caller: Caller, portal: CurrentPortal) -> PackageAnswer:
    """Find a package by `NAME`, `OWNER/NAME` or either with `@VERSION`, as a request names it."""
    found = portal.state(Uploads).packages_of(caller).find(reference[:400])
    asked = PackageReference.parse(reference)
    view, versions = look(portal, caller, id_of(found))
    if asked.version or asked.digest:
        versions = tuple(one for one in versions if asked.version in ("", one.version))
        versions = tuple(one for one in versions if asked.digest in ("", one.digest))
    return PackageAnswer.of(view, versions)


@router.post("/open", summary="Take up a package by its link")
def open_link(link: str, caller: Caller, portal: CurrentPortal) -> PackageAnswer:
    """Add the package of a link to those that you may run."""
    package, _, secret = link[:200].rpartition("link=")[2].partition(".")
    row = upload_operations.open_link(
        PACKAGE_UPLOADS.table(portal.runtime), caller.owner, package, secret
    )
    return _answer(portal, caller, row)


@router.get("/{package_id}", summary="A package and its versions")
def show(package_id: str, caller: Caller, portal: CurrentPortal) -> PackageAnswer:
    """Return a package with the manifests of its versions, the last one pushed first."""
    return PackageAnswer.of(*look(portal, caller, package_id))


@router.post("/{package_id}/share", summary="Say who sees a package")
def share(
    package_id: str,
    visibility: Visibility,
    caller: Caller,
    portal: CurrentPortal,
    renew: Annotated[bool, Query(description="A new link; the old one opens nothing.")] = False,
) -> PackageAnswer:
    """Have yourself alone, whoever has a link, or everyone see, run and download a package."""
    row = upload_operations.own(PACKAGE_UPLOADS.table(portal.runtime), caller.owner, package_id)
    row = upload_operations.share(
        PACKAGE_UPLOADS.table(portal.runtime), row, visibility, renew=renew
    )
    return _answer(portal, caller, row)


@router.post("/{package_id}/versions/{version}/deprecate", summary="Deprecate a version")
def deprecate(
    package_id: str,
    version: str,
    caller: Caller,
    portal: CurrentPortal,
    why: Annotated[str, Query(max_length=500, description="Empty: no longer deprecated.")] = "",
) -> PackageAnswer:
    """Advise against a version. The name alone no longer means it; requests that name it run it."""
    row = upload_operations.own(PACKAGE_UPLOADS.table(portal.runtime), caller.owner, package_id)
    row = upload_operations.deprecate(PACKAGE_UPLOADS.table(portal.runtime), row, version, why)
    return _answer(portal, caller, row)


@router.delete("/{package_id}", status_code=204, summary="Delete a package")
def delete(package_id: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Delete a package with all its versions; requests that run it by now go on."""
    row = upload_operations.own(PACKAGE_UPLOADS.table(portal.runtime), caller.owner, package_id)
    upload_operations.delete(PACKAGE_UPLOADS.table(portal.runtime), row)
    return Response(status_code=204)


@router.delete("/{package_id}/versions/{version}", status_code=204, summary="Delete a version")
def delete_version(
    package_id: str, version: str, caller: Caller, portal: CurrentPortal
) -> Response:
    """Delete a version, and the package with its last one; requests that run it by now go on."""
    row = upload_operations.own(PACKAGE_UPLOADS.table(portal.runtime), caller.owner, package_id)
    upload_operations.delete(PACKAGE_UPLOADS.table(portal.runtime), row, version)
    return Response(status_code=204)


@router.get(
    "/{package_id}/versions/{version}/archive.tar",
    response_class=StreamingResponse,
    summary="A version's archive",
)
def archive(
    package_id: str, version: str, request: Request, caller: Caller, portal: CurrentPortal
) -> Response:
    """Return the archive of a version; its SHA-256 is the version's digest and the ETag."""
    digest, size, content = archive_of(
        portal.runtime, portal.state(Uploads).local, caller.owner, package_id, version
    )
    headers = {"ETag": f'"{digest}"', "Content-Length": str(size), "Cache-Control": "no-store"}
    view, _ = look(portal, caller, package_id)
    headers["Content-Disposition"] = attachment(f"{view.name}-{version}.tar")
    if request.headers.get("if-none-match", "") == headers["ETag"]:
        del headers["Content-Length"]
        return Response(status_code=304, headers=headers)
    return CountedResponse(content(), 200, headers, "application/x-tar")
