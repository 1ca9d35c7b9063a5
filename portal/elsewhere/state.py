"""What the portal keeps for results that are used outside it."""

import threading
from collections.abc import Mapping

from portal.elsewhere.zarr_store import Member
from portal.serving.caches import Kept
from portal.serving.portal import Portal

MOST_COPYING = 2  # calls that copy results at once


class Elsewhere:
    """The keys of the cubes that were read last, and the turns to copy results."""

    def __init__(self, _portal: Portal) -> None:
        self.stores: Kept[Mapping[str, Member]] = Kept(16)
        self.copying = threading.BoundedSemaphore(MOST_COPYING)
