"""Explain a pixel of a result: the granule, row and column that its value came from, its quality.

The result and its granules are copied from storage into a folder of their own, and read in a
process of its own, as workers read granules.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from portal.results.result_files import ResultFile, ResultReader
from portal.serving.problems import NotNowError
from reprojection.errors import ReprojectionError
from reprojection.isolation import ReadingProcess
from tasks.bag import protocol
from tasks.bag.model import ArtifactFile
from tasks.bag.runtime import Runtime
from tasks.bag.spec import (
    CollectSpec,
    GroupSpec,
    LayerSpec,
    MosaicSpec,
    PartsSpec,
    ReduceSpec,
)
from tasks.errors import BlobMissingError, CorruptBlobError, StoreError
from tasks.storage.blobs import is_damaged, split_blob

if TYPE_CHECKING:
    from reprojection.explain.explain import Explanation

MOST_BYTES = 400_000_000
_MOST_NAMED = 3
_MOST_TASKS = 400  # that a raster is made of, with its own
_RASTERS = (MosaicSpec, LayerSpec, ReduceSpec, GroupSpec)
_SECONDS = 60.0
_COMMAND = "Explain it with `swathmill explain` where the granules are."


class NotExplainedError(NotNowError):
    """A pixel cannot be explained here."""


class Explainer:
    """Explains one pixel at a time."""

    def __init__(self) -> None:
        self._reading = ReadingProcess(seconds=_SECONDS)

    def close(self) -> None:
        """End the process that reads."""
        self._reading.close()

    def explain(
        self, runtime: Runtime, reader: ResultReader, result: ResultFile, lon: float, lat: float
    ) -> "Explanation":
        """Explain the pixel of a result at a place in degrees.

        Raises:
            NotExplainedError: it is made otherwise than of granules, or of too much, or cannot be
                read.
            GoneError: storage has lost the result.
            StoreError: storage failed.
            CorruptBlobError: bytes were damaged in transit.
        """
        from reprojection.explain.explain import explain

        granules = [*granules_of(runtime, result.key)]
        size = result.file.size + sum(one.file.size for one in granules if one.file)
        if size > MOST_BYTES:
            raise NotExplainedError(
                f"{size / 1e6:,.0f} MB would be read for this pixel, too much for a page.", _COMMAND
            )
        with tempfile.TemporaryDirectory(prefix="swathmill-explain-") as made:
            folder = Path(made)
            raster = folder / "result.tif"
            with raster.open("wb") as out:
                out.writelines(reader.whole(result))
            lost = [
                one.name
                for one in granules
                if not _fetch(runtime, one, folder / "granules" / one.name)
            ]
            (folder / "granules").mkdir(exist_ok=True)
            try:
                found = self._reading.run(explain, raster, lon, lat, granules=[folder / "granules"])
            except ReprojectionError as error:
                raise NotExplainedError(f"The pixel is not explained: {error}.", _COMMAND) from None
        return replace(found, note=_no_longer_stored(lost)) if lost else found


@dataclass(frozen=True, kw_only=True)
class StoredGranule:
    """A granule by its name, its task, and its file; there is none where it is not stored whole."""

    key: str
    name: str
    file: ArtifactFile | None


def granules_of(runtime: Runtime, key: str) -> Iterator[StoredGranule]:
    """Yield the granules that the raster of a task is made of."""
    waiting, seen = [key], {key}
    while waiting:
        try:
            spec = runtime.tasks.spec(waiting.pop())
        except StoreError:
            spec = None
        if isinstance(spec, CollectSpec | PartsSpec):
            task = runtime.tasks.task(spec.key)
            files = task.files if task else ()
            file = next((one for one in files if one.name == spec.granule), None)
            yield StoredGranule(key=spec.key, name=spec.granule, file=file)
            continue
        if isinstance(spec, _RASTERS):
            more = [one.key for one in spec.inputs if one.key not in seen]
            seen.update(more)
            waiting += more
        if not isinstance(spec, _RASTERS) or len(seen) > _MOST_TASKS:
            raise NotExplainedError(
                "Only rasters that are made of few granules are explained here.", _COMMAND
            )


def _no_longer_stored(lost: Sequence[str]) -> str:
    more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
    return (
        f"not stored here whole, or damaged: {', '.join(lost[:_MOST_NAMED])}{more}; "
        "`swathmill explain` tells their pixels where you have them"
    )


def _fetch(runtime: Runtime, granule: StoredGranule, to: Path) -> bool:
    """Fetch a granule; return whether storage still keeps it as it was collected.

    One that is damaged is collected again for the next request that wants it. Raises
    CorruptBlobError for bytes that were damaged in transit.
    """
    if granule.file is None:
        return False
    to.parent.mkdir(exist_ok=True)
    try:
        runtime.blobs.get_file(*split_blob(granule.file.blob), to, granule.file.sha256)
    except BlobMissingError:
        return False
    except CorruptBlobError as error:
        if not is_damaged(runtime.blobs, error):
            raise
        protocol.lose(runtime, granule.key, granule.file.blob)
        return False
    return True
