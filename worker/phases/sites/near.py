"""Extraction of several dates in granules that lie in a folder of this machine.

They are copied for the attempt and not stored. What a granule cannot give is told, and the others
are read: the task's key holds the stamp of each file, so a file that is put in the place of a
damaged one makes another task.
"""

from collections.abc import Sequence
from pathlib import Path

import structlog

from archives.errors import UnlikeRecordError
from modis.formats import is_granule_file
from reprojection.errors import (
    BadFormatError,
    ChoiceRefusedError,
    NoGeolocationError,
    UnknownLayerError,
    UnreadableGranuleError,
)
from reprojection.read.completeness import (
    WHOLE,
    Completeness,
    Missing,
    found_besides,
    of_parts,
    refused,
)
from reprojection.warp.sites import Places, Readings, read_sites
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.site_specs import ExtractNearSpec, NearDate
from tasks.service.classify import AttemptError
from worker.phases.collect import checked, open_archive, record_of
from worker.phases.completeness import completeness_of
from worker.phases.context import Context, is_readable
from worker.phases.sites.extract import ROWS, listed, places_of, rows_of, store, wanted_layers

log = structlog.get_logger("worker.sites")

_NEAR = "near"
_REFUSED = (ChoiceRefusedError, NoGeolocationError, UnknownLayerError)


def copy_near(spec: ExtractNearSpec, context: Context) -> None:
    """Copy the granules that are there as listed to where they are read.

    Raises:
        AttemptError: this worker has no such archive.
        ArchiveError, OSError: a file is there and cannot be read now.
    """
    archive = open_archive(spec.granules[0], context.settings)
    folder = _folder(context)
    folder.mkdir(parents=True)
    with context.spent.fetch():
        for number, (one, stamp) in enumerate(zip(spec.granules, spec.stamps, strict=True)):
            context.tell(0.3 * number / len(spec.granules), f"copying {one.granule}")
            to = folder / Path(one.granule).name
            try:
                archive.copy_near(record_of(one, stamp), to)
            except UnlikeRecordError as error:
                log.warning("granule is left out", granule=one.granule, reason=str(error))
                to.write_bytes(b"")  # which is found to be no granule


def extract_near(spec: ExtractNearSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Read the granules of each date at the sites."""
    if not _folder(context).is_dir():
        copy_near(spec, context)
    fetched = context.fetch_inputs(until=0.3)
    places = places_of(listed([path for paths in fetched.values() for path in paths]))
    dates = _Dates(spec, context, places)
    dates.check()
    context.tell(0.4, f"reading {len(spec.layers)} layers of {len(spec.granules)} granules")
    rows = [dates.read(date) for date in spec.dates]
    path = context.folder("rows") / ROWS
    store(rows, path)
    context.tell(0.9, f"storing {ROWS}")
    return (context.upload(path, completeness=dates.completeness()),)


class _Dates:
    """Reads dates one after the other, and remembers what they lack."""

    def __init__(self, spec: ExtractNearSpec, context: Context, places: Places) -> None:
        self._spec, self._context, self._places = spec, context, places
        folder = _folder(context)
        self._paths = {one.granule: folder / Path(one.granule).name for one in spec.granules}
        self._lost: dict[str, Category] = {}  # by granule
        self._found: list[Completeness] = []
        self._refused: list[Exception] = []

    def check(self) -> None:
        """Open each granule once, and leave out what is gone, damaged or another one."""
        apart = self._context.after_crash
        for name, path in self._paths.items():
            if not path.exists():
                self._lost[name] = Category.SOURCE_NOT_PUBLISHED
                continue
            try:
                # After a crash all that will be read is read in a process that may die.
                if checked(path, apart, apart=apart):
                    self._lost[name] = Category.BAD_IMAGE_FORMAT
            except UnreadableGranuleError:
                self._lost[name] = Category.UNREADABLE_INPUT_FILE
            except BadFormatError:
                self._lost[name] = Category.BAD_IMAGE_FORMAT

    def read(self, date: NearDate) -> object:
        """Return the rows of a date."""
        spec = self._spec
        wanted = wanted_layers(spec.layers, spec.qa, spec.solar_times, date.band)
        readings, lacks = list[Readings](), WHOLE
        while granules := [name for name in date.granules if name not in self._lost]:
            paths = [self._paths[name] for name in granules]
            try:
                readings, lacks = read_sites(paths, wanted, self._places, mask=spec.mask)
            except UnreadableGranuleError as error:
                self._leave_out(granules, error)
                continue
            except _REFUSED as error:
                self._refused.append(error)
                lacks = _without(granules, error)
            break
        self._found.append(lacks)
        names = dict(zip((one.layer for one in wanted), spec.layers, strict=True))
        found = [(names[one.layer], one) for one in readings]
        return rows_of(spec.product, spec.collection, date.day, None, found)

    def _leave_out(self, granules: Sequence[str], error: UnreadableGranuleError) -> None:
        """Leave out the damaged ones; raise the error if none of them is."""
        damaged = [
            name
            for name in granules
            if self._paths[name].name in str(error)
            or len(granules) == 1
            or (is_granule_file(name) and not is_readable(self._paths[name]))
        ]
        if not damaged:
            raise error
        self._lost |= dict.fromkeys(damaged, Category.UNREADABLE_INPUT_FILE)

    def completeness(self) -> Completeness:
        """Say what the rows lack; raise what refused all dates."""
        if len(self._refused) == len(self._spec.dates):
            raise self._refused[0]
        if len(self._lost) == len(self._spec.granules):
            name, why = next(iter(self._lost.items()))
            raise AttemptError(why, f"no granule of these dates can be read; {name}: {why.value}")
        lost = [Missing(what=name, why=why.value) for name, why in self._lost.items()]
        said = completeness_of(self._spec, [WHOLE] * (len(self._spec.granules) - len(lost)), lost)
        return found_besides(said, of_parts(self._found))


def _without(granules: Sequence[str], error: Exception) -> Completeness:
    """Return the completeness of a date of which nothing could be read."""
    return of_parts(
        [], len(granules), [Missing(what=name, why=refused(error)) for name in granules]
    )


def _folder(context: Context) -> Path:
    return (context.given or context.scratch / "inputs") / _NEAR
