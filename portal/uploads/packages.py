"""Uploads of packages on their way into storage, and archives on their way out."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO

from fastapi import Request

from portal.serving.portal import Portal
from portal.serving.problems import TooLargeError
from portal.uploads.package_kind import PACKAGES, SOURCES, find_local
from tasks.bag.runtime import Runtime
from tasks.network_hosts import not_allowed
from tasks.packages.package_uploads import Upload, repack
from tasks.packages.packages import MAX_BYTES, OURS, PackageArchive, PackageError, blob_of
from tasks.packages.python_environments import resolve
from tasks.settings import Settings
from tasks.storage import blobs
from tasks.uploads import package_operations, upload_operations
from tasks.uploads.package_operations import PACKAGE_UPLOADS, VersionRow
from tasks.uploads.upload_operations import NoSuchUploadError, UploadConflictError
from tasks.uploads.upload_table import UploadRow, upload_id

MOST_UPLOADED = MAX_BYTES + 16 * 2**20  # bytes of an upload, with the headers of its files


def archive_of(
    portal: Portal, person: str, package: str, version: str
) -> tuple[str, int, Callable[[], Iterator[bytes]]]:
    """Return the digest, the size and the content of a version's archive.

    Raises NoSuchUploadError if there is none or this person may not see it.
    """
    found = find_local(portal, package)
    if found is not None and found.owner == OURS and found.package.version == version:
        archive: PackageArchive | None = found.archive()
        if archive is not None:
            return archive.digest, len(archive.data), lambda: iter([archive.data])
    table = PACKAGES.table(portal)
    row = upload_operations.load_for(table, person, package)
    stored = table.version(row.id, version)
    if stored is None:
        raise NoSuchUploadError(f"{row.name}@{version}", "package")
    name = blob_of(stored.digest)
    return stored.digest, stored.size, lambda: portal.runtime.blobs.stream(blobs.PACKAGES, name)


async def received(request: Request) -> AsyncIterator[Path]:
    """Yield the file in which the body of a call is, until the call has been answered."""
    with tempfile.TemporaryDirectory(prefix="swathmill-") as folder:
        path = Path(folder) / "upload"
        size = 0
        with path.open("xb") as out:
            async for part in request.stream():
                size += len(part)
                check_size(size)
                out.write(part)
        yield path


def check_size(size: int) -> None:
    """Refuse an upload that is too large; raise TooLargeError."""
    if size > MOST_UPLOADED:
        raise TooLargeError(
            f"The upload is larger than {MOST_UPLOADED >> 20} MiB.", "Make the package smaller."
        )


def keep_upload(file: IO[bytes], to: Path) -> None:
    """Copy an uploaded file of a form to a path."""
    size = 0
    with to.open("xb") as out:
        while part := file.read(2**20):
            size += len(part)
            check_size(size)
            out.write(part)


def push(
    runtime: Runtime, settings: Settings, person: str, file: Path
) -> tuple[UploadRow, VersionRow]:
    """Check an uploaded file and store it as a version of a person's package.

    Raises:
        PackageError: it cannot be used, or its dependencies cannot be had; says why.
        UploadConflictError: the version is there with other content, or there are too many.
    """
    if person in SOURCES:
        raise PackageError(f"The owner {person!r} is for packages of the installation.")
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
        folder = Path(name)
        (folder / "files").mkdir()
        archive = folder / "archive.tar"
        upload: Upload = repack(file, folder / "files", archive)
        environment: Path | None = None
        version = _there(runtime, person, upload)
        if refused := settings.allowed_hosts.refused(upload.package.network):
            raise PackageError(" ".join(not_allowed(upload.package.name, refused)))
        if version is None:
            if upload.needs is not None:
                upload, environment = resolve(upload, archive, folder / "environment", settings)
            version = package_operations.push(runtime, person, upload, archive, environment)
    row = upload_operations.own(PACKAGE_UPLOADS.table(runtime), person, version.package)
    return row, version


def _there(runtime: Runtime, person: str, upload: Upload) -> VersionRow | None:
    """Return the version that has been uploaded before, with what it needs; None: there is none.

    Raises UploadConflictError if it has other content: nothing is resolved then.
    """
    package = upload.package
    found = PACKAGE_UPLOADS.table(runtime).version(upload_id(person, package.name), package.version)
    if upload.needs is None or found is None:
        return None
    if package_operations.content_of(found) != upload.source:
        raise UploadConflictError(package_operations.OTHER_CONTENT.format(package=package))
    return found
