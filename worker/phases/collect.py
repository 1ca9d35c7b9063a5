"""Collection: fetch one granule from the archive into storage, complete and in its format."""

import math
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from archives.errors import DamagedCopyError, SourcesSettingError, UnlikeRecordError
from archives.kinds.folder import index_name
from archives.model import GranuleRecord, Progress
from archives.sources import Acceptance, Sources
from modis.collection import Collection
from reprojection.errors import UnreadableGranuleError
from reprojection.inspect.soundness import other_than_named
from reprojection.isolation import run_in_fork
from reprojection.read.kept import opened
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import CollectSpec
from tasks.packages.rasters import SOURCE, blob_of
from tasks.service.classify import AttemptError
from tasks.service.sources import open_sources
from tasks.settings import Settings
from tasks.storage.blobs import GRANULES, RASTERS, file_digest
from worker.files.partials import Partials
from worker.phases.context import Context

_FOLDER = "folder"
_GB = 10**9
_FETCHED = 0.6  # share of an attempt's progress
_PATIENCE = 20.0  # seconds for a connection that the manager took for free; then it is given back
_TELLING_SECONDS = 0.1  # at least, between two reports of a fetch


Check = Callable[[Path, bool], str]
"""Checks the granule at a path, all of its values if so asked, as `checked` does."""


def collect(
    spec: CollectSpec, context: Context, check: Check | None = None
) -> tuple[ArtifactFile, ...]:
    """Fetch the granule, check it, and store it under its own name."""
    path = context.folder("granule") / Path(spec.granule).name
    context.tell(0.0, f"fetching {spec.granule}")
    if spec.source == SOURCE:  # a raster of a user, checked when it was pushed
        with context.spent.fetch():
            context.blobs.get_file(RASTERS, blob_of(spec.checksum), path, spec.checksum)
        return (context.upload(path, container=GRANULES),)
    archive = open_archive(spec, context.settings)
    check = check or partial(checked, apart=context.after_crash)
    fetch(archive, spec, context, path, acceptance(context, check))
    context.tell(0.7, f"storing {spec.granule}")
    return (context.upload(path, container=GRANULES),)


def acceptance(context: Context, check: Check) -> Acceptance:
    """Make the acceptance of copies of granules, which each must pass the check.

    Where the source states no checksum, every value is read, because only the checksums inside the
    file tell damage on the way. A folder's file is as it is, and its values are read when they are
    needed.
    """

    def accept(path: Path, record: GranuleRecord) -> None:
        context.tell(_FETCHED, f"checking {record.name}")
        if context.struck and file_digest(path).sha256 in context.struck:
            raise DamagedCopyError(
                f"{record.name} is damaged, and {record.source} gives the same bytes again: put a "
                "good copy in its place, and retry"
            )
        from_folder = record.source == _FOLDER
        try:
            other = check(path, not (record.checksum or from_folder))
        except UnreadableGranuleError as error:
            raise DamagedCopyError(str(error), again=not from_folder) from error
        if other:
            raise UnlikeRecordError(
                f"the {record.name} of {record.source} holds another granule: {other}; put the "
                "right one in its place, and retry"
            )

    return accept


def fetch(
    archive: Sources,
    spec: CollectSpec,
    context: Context,
    path: Path,
    accept: Acceptance | None = None,
) -> None:
    """Fetch an accepted copy to `path`; resume what an earlier attempt on this machine received."""
    aside = context.scratch / "fetching"
    aside.mkdir(exist_ok=True)
    with context.spent.fetch(), _place(spec, context.settings, aside) as folder:
        to, progress = folder / path.name, _progress(context, spec)
        fetched = archive.fetch(record_of(spec), to, progress, accept)
        shutil.move(fetched.path, path)


def _place(spec: CollectSpec, settings: Settings, aside: Path) -> AbstractContextManager[Path]:
    """Return where a granule is fetched to: of a folder, where nothing is downloaded, aside."""
    if spec.source in ("", _FOLDER):
        return nullcontext(aside)
    bound = int(settings.cache_gb / 4 * _GB)
    return Partials(settings.data_dir / "downloads", bound).place(spec.key, aside)


def _progress(context: Context, spec: CollectSpec) -> Progress:
    """Report the progress of the fetch as the first 60 % of the attempt.

    It is reported ten times a second at most, at its begin and at its end.
    """
    reported = -math.inf

    def tell(done: int, total: int) -> None:
        nonlocal reported
        now = time.monotonic()
        if total and (done >= total or now - reported >= _TELLING_SECONDS):
            reported = now
            context.tell(_FETCHED * min(1.0, done / total), f"fetching {spec.granule}")

    return tell


def open_archive(spec: CollectSpec, settings: Settings) -> Sources:
    """Open the archives that may have a granule; the one that listed it comes first.

    Raises:
        AttemptError: this worker has no such archive.
    """
    try:
        # Made if needed, of names only, shared by the machine's workers. A manager has its own.
        return open_sources(
            settings, settings.data_dir / index_name("worker-index"), patience=_PATIENCE
        )
    except SourcesSettingError as error:
        raise AttemptError(
            Category.SOURCE_NOT_PUBLISHED,
            f"{spec.granule} is to come from the archive {spec.source or 'folder'!r}, but this "
            f"worker has none: {error}",
        ) from error


def checked(path: Path, values: bool, *, apart: bool = False) -> str:
    """Check a granule, `apart` in a fork, where a crash is an UnreadableGranuleError."""
    if apart:
        return run_in_fork([path], check_granule, path, values=values)
    return check_granule(path, values=values)


def check_granule(path: Path, *, values: bool = False) -> str:
    """Open the granule by the library that reads it, and check its metadata.

    With `values`, every value is read, too. A process that keeps granules keeps it open: its next
    task may read it. Returns which other granule it holds than its name says, "" if none.

    Raises:
        BadFormatError: it is not HDF.
        UnreadableGranuleError: it is damaged.
    """
    with opened(path) as (granule, _):
        granule.check()
        if values:
            granule.verify()
        return other_than_named(path, granule)


def record_of(spec: CollectSpec, stamp: str = "") -> GranuleRecord:
    """Make the record that fetching needs, without position and time, which planning needs.

    `stamp` is that of a file that is to be read where it lies.
    """
    unknown = datetime.fromtimestamp(0, UTC)
    return GranuleRecord(
        name=spec.granule,
        product=spec.product,
        collection=Collection(spec.collection),
        start=unknown,
        end=unknown,
        tile=None,
        boundary=None,
        production_time=spec.production,
        size=spec.size,
        checksum=spec.checksum or None,
        checksum_type=spec.checksum_type or None,
        url=spec.url,
        day_night="",
        source=spec.source or _FOLDER,
        stamp=stamp,
    )
