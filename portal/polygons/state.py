"""What the portal keeps to compute values within polygons: the turns to do so."""

import threading

from portal.serving.portal import Portal

MOST_COMPUTING = 2  # calls that are computed at once


class Polygons:
    """The turns; who comes while all are taken is asked to come back."""

    def __init__(self, _portal: Portal) -> None:
        self.computing = threading.BoundedSemaphore(MOST_COMPUTING)
