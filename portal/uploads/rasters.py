"""Uploads of users' rasters on their way into storage."""

import datetime as dt
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from portal.serving.problems import TooLargeError
from reprojection.catalogue.user_raster import NAME, UserRaster
from reprojection.errors import ReprojectionError
from reprojection.isolation import ReadingProcess
from reprojection.user_rasters.source import RasterChoices, RasterFile, RasterRefusedError
from tasks.bag.runtime import Runtime
from tasks.packages.https_fetch import AddressRefusedError, fetch
from tasks.packages.package_reference import VERSION
from tasks.settings import Settings
from tasks.uploads import raster_operations, upload_operations
from tasks.uploads.raster_operations import RASTER_UPLOADS
from tasks.uploads.upload_table import UploadRow

MOST_UPLOADED = 1 << 30  # bytes of all files of one upload
MOST_CONVERTED = 4 << 30  # bytes of the file in which an upload is kept
MOST_FILES = 400
_FORM_BYTES = 1 << 20  # of a form besides its files
_NEAR_LIMIT = 1 << 22  # bytes below it at which a file may stop: it is written chunk by chunk
_SECONDS = 900.0  # to read and rewrite an upload
_MEMORY = 4 << 30
_TEXTS = ("name", "version", "url", "layers", "classes", "units", "dates", "period")


@dataclass(frozen=True, kw_only=True)
class RasterUpload:
    """What a form says of a raster, as texts; lists are separated by commas."""

    name: str = ""
    version: str = ""
    url: str = ""
    layers: str = ""
    classes: str = ""
    units: str = ""
    dates: str = ""
    period: str = ""

    @classmethod
    def of(cls, form: FormData) -> "RasterUpload":
        """Read the fields of a form."""
        texts = {name: form.get(name, "") for name in _TEXTS}
        return cls(
            **{name: text.strip()[:2000] for name, text in texts.items() if isinstance(text, str)}
        )

    def choices(self) -> RasterChoices:
        """Read what is said of the raster; raise RasterRefusedError for what means nothing."""
        if not re.fullmatch(NAME, self.name):
            raise RasterRefusedError(
                f"{self.name!r} is not a name of a raster: write small letters, digits and `-`."
            )
        if self.version and not re.fullmatch(VERSION, self.version):
            raise RasterRefusedError(
                f"{self.version!r} is not a version: write letters, digits, `.`, `_`, `+` and `-`."
            )
        if self.period and not (
            re.fullmatch(r"[0-9]{1,3}", self.period) and 0 < int(self.period) <= 366
        ):
            raise RasterRefusedError(
                f"the period {self.period!r} is not a number of days from 1 to 366."
            )
        pairs = [one.partition("=") for one in words(self.units)]
        if not all(equals for _, equals, _ in pairs):
            raise RasterRefusedError(f"the units {self.units!r} are not written LAYER=UNIT.")
        return RasterChoices(
            name=self.name,
            layers=tuple(words(self.layers)),
            classes=tuple(words(self.classes)),
            units={layer.strip(): unit.strip() for layer, _, unit in pairs},
            period=int(self.period or 0),
        )

    def days(self, files: int) -> list[dt.date | None]:
        """Return the date of each file, None where it is not given."""
        given = words(self.dates)
        if given and len(given) != files:
            raise RasterRefusedError(
                f"{len(given)} dates are given for {files} files. Give one for each, or none."
            )
        try:
            return [dt.date.fromisoformat(one) for one in given] or [None] * files
        except ValueError as error:
            raise RasterRefusedError(f"{error}. Write dates as 2012-04-01.") from None


def words(text: str) -> list[str]:
    """Split a text at its commas."""
    return [one.strip() for one in text.split(",") if one.strip()]


async def received(
    request: Request, push: Callable[[RasterUpload, Sequence[UploadFile]], UploadRow]
) -> UploadRow:
    """Read a form with files, and push them in another thread.

    Raises TooLargeError for one that is too large or does not say its size.
    """
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > MOST_UPLOADED + _FORM_BYTES:
        raise TooLargeError(
            f"The files are larger than {MOST_UPLOADED >> 20} MiB, or do not say their size.",
            "Cut the raster to your region, or make it coarser.",
        )
    async with request.form(max_files=MOST_FILES, max_fields=len(_TEXTS) + 2) as form:
        files = [one for one in form.getlist("file") if isinstance(one, UploadFile)]
        return await run_in_threadpool(
            push, RasterUpload.of(form), [one for one in files if one.filename]
        )


def push(
    runtime: Runtime,
    settings: Settings,
    person: str,
    upload: RasterUpload,
    files: Sequence[UploadFile],
) -> UploadRow:
    """Check the files of a raster, or the one at an address, and store them as a version.

    Raises:
        RasterRefusedError: they cannot be used; says why.
        UploadConflictError: the version is there with other content, or there are too many.
    """
    choices = upload.choices()
    if bool(files) == bool(upload.url):
        raise RasterRefusedError("give files, or the address of one file: one of the two.")
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
        folder = Path(name)
        given = _kept(upload, files, settings, folder)
        made = folder / "made"
        made.mkdir()
        out = made / "raster.h5"
        raster = _converted(given, choices, out)
        raster_operations.check_description(raster)
        # What follows in an address may be a signature.
        address = upload.url.partition("?")[0].partition("#")[0]
        came_from = address or ", ".join(one.name for one in given)
        version = raster_operations.push(
            runtime, person, raster, upload.version, out, came_from[:500]
        )
    return upload_operations.own(RASTER_UPLOADS.table(runtime), person, version.package)


def _kept(
    upload: RasterUpload, files: Sequence[UploadFile], settings: Settings, folder: Path
) -> list[RasterFile]:
    """Put the files of an upload into a folder, each under a name of ours."""
    days = upload.days(len(files) or 1)
    if upload.url:
        path = folder / "0"
        try:
            fetch(upload.url, settings.allowed_hosts, path, MOST_UPLOADED)
        except AddressRefusedError as error:
            raise RasterRefusedError(str(error)) from None
        name = upload.url.partition("?")[0].rpartition("/")[2][:200]
        return [RasterFile(path=path, name=name or "the file", day=days[0])]
    kept = []
    for number, (file, day) in enumerate(zip(files, days, strict=True)):
        path = folder / str(number)
        with path.open("xb") as out:
            while part := file.file.read(1 << 20):
                out.write(part)
        name = Path(file.filename or "").name[:200]
        kept.append(RasterFile(path=path, name=name or "the file", day=day))
    return kept


def _converted(files: list[RasterFile], choices: RasterChoices, out: Path) -> UserRaster:
    """Read and rewrite the files in a process that may die, and writes `out`'s folder alone."""
    # It imports HDF5, which a portal that starts does not need.
    from reprojection.user_rasters.conversion import convert

    with ReadingProcess(
        seconds=_SECONDS, memory=_MEMORY, writing=out.parent, most_written=MOST_CONVERTED
    ) as process:
        try:
            return process.run(convert, files, choices, out)
        except ReprojectionError as error:
            if out.exists() and out.stat().st_size > MOST_CONVERTED - _NEAR_LIMIT:
                raise RasterRefusedError(
                    f"{files[0].name} holds too much: the raster takes more than "
                    f"{MOST_CONVERTED >> 20:,} MiB as it is kept. Cut it to your region, make it "
                    "coarser, or upload its dates or layers as several rasters."
                ) from error
            if isinstance(error, RasterRefusedError):
                raise
            raise RasterRefusedError(
                f"{files[0].name} cannot be read: reading it failed or took too much memory or "
                "time. It is damaged or too large; make it again, or smaller."
            ) from error
