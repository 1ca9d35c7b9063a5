"""Submit one request to a stack in this process, and follow it to its end."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from swathmill.answers import RequestStatus
from swathmill.client import Client
from swathmill.errors import RefusedError
from swathmill.progress import ProgressView
from swathmill.stack.folder import DataFolder
from tasks.errors import SwathmillError
from tasks.request.document import Request, dump_request

TICK_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Follower:
    """Follows one request, and calls `tick` meanwhile to look after the stack.

    Each change is given to `view`, and to `changed`.
    """

    client: Client
    tick: Callable[[], None]
    view: ProgressView
    changed: Callable[[RequestStatus], None] = lambda _: None

    def until_ended(self, request_id: str) -> RequestStatus:
        """Show each change until the request has ended; wait while the portal is being restarted.

        Raises:
            ApiError: the portal did not answer for two minutes.
        """
        heard: SimpleQueue[RequestStatus | SwathmillError] = SimpleQueue()
        Thread(target=self._listen, args=(request_id, heard.put), daemon=True).start()
        while True:
            self.tick()
            try:
                status = heard.get(timeout=TICK_SECONDS)
            except Empty:
                continue
            if isinstance(status, SwathmillError):
                raise status
            self.view.show(status, now=time.monotonic())
            self.changed(status)
            if status.state.ended:
                return status

    def _listen(
        self, request_id: str, tell: Callable[[RequestStatus | SwathmillError], None]
    ) -> None:
        """Ask for one change after another, in a thread of its own."""
        try:
            for status in self.client.follow(request_id):
                tell(status)
        except SwathmillError as error:
            tell(error)


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """Remembers which request a run follows, so that the same run can resume it."""

    folder: DataFolder
    request: Request
    archive: str

    @property
    def _note(self) -> Path:
        identity = f"{dump_request(self.request)}\n{self.archive}"
        name = hashlib.sha256(identity.encode()).hexdigest()[:24]
        return self.folder.path / "unfinished" / name

    def take_up(self, client: Client) -> str:
        """Return the id of this request if an interrupted run left it unfinished; else nothing."""
        if not self._note.is_file():
            return ""
        request_id = self._note.read_text().strip()
        try:
            ended = client.status(request_id).state.ended
        except RefusedError:
            ended = True
        if ended:
            self.forget()
            return ""
        return request_id

    def remember(self, request_id: str) -> None:
        """Record the request that this run follows."""
        self._note.parent.mkdir(exist_ok=True)
        self._note.write_text(request_id)

    def forget(self) -> None:
        """Delete the record, because the request has ended."""
        self._note.unlink(missing_ok=True)
