"""What the portal keeps of requests' results."""

import threading
from collections.abc import Callable, Mapping

from portal.results.explanations import Explainer
from portal.results.layers import Arranged
from portal.results.legends import Legend
from portal.results.pictures import Pictures
from portal.results.result_files import ResultFile, ResultIndex
from portal.serving.caches import Kept
from portal.serving.portal import Portal
from tasks.requests.request_table import RequestRow

MOST_EXPLAINING = 4  # calls that explain a pixel or wait for their turn

Texts = Callable[[RequestRow, Mapping[str, ResultFile]], Mapping[str, str]]
"""Returns texts that go with some results of a request, by name."""


class Results:
    """The results that were looked at last; `beside` are the texts that features add to a ZIP."""

    def __init__(self, portal: Portal) -> None:
        self._runtime = portal.runtime
        self._arranged: Kept[Arranged] = Kept(64)
        self.index = ResultIndex()
        self.pictures = Pictures()
        self.legends: Kept[Legend] = Kept(256)
        self.explainer = Explainer()
        self.explaining = threading.BoundedSemaphore(MOST_EXPLAINING)
        self.beside: list[Texts] = []

    def arranged(self, row: RequestRow) -> Arranged:
        """Return the finished results of a request as its pages show them."""
        files = {} if row.state.unplanned else self.index.files(self._runtime, row)
        # The index returns the same mapping until the results have changed.
        key = f"{row.id} {row.state.value} {row.delivered} {id(files)}"
        found = self._arranged.get(key, lambda: Arranged.of(files))
        return found if found.files is files else Arranged.of(files)

    def texts(self, row: RequestRow, files: Mapping[str, ResultFile]) -> dict[str, str]:
        """Return the texts that go with results of a request into a ZIP."""
        return {name: text for made in self.beside for name, text in made(row, files).items()}
