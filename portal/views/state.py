"""What the portal keeps to show layers: the sources, processes that read, and tiles drawn last.

Nothing is drawn in the portal's own process. Few processes draw, with a low priority, so that a
crowd of maps waits for them, not workers; who has left is not drawn for.
"""

import asyncio
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from queue import LifoQueue
from typing import TypeVar

import numpy as np
from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from archives.errors import ArchiveError, SourcesSettingError
from archives.formats.boundary import touches
from archives.kinds.folder import index_name
from archives.model import GranuleRecord
from archives.sources import Sources
from modis.box import LonLatBox
from portal.serving.caches import Kept
from portal.serving.portal import Portal
from portal.serving.problems import BadCallError, NotFoundError, PortalError
from portal.views.tile_matrix import SETS, TileMatrixSet, read_set
from reprojection.errors import ChoiceRefusedError, ReprojectionError, UnknownLayerError
from reprojection.isolation import ReadingProcess
from tasks.holdings.granule_lists import granules_of_day
from tasks.holdings.parts import PartsFolder
from tasks.holdings.structures import open_structures
from tasks.service.sources import open_sources
from tasks.settings import WrongSettingError

T = TypeVar("T")

MOST_GRANULES = 24
"""Granules that one tile is drawn from; a tile of more is too coarse."""

_AT_ONCE = 2
_PATIENCE = 10.0  # seconds that a search waits for a connection
_FRESH = 60.0  # seconds for which a listing is taken as it was
_KEPT_BYTES = 64 * 10**6  # of tiles
_HELD_BYTES = 2 * 10**9  # of granules that lie elsewhere
_HALF_TURN = 180.0  # degrees
_SECONDS = 30.0  # that reading for one tile may take
MATRIX_SETS = "tile-matrix-sets"
"""Folder in the data folder with documents of further tile matrix sets."""


class NotShownError(PortalError):
    """The archive or a granule does not give what is to be shown."""

    status = HTTPStatus.BAD_GATEWAY


class TooCoarseError(PortalError):
    """So many granules touch a tile that it is not drawn."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


class LeftError(PortalError):
    """Nobody waits for the answer any more."""

    status = HTTPStatus.REQUEST_TIMEOUT


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A product in a collection, on a day."""

    product: str
    collection: str
    day: date


