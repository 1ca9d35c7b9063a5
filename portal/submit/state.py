"""What the portal keeps for those who fill in a request."""

import threading

from portal.serving.portal import Portal
from portal.submit.known_holdings import KnownHoldings

MOST_READING = 2  # region files that are read at once


class Submit:
    """What the archive is known to hold, and the turns to read region files."""

    def __init__(self, portal: Portal) -> None:
        self.holdings = KnownHoldings(portal.runtime)
        self.reading_regions = threading.BoundedSemaphore(MOST_READING)
