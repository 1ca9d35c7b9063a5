"""Submit one request to a stack in this process, and follow it to its end."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swathmill.client import Client, RequestStatus
from swathmill.errors import ApiError, RefusedError
from swathmill.progress import ProgressView
from swathmill.stack.folder import DataFolder
from tasks.request.document import Request, dump_request

POLL_SECONDS = 0.5
TICK_SECONDS = 0.1
UNREACHABLE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Follower:
    """Follows one request, and calls `tick` meanwhile to look after the stack."""

    client: Client
    tick: Callable[[], None]
    view: ProgressView

    def until_ended(self, request_id: str) -> RequestStatus:
        """Poll until the request has ended; wait while the portal is being restarted.

        Raises:
            ApiError: the portal did not answer for two minutes.
        """
        last_answer = time.monotonic()
        while True:
            try:
                status = self.client.status(request_id)
                last_answer = time.monotonic()
                self.view.show(status, now=last_answer)
                if status.state.ended:
                    return status
            except ApiError:
                if time.monotonic() - last_answer > UNREACHABLE_SECONDS:
                    raise
            self._pause(POLL_SECONDS)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tick()
            time.sleep(TICK_SECONDS)


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
