"""What can be done with users' rasters: push, find for a request, and delete files of none.

Sharing, listing and deleting are those of packages (`package_operations`), over another table.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from reprojection.catalogue.user_raster import UserRaster
from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError, StoreError
from tasks.packages.rasters import ExactRaster, blob_of, is_raster, reference_of
from tasks.request.checks import nearest_names
from tasks.request.document import ProductChoice, Request
from tasks.requests import request_operations
from tasks.requests.request_table import RequestTable
from tasks.storage.blobs import RASTERS, file_digest
from tasks.storage.store import Operation, Row
from tasks.uploads import package_operations, package_table
from tasks.uploads.package_operations import (
    PackageConflictError,
    named_again,
    put_whole,
    with_room,
)
from tasks.uploads.package_table import (
    RasterVersionRow,
    describe,
    package_id,
    package_row,
    write_package,
)

_MOST_DESCRIPTION = 60_000  # bytes of a property of a row


def push(
    runtime: Runtime, owner: str, raster: UserRaster, version: str, file: Path, came_from: str
) -> RasterVersionRow:
    """Store a raster's file as a version; the same content again is success.

    Without a `version` it is the next number.

    Raises:
        PackageConflictError: the version has other content, or there are too many.
        StoreError: storage failed; push it again.
    """
    table, name = package_table.rasters(runtime), raster.name
    stored = file_digest(file)
    digest = stored.sha256
    table.note_unnamed(digest)
    put_whole(runtime.blobs, RASTERS, blob_of(digest), file)
    package = package_id(owner, name)
    made: list[RasterVersionRow] = []

    def change(found: Row | None) -> tuple[Operation, ...]:
        versions = table.versions(package)
        same = next((one for one in versions if one.digest == digest), None)
        chosen = version or (same.version if same else _next(versions))
        there = next((one for one in versions if one.version == chosen), None)
        if there is not None and there.digest != digest:
            raise PackageConflictError(
                f"Version {chosen} of {name} is there with other content. Give another version: a "
                "version never changes."
            )
        new = there or RasterVersionRow(
            package=package,
            version=chosen,
            digest=digest,
            size=stored.size,
            pushed=runtime.clock.now(),
            raster=raster,
            came_from=came_from,
        )
        made[:] = [new]
        if there is not None:
            return ()
        row = replace(
            with_room(table, found, owner, name),
            newest=new.version,
            changed=new.pushed,
            description=", ".join(one.name for one in raster.layers),
        )
        operation = table.write_version(new)
        return *write_package(found, row), operation, *named_again(table, digest)

    table.update(package_row(package), change)
    # It may have gone between the first call and the row that names it.
    put_whole(runtime.blobs, RASTERS, blob_of(digest), file)
    found = table.version(package, made[0].version)
    if found is None:
        raise StoreError(f"{name} was deleted while it was pushed; push it again")
    return found


def check_description(raster: UserRaster) -> None:
    """Raise PackageConflictError for a raster of so much that a row cannot describe it."""
    if len(describe(raster)) > _MOST_DESCRIPTION:
        raise PackageConflictError(
            "It has too many layers, dates and names of classes. Push fewer at a time."
        )


def described(runtime: Runtime, owner: str, request: Request) -> Request:
    """Return a request whose rasters are the very versions that its owner's references mean.

    Raises:
        RequestRefusedError: the owner may not see such a raster, or there is none.
    """
    if not any(is_raster(choice.name) for choice in request.products):
        return request
    products = tuple(
        _exact(runtime, owner, number, choice) if is_raster(choice.name) else choice
        for number, choice in enumerate(request.products)
    )
    return request.model_copy(update={"products": products})


def _exact(runtime: Runtime, owner: str, number: int, choice: ProductChoice) -> ProductChoice:
    asked = reference_of(choice.name)
    found = package_operations.meant(package_table.rasters(runtime), owner, asked)
    if found is None:
        names = [*_names(runtime, owner)]
        raise RequestRefusedError(
            f"products.{number}.name",
            f"there is no raster {choice.name!r}, or you may not see it.",
            nearest_names(choice.name, names)
            if names
            else "Push it first: swathmill raster push FILE.",
        )
    row, version = found
    if not runtime.blobs.exists(RASTERS, blob_of(version.digest)):
        raise RequestRefusedError(
            f"products.{number}.name",
            f"storage has lost the file of {choice.name!r}.",
            "Push it again.",
        )
    return choice.exact_as(
        ExactRaster(
            raster=version.raster,
            digest=version.digest,
            size=version.size,
            owner=row.owner,
            version=version.version,
        )
    )


def _names(runtime: Runtime, person: str) -> Iterator[str]:
    for row in package_operations.visible(package_table.rasters(runtime), person):
        yield f"raster:{row.name}" if row.owner == person else f"raster:{row.owner}/{row.name}"


def collect(runtime: Runtime) -> int:
    """Delete the files that no version names while no live request uses rasters; return how many.

    A request that is planned has a copy among the granules, which it makes anew if that is lost.
    """
    waiting = package_table.rasters(runtime).all_unnamed()
    if not waiting:
        return 0
    used = package_table.rasters(runtime).digests()
    for request in RequestTable(runtime.store).live():
        row = RequestTable(runtime.store).request(request)
        if row is None or row.state.unplanned:
            return 0  # it may be about to name one
        document = request_operations.document_of(row)
        if any(is_raster(choice.name) for choice in document.products):
            return 0

    def remove(digest: str) -> None:
        runtime.blobs.delete(RASTERS, blob_of(digest))

    return sum(
        package_operations.remove_unnamed(
            package_table.rasters(runtime), one, partial(remove, one.digest)
        )
        for one in waiting
        if one.digest not in used
    )


def _next(versions: list[RasterVersionRow]) -> str:
    numbers = [int(one.version) for one in versions if one.version.isdigit()]
    return str(max(numbers, default=0) + 1)
