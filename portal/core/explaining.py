"""Explain a pixel of a result: the granule, row and column that its value came from, its quality.

The result and its granules are copied from storage into a folder of their own, and read in a
process of its own, as workers read granules.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from portal.core.problems import NotNowError
from portal.core.results import ResultFile, ResultReader
from reprojection.errors import ReprojectionError
from reprojection.read.isolation import ReadingProcess
from tasks.errors import BlobMissingError, StoreError
from tasks.model.model import ArtifactFile
from tasks.model.spec import CollectSpec, MosaicSpec, ReprojectSpec
from tasks.storage.blobs import split_blob
from tasks.tables.runtime import Runtime

if TYPE_CHECKING:
    from reprojection.explain.explain import Explanation

MOST_BYTES = 400_000_000
_MOST_TASKS = 400  # that a raster of one date is made of
_SECONDS = 60.0
_COMMAND = "Explain it with `swathmill explain` where the granules are."


class NotExplainedError(NotNowError):
    """A pixel cannot be explained here."""


class Explainer:
    """Explains one pixel at a time."""

    def __init__(self) -> None:
        self._reading = ReadingProcess(seconds=_SECONDS)

    def explain(
        self, runtime: Runtime, reader: ResultReader, result: ResultFile, lon: float, lat: float
    ) -> "Explanation":
        """Explain the pixel of a result at a place in degrees.

        Raises:
            NotExplainedError: it is made otherwise than of granules, or of too much, or cannot be
                read.
            GoneError: storage has lost the result.
            StoreError: storage failed.
        """
        from reprojection.explain.explain import explain

        granules = [*_granules(runtime, result.key)]
        size = result.file.size + sum(file.size for _, file in granules)
        if size > MOST_BYTES:
            raise NotExplainedError(
                f"{size / 1e6:,.0f} MB would be read for this pixel, too much for a page.", _COMMAND
            )
        with tempfile.TemporaryDirectory(prefix="swathmill-explain-") as made:
            folder = Path(made)
            raster = folder / "result.tif"
            with raster.open("wb") as out:
                out.writelines(reader.whole(result))
            for name, file in granules:
                _copy(runtime, file, folder / "granules" / name)
            (folder / "granules").mkdir(exist_ok=True)
            try:
                return self._reading.run(explain, raster, lon, lat, granules=[folder / "granules"])
            except ReprojectionError as error:
                raise NotExplainedError(f"The pixel is not explained: {error}.", _COMMAND) from None


def _granules(runtime: Runtime, key: str) -> Iterator[tuple[str, ArtifactFile]]:
    """Yield the granules that the raster of a task is made of, as far as storage has them."""
    waiting, seen = [key], {key}
    while waiting:
        try:
            spec = runtime.tasks.spec(waiting.pop())
        except StoreError:
            spec = None
        if isinstance(spec, CollectSpec):
            task = runtime.tasks.task(spec.key)
            yield from ((spec.granule, file) for file in (task.files[:1] if task else ()))
            continue
        if not isinstance(spec, MosaicSpec | ReprojectSpec) or len(seen) > _MOST_TASKS:
            raise NotExplainedError(
                "Only rasters of layers that are made of few granules are explained here.", _COMMAND
            )
        more = [one.key for one in spec.inputs if one.key not in seen]
        seen.update(more)
        waiting += more


def _copy(runtime: Runtime, file: ArtifactFile, to: Path) -> None:
    """Copy a granule; one that storage no longer keeps is left out."""
    to.parent.mkdir(exist_ok=True)
    try:
        with to.open("wb") as out:
            for part in runtime.blobs.stream(*split_blob(file.blob), 0, None):
                out.write(part)
    except BlobMissingError:
        to.unlink()
