"""What the portal keeps for those who follow requests, and for those who wait for counts."""

import threading

from portal.requests.audience import Audience, Progress
from portal.requests.request_watch import RequestWatch
from portal.serving.caches import Shared
from portal.serving.portal import Portal

MOST_WAITING = 8  # API calls that wait for planning at once


class Requests:
    """Who follows which request, what their pages are sent, and the turns to wait for counts."""

    def __init__(self, portal: Portal) -> None:
        self.watch = RequestWatch(portal.runtime, portal.stopping)
        self.audience = Audience(self.watch, portal.stopping)
        self.progress: Shared[Progress] = Shared(256)
        self.waiting = threading.BoundedSemaphore(MOST_WAITING)
