"""Collection in part: fetch of a granule what sites or cells take, where that is far less.

The granule is read here as they read it, to find out what that takes: the reader says which bytes
it lacks, and they are fetched, until it lacks none. What is stored has its own key, so nobody takes
it for the granule. Where parts do not serve, the granule is fetched whole, as in any collection:
its source sends no parts, it was replaced meanwhile, it is damaged, or who read the parts lacked
some.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import structlog

from archives.errors import AnswerBrokenError, DownloadFailedError, UnlikeRecordError
from archives.sources import Sources
from reprojection.errors import (
    ChoiceRefusedError,
    GridError,
    NoGeolocationError,
    NotHeldError,
    UnknownLayerError,
    UnreadableGranuleError,
)
from reprojection.formats.held import PACKED, Held, pack
from reprojection.reproject import Options, reproject
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import CollectSpec, PartsSpec
from tasks.holdings.parts import PartsFolder
from tasks.holdings.structures import open_structures
from tasks.storage.blobs import GRANULES
from worker.phases.collect import (
    Check,
    acceptance,
    check_granule,
    checked,
    fetch,
    open_archive,
    record_of,
)
from worker.phases.context import Context
from worker.phases.reproject import grid_of, layers_of
from worker.phases.sites.extract import touch

log = structlog.get_logger("worker.parts")

_WHOLE_AFTER = (AnswerBrokenError, DownloadFailedError, UnreadableGranuleError, NotHeldError)
"""What a whole granule may not meet: a server may answer it alone as it should."""

_REFUSED = (ChoiceRefusedError, GridError, NoGeolocationError, UnknownLayerError)

_FETCHED = 0.7  # share of an attempt's progress
_ROUND = 0.1  # of it after the first call, more after each

Reader = Callable[[Sequence[Path], Path | None], str]
"""Reads granules as `read_for` does."""


def collect_parts(
    spec: PartsSpec,
    context: Context,
    read: Reader | None = None,
    check: Check | None = None,
    *,
    whole: bool = False,
) -> tuple[ArtifactFile, ...]:
    """Fetch the parts, and store them packed under the granules' names.

    `read` and `check` open granules; by default in this process. `whole`: fetch all of them.
    """
    sites = context.fetch_inputs(until=0.05)[0][0] if spec.inputs else None
    archive = open_archive(spec.granules[0], context.settings)
    check = check or partial(checked, apart=context.after_crash)
    read = read or partial(read_for, spec)
    if not (whole or context.struck or context.after_crash):
        try:
            found = _parts(archive, spec, context, read, check, sites)
            return tuple(_stored(path, context) for path in found)
        except _WHOLE_AFTER as error:
            log.info("granule is fetched whole", granule=spec.granule, reason=str(error))
    return tuple(_whole(archive, one, context, check) for one in spec.granules)


def read_for(spec: PartsSpec, paths: Sequence[Path], sites: Path | None) -> str:
    """Read granules as the cells, or the extraction at the sites of a file, will.

    Says which other granule one holds, "" if none. What is wrong with the request is said by those
    who read.

    Raises:
        NotHeldError: bytes are needed that are not held.
        UnreadableGranuleError, BadFormatError: a granule is damaged.
    """
    for path in paths:
        if other := check_granule(path):
            return other
    if sites is not None:
        with suppress(*_REFUSED):
            touch(spec, paths, sites)
    layers = layers_of(spec.layers, spec.qa, spec.band)
    for grid, (layer, rule) in product(map(grid_of, spec.grids or ()), layers):
        with suppress(*_REFUSED):
            # Any method reads the same part.
            options = Options(resampling="nearest", qa=rule, mask=spec.mask)
            reproject(paths, layer, grid, options)
    return ""


def _parts(
    archive: Sources,
    spec: PartsSpec,
    context: Context,
    read: Reader,
    check: Check,
    sites: Path | None,
) -> Sequence[Path]:
    accept = acceptance(context, check)
    folder = PartsFolder(
        archive,
        context.folder("granules"),
        None,
        copies=True,
        accept=accept,
        structures=open_structures(context.settings.data_dir, context.blobs),
    )
    calls = 0

    def look(paths: Sequence[Path]) -> Sequence[Path]:
        nonlocal calls
        calls += 1
        context.tell(_FETCHED * (1 - (1 - _ROUND) ** calls), f"fetching parts of {spec.granule}")
        if other := read(paths, sites):
            raise UnlikeRecordError(f"{spec.granule} holds another granule: {other}")
        return paths

    with context.spent.fetch():
        return folder.read([record_of(one) for one in spec.granules], look)


def _stored(path: Path, context: Context) -> ArtifactFile:
    if Held.of(path) is None:
        return context.upload(path, container=GRANULES)
    packed = path.with_name(path.name + PACKED)
    pack(path, packed)
    return context.upload(packed, container=GRANULES)


def _whole(archive: Sources, one: CollectSpec, context: Context, check: Check) -> ArtifactFile:
    path = context.folder(f"whole {one.key[-12:]}") / Path(one.granule).name
    context.tell(0.1, f"fetching {one.granule} whole")
    fetch(archive, one, context, path, acceptance(context, check))
    return context.upload(path, container=GRANULES)
