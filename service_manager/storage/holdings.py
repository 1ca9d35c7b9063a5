"""Tells the portal what the archive holds, so that it can refuse at once what can find nothing.

The archive is looked at beside the manager's rounds: when a portal asks, and from time to time. A
source that cannot list itself makes the whole unknown.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import structlog

from archives.errors import ArchiveError
from archives.kinds.coverage import Coverage
from reprojection.errors import ReprojectionError
from reprojection.read.outline import LayersSeen
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.holdings import holdings
from tasks.holdings.holdings import Holdings
from tasks.holdings.told import held_of

log = structlog.get_logger("manager.holdings")

POLL = 5.0  # seconds between two looks for a question of which no wake-up told
GLANCE = 2.0  # seconds between two looks whether its folders are there
IDLE = 60.0  # seconds between two looks at the archive without a question, at least
_SHARE = 50.0  # of the time that one look takes: so much longer is the next one's wait

ReadLayers = Callable[[Path], LayersSeen]
"""Reads the layers of a granule. Raises ReprojectionError when the file cannot be read."""

Job = Callable[[], None]
_Stamps = tuple[tuple[str, int], ...]  # paths of files, with the times of their last change


class ListableArchive(Protocol):
    """An archive whose holdings are told."""

    def refresh(self) -> None:
        """Bring what is known of it up to date. Raises ArchiveError."""
        ...

    def coverage(self) -> list[Coverage] | None:
        """All it holds; None: it cannot say. Raises ArchiveError."""
        ...

    def absent(self) -> tuple[str, ...]:
        """Folders of it that are not there."""
        ...


class Shelf:
    """An archive that several threads look at: one at a time brings it up to date."""

    def __init__(self, archive: ListableArchive) -> None:
        self._archive = archive
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """As `ListableArchive.refresh`."""
        with self._lock:
            self._archive.refresh()

    def coverage(self) -> list[Coverage] | None:
        """As `ListableArchive.coverage`."""
        with self._lock:
            return self._archive.coverage()

    def absent(self) -> tuple[str, ...]:
        """As `ListableArchive.absent`."""
        return self._archive.absent()


class Teller:
    """Publishes an archive's holdings. `beside` runs a job outside the manager's rounds."""

    def __init__(
        self,
        runtime: Runtime,
        archive: ListableArchive,
        read_layers: ReadLayers,
        beside: Callable[[Job], "Future[None]"],
    ) -> None:
        self._runtime = runtime
        self._archive = archive
        self._read_layers = read_layers
        self._beside = beside
        self._layers: dict[_Stamps, LayersSeen] = {}
        self._published: Holdings | None = None
        self._running: Future[None] | None = None
        self._asked = -1
        self._rests_until = 0.0
        self._next_poll = 0.0
        self._next_look = 0.0
        self._answered = -1
        self._next_glance = 0.0

    def look(self) -> None:
        """Have the next tick read whether a portal asks."""
        self._next_poll = 0.0

    def tick(self) -> None:
        """Run one round: begin to look if it is time or a portal asks.

        It never waits and never raises for storage or an archive that fails: it tries again.
        """
        now = self._runtime.clock.monotonic()
        if now < self._rests_until or (self._running is not None and not self._running.done()):
            return
        if self._running is not None and (error := self._running.exception()) is not None:
            log.error("what the archive holds could not be published", exc_info=error)
            self._running, self._rests_until = None, now + IDLE
            return
        self._running = None
        if now >= self._next_poll:
            try:
                self._asked = holdings.asked(self._runtime.store)
            except StoreError:
                return
            self._next_poll = now + POLL
        number = self._asked
        if number != self._answered or now >= self._next_look:
            self._running = self._beside(lambda: self._look(number))
        elif now >= self._next_glance:
            self._running = self._beside(lambda: self._glance(number))

    def _glance(self, number: int) -> None:
        """Look anew at once when a folder of the archive has gone or come back."""
        known = self._published.absent if self._published is not None else ()
        if self._archive.absent() != known:
            self._look(number)
        self._next_glance = self._runtime.clock.monotonic() + GLANCE

    def _look(self, number: int) -> None:
        clock = self._runtime.clock
        begun = clock.monotonic()
        try:
            self._archive.refresh()
            found = self._archive.coverage()
            held = None if found is None else self._holdings(found)
            if held != self._published or number != self._answered:
                holdings.publish(self._runtime.store, held, number)
            self._published, self._answered = held, number
        except (StoreError, ArchiveError) as error:
            log.warning("what the archive holds could not be published", error=str(error))
        took = clock.monotonic() - begun
        self._next_look = clock.monotonic() + max(IDLE, _SHARE * took)

    def _holdings(self, found: list[Coverage]) -> Holdings | None:
        if len(found) > holdings.MOST_PRODUCTS:
            return None
        known, self._layers = self._layers, {}
        products = []
        for each in found:
            stamps = _stamps(each.samples)
            layers = known.get(stamps) or self._read(each)
            self._layers[stamps] = layers
            products.append(held_of(each, layers))
        return Holdings(products=tuple(products), absent=self._archive.absent())

    def _read(self, covered: Coverage) -> LayersSeen:
        """Return the layers of all samples together; none when one sample cannot be read.

        A sample that cannot be read may have other layers.
        """
        found = LayersSeen(lengths={}, notes={})
        for path in covered.samples:
            try:
                one = self._read_layers(Path(path))
                found.lengths.update(one.lengths)
                found.notes.update(one.notes)
            except ReprojectionError as error:
                log.info("layers are not known", granule=path, error=str(error))
                return LayersSeen(lengths={}, notes={})
        return found


def _stamps(paths: tuple[str, ...]) -> _Stamps:
    """Return what tells samples from others that replace them."""
    found = []
    for path in paths:
        try:
            found.append((path, Path(path).stat().st_mtime_ns))
        except OSError:
            found.append((path, 0))
    return tuple(found)
