"""What the portal keeps for those who fill in a request."""

import threading

from portal.serving.portal import Portal
from portal.submit.known_holdings import KnownHoldings
from portal.submit.names import Names
from tasks.packages.packages import Packages

MOST_READING = 2  # region files that are read at once


class Submit:
    """What requests may name, what the archive holds, and the turns to read region files."""

    def __init__(self, portal: Portal) -> None:
        self.names = Names.of(Packages.of(portal.settings))
        self.holdings = KnownHoldings(portal.runtime)
        self.reading_regions = threading.BoundedSemaphore(MOST_READING)
