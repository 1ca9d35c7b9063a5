"""Users' rasters as uploads: their rows, the push of one, and those that a request names."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reprojection.catalogue.user_raster import UserRaster
from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError
from tasks.packages.rasters import ExactRaster, blob_of, is_raster, reference_of
from tasks.refusal_wording import nearest_names
from tasks.request.document import ProductChoice, Request
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow
from tasks.storage.blobs import RASTERS, file_digest
from tasks.storage.codec import Codec, Form, cut
from tasks.uploads import upload_operations
from tasks.uploads.upload_operations import Push, UploadConflictError, put_whole
from tasks.uploads.upload_table import UploadedVersion, UploadKind, upload_id

_MOST_DESCRIPTION = 60_000  # bytes of a property of a row


@dataclass(frozen=True, kw_only=True)
class RasterVersionRow(UploadedVersion):
    """A version of a raster; `came_from` says which files or address it was made of."""

    raster: UserRaster
    came_from: str = ""


def describe(raster: UserRaster) -> bytes:
    """Return the description of a raster as its row holds it."""
    return zlib.compress(raster.model_dump_json().encode())


RASTER_VERSION = Codec(
    RasterVersionRow,
    "raster version",
    {
        "raster": Form(
            write=describe,
            read=lambda data: UserRaster.model_validate_json(zlib.decompress(data)),
        ),
        "came_from": cut(500, sparse=True),
        "deprecated": cut(500, sparse=True),
    },
)


def _used_by(row: RequestRow) -> Iterable[str] | None:
    """Return None for a request with rasters: it makes their copies among granules again."""
    document = request_operations.document_of(row)
    return None if any(is_raster(choice.name) for choice in document.products) else ()


RASTER_UPLOADS = UploadKind(
    word="raster",
    name="rasters",
    codec=RASTER_VERSION,
    container=RASTERS,
    blobs=lambda digest: (blob_of(digest),),
    used_by=_used_by,
)


def push(
    runtime: Runtime, owner: str, raster: UserRaster, version: str, file: Path, came_from: str
) -> RasterVersionRow:
    """Store a raster's file as a version; the same content again is success.

    Without a `version` it is the next number.

    Raises:
        UploadConflictError: the version has other content, or there are too many.
        StoreError: storage failed; push it again.
    """
    name, stored = raster.name, file_digest(file)
    digest = stored.sha256

    def choose(versions: list[RasterVersionRow]) -> RasterVersionRow:
        same = next((one for one in versions if one.digest == digest), None)
        chosen = version or (same.version if same else _next(versions))
        there = next((one for one in versions if one.version == chosen), None)
        if there is not None and there.digest != digest:
            raise UploadConflictError(
                f"Version {chosen} of {name} is there with other content. Give another version: a "
                "version never changes."
            )
        return there or RasterVersionRow(
            package=upload_id(owner, name),
            version=chosen,
            digest=digest,
            size=stored.size,
            pushed=runtime.clock.now(),
            raster=raster,
            came_from=came_from,
        )

    return upload_operations.push(
        RASTER_UPLOADS.table(runtime),
        Push(
            owner=owner,
            name=name,
            description=", ".join(one.name for one in raster.layers),
            digest=digest,
            put=lambda: put_whole(runtime.blobs, RASTERS, blob_of(digest), file),
            choose=choose,
        ),
    )


def check_description(raster: UserRaster) -> None:
    """Raise UploadConflictError for a raster of so much that a row cannot describe it."""
    if len(describe(raster)) > _MOST_DESCRIPTION:
        raise UploadConflictError(
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
    found = upload_operations.meant(RASTER_UPLOADS.table(runtime), owner, asked)
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
    for row in upload_operations.visible(RASTER_UPLOADS.table(runtime), person):
        yield f"raster:{row.name}" if row.owner == person else f"raster:{row.owner}/{row.name}"


def _next(versions: list[RasterVersionRow]) -> str:
    numbers = [int(one.version) for one in versions if one.version.isdigit()]
    return str(max(numbers, default=0) + 1)