class Views:
    """Shows layers of granules that the archive has."""

    def __init__(self, portal: Portal) -> None:
        """Read documents of tile matrix sets. Raises WrongSettingError for one that is none."""
        self._portal = portal
        self.matrix_sets: Mapping[str, TileMatrixSet] = {
            **SETS,
            **_sets_in(portal.settings.data_dir / MATRIX_SETS),
        }
        self._opening = threading.Lock()
        self._folder: PartsFolder | None = None
        self._looked: float | None = None
        self._listed: Kept[tuple[GranuleRecord, ...]] = Kept(64)
        self._tiles: OrderedDict[str, bytes] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._processes: LifoQueue[ReadingProcess] = LifoQueue()
        self._begun = False
        self._every = [
            ReadingProcess(seconds=_SECONDS, modules=("portal.views.drawing",))
            for _ in range(_AT_ONCE)
        ]
        for process in self._every:
            weakref.finalize(self, process.close)
            self._processes.put(process)

    async def in_turn(self, request: Request, work: Callable[[], T]) -> T:
        """Do some work in a thread when it is its turn; who has left by then gets nothing."""
        async with self._turns:
            if await request.is_disconnected():
                raise LeftError("Nobody waits for this answer.", "Ask again.")
            return await run_in_threadpool(work)

    def matrix_set(self, name: str) -> TileMatrixSet:
        """Find a tile matrix set by its name. Raises NotFoundError."""
        found = self.matrix_sets.get(name)
        if found is None:
            raise NotFoundError(
                f"There is no tile matrix set {name!r}.",
                f"There are {', '.join(self.matrix_sets)}.",
            )
        return found

    def begin(self) -> None:
        """Start the processes that draw: somebody may look at a layer soon."""
        if self._begun:
            return
        self._begun = True
        for process in self._every:
            process.begin()

    def kept(self, key: str) -> bytes | None:
        """Return a tile that was drawn before."""
        found = self._tiles.get(key)
        if found is not None:
            self._tiles.move_to_end(key)
        return found

    def keep(self, key: str, tile: bytes) -> None:
        """Keep a tile for who asks next."""
        self._tiles[key] = tile
        while sum(map(len, self._tiles.values())) > _KEPT_BYTES:
            self._tiles.popitem(last=False)

    def collection(self, product: str) -> str:
        """Return the newest collection of a product that the archive has.

        Raises NotFoundError and NotShownError.
        """
        try:
            held = self._sources().holdings(product)
        except ArchiveError as error:
            raise _not_given(error) from error
        if not held:
            raise NotFoundError(
                f"The archive has no {product}.", "GET /api/products lists the catalogue."
            )
        return str(max((one.collection for one in held), key=lambda one: one.age))

    def granules(self, chosen: Chosen, box: LonLatBox, most: int) -> tuple[GranuleRecord, ...]:
        """List the granules of a day that touch a box; raise TooCoarseError beyond `most`.

        Raises NotFoundError where there is none anywhere, NotShownError where the archive does not
        answer.
        """
        said = f"{chosen} {int(self._now() // _FRESH)}"
        every = self._listed.get(said, lambda: self._list(chosen))
        if not every:
            raise NotFoundError(
                f"The archive has no granule of {chosen.product} on {chosen.day}.",
                "Choose a day that it has.",
                field="day",
            )
        found = tuple(one for one in every if touches(one, box))
        if sum(one.product == chosen.product for one in found) > most:
            raise TooCoarseError(
                f"More than {most} granules of {chosen.product} lie here.", "Zoom in.", field="zoom"
            )
        return found

    def run(
        self,
        records: Sequence[GranuleRecord],
        call: Callable[[ReadingProcess, tuple[str, ...], tuple[Path, ...]], T],
    ) -> T:
        """Have a process read granules, fetching what it lacks of them.

        `call` runs a function in the process with the granules' files, as text, and the folders
        that hold them.

        Raises:
            NotFoundError, BadCallError, NotShownError.
        """
        process = self._processes.get()
        try:
            return self._parts().read(
                records, lambda files: call(process, tuple(map(str, files)), self._roots(files))
            )
        except ArchiveError as error:
            raise _not_given(error) from error
        except UnknownLayerError as error:
            raise NotFoundError(f"{error}.", "Name one of these.") from error
        except ChoiceRefusedError as error:
            raise BadCallError(f"{error}.", "Choose otherwise.") from error
        except ReprojectionError as error:
            raise NotShownError(f"{error}.", "Choose another day or place.") from error
        finally:
            self._processes.put(process)

    def tag(self, key: str) -> str:
        """Return what tells one tile from another, for a browser."""
        return sha256(key.encode()).hexdigest()[:32]

    def identity(self, records: Sequence[GranuleRecord]) -> str:
        """Return a text that changes with the granules."""
        said = repr(
            [(one.name, one.url, one.size, one.production_time, one.stamp) for one in records]
        )
        return sha256(said.encode()).hexdigest()[:32]

    def _list(self, chosen: Chosen) -> tuple[GranuleRecord, ...]:
        try:
            sources = self._sources()
            return tuple(granules_of_day(sources, chosen.product, chosen.collection, chosen.day))
        except ArchiveError as error:
            raise _not_given(error) from error

    def _now(self) -> float:
        return self._portal.runtime.clock.monotonic()

    def _parts(self) -> PartsFolder:
        """Open the sources when they are first needed."""
        with self._opening:
            if self._folder is None:
                settings = self._portal.settings
                reader = ReadingProcess()
                weakref.finalize(self, reader.close)
                try:
                    # The manager's own index, where it is on this machine.
                    index = settings.data_dir / index_name("archive-index")
                    sources = open_sources(settings, index, reader.read_outlines, _PATIENCE)
                except (ArchiveError, SourcesSettingError) as error:
                    raise _not_given(error) from error
                self._folder = PartsFolder(
                    sources,
                    settings.data_dir / "views",
                    _HELD_BYTES,
                    structures=open_structures(settings.data_dir, self._portal.runtime.blobs),
                    in_haste=True,
                )
            return self._folder

    def _sources(self) -> Sources:
        """Return the sources, having looked a minute ago at most at what they hold."""
        sources, now = self._parts().sources, self._now()
        if self._looked is None or now - self._looked > _FRESH:
            self._looked = now
            sources.refresh()
        return sources

    def _roots(self, files: Sequence[Path]) -> tuple[Path, ...]:
        """Return few folders that hold files: a process is begun anew for others."""
        known = [self._parts().folder.resolve()]
        place = self._portal.settings.archive
        if place and "://" not in place:
            known.insert(0, Path(place).resolve())
        others = {
            file.parent.resolve()
            for file in files
            if not any(file.resolve().is_relative_to(one) for one in known)
        }
        return (*(one for one in known if one.is_dir()), *sorted(others))


def _sets_in(folder: Path) -> dict[str, TileMatrixSet]:
    """Read the documents of a folder. Raises WrongSettingError."""
    found: dict[str, TileMatrixSet] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            one = read_set(path.read_bytes())
        except (OSError, ValueError) as error:
            raise WrongSettingError(
                f"{path} is no tile matrix set: {error}.", "Correct it, or take it away."
            ) from error
        found[one.name] = one
    return found


def _not_given(error: Exception) -> NotShownError:
    return NotShownError(f"The archive does not give it: {error}.", "Try again later.")


def extent_of(record: GranuleRecord) -> LonLatBox | None:
    """Return a box around a granule; None where its place is unknown or crosses 180 degrees."""
    if record.tile is not None:
        west, east = record.tile.sides(np.linspace(record.tile.south, record.tile.north, 21))
        south, north = record.tile.south, record.tile.north
        return LonLatBox(
            max(float(west.min()), -180.0), south, min(float(east.max()), 180.0), north
        )
    points = [point for ring in record.boundary or () for point in ring]
    if not points:
        return None
    lons, lats = [lon for lon, _ in points], [lat for _, lat in points]
    crossing = max(lons) - min(lons) > _HALF_TURN
    return None if crossing else LonLatBox(min(lons), min(lats), max(lons), max(lats))
