"""An archive that says what it holds, and a manager that only tells the portal so."""

import datetime as dt
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from archives.kinds.coverage import Coverage, Square
from modis.collection import Collection
from modis.tile import Tile
from reprojection.read.outline import LayersSeen
from service_manager.storage.holdings import Job, Teller
from tasks.bag.runtime import Runtime

NOTE = "its valid_range is 'all', which is no range: not used"
FIRST, LAST = dt.date(2012, 1, 1), dt.date(2012, 4, 30)
LAYERS: dict[str, dict[str, tuple[int, ...]]] = {
    "/MCD15A2": {"Lai_1km": (), "Fpar_1km": (), "FparLai_QC": (), "LaiStdDev_1km": ()},
    "/MYD04_L2": {
        "Optical_Depth_Land_And_Ocean": (),
        "Corrected_Optical_Depth_Land": (3,),
        "Scan_Start_Time": (),
    },
    "/NEWPROD": {"heat": (), "waves": (4,)},
}


class StillArchive:
    """Composites of two tiles, one day of swaths over Europe, and a product nobody has described.

    `held` may be changed; what is new is told once the archive has been looked at.
    """

    def __init__(self) -> None:
        days = tuple(FIRST + dt.timedelta(days=8 * number) for number in range(16))
        europe = frozenset(Square(col, row) for col in (17, 18) for row in (13, 14))
        tiles = frozenset({Tile(17, 3), Tile(18, 3)})
        self.gone: tuple[str, ...] = ()
        self.held: list[Coverage] | None = [
            self._covered("MCD15A2", "5", days, tiles=tiles),
            self._covered("MYD04_L2", "6", (FIRST,), cells=europe),
            self._covered("NEWPROD", "1", (FIRST,), anywhere=True),
        ]

    def refresh(self) -> None:
        """There is nothing to bring up to date."""

    def coverage(self) -> list[Coverage] | None:
        return self.held

    def absent(self) -> tuple[str, ...]:
        return self.gone

    @staticmethod
    def _covered(
        product: str,
        collection: str,
        days: tuple[dt.date, ...],
        tiles: frozenset[Tile] = frozenset(),
        cells: frozenset[Square] = frozenset(),
        anywhere: bool = False,
    ) -> Coverage:
        return Coverage(
            product=product,
            collection=Collection(collection),
            granules=len(days),
            days=days,
            tiles=tiles,
            cells=cells,
            anywhere=anywhere,
            samples=(f"/{product}",),
        )


def layers_of(path: Path) -> LayersSeen:
    """The layers of the archive's samples."""
    notes: dict[str, tuple[str, ...]] = {"Lai_1km": (NOTE,)} if str(path) == "/MCD15A2" else {}
    return LayersSeen(lengths=LAYERS[str(path)], notes=notes)


def inline(job: Job) -> "Future[None]":
    """Do a job at once."""
    done: Future[None] = Future()
    job()
    done.set_result(None)
    return done


@contextmanager
def telling(runtime: Runtime, archive: StillArchive) -> Iterator[None]:
    """Tell the portal what the archive holds, and answer its questions, until the block ends."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        teller = Teller(runtime, archive, layers_of, beside.submit)

        def loop() -> None:
            while not stop.is_set():
                teller.look()  # as a wake-up has it do
                teller.tick()
                stop.wait(0.05)

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(10)
