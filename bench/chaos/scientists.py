"""People at the portal: they submit, cancel, pause and resume all the time, and keep at it."""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

from bench.chaos.documents import Document
from bench.chaos.journal import Journal
from portal.serving.tokens import Role
from swathmill.access import api_token
from swathmill.client import Client
from swathmill.errors import ApiError, RefusedError
from swathmill.stack.folder import DataFolder
from tasks.bag.model import RequestState
from tasks.request.document import parse_request

PEOPLE = ("ada@example.org", "ben@example.org", "cleo@example.org")
ROUND_SECONDS = 0.5


@dataclass(kw_only=True)
class Errand:
    """A request as its scientist knows it."""

    owner: str
    document: Document
    key: str
    id: str = ""
    state: str = ""
    cancelled: bool = False  # the portal was asked to, whether or not an answer came
    paused: bool = False
    results: dict[str, str] = field(default_factory=dict)  # SHA-256 by name
    gaps: int = 0

    @property
    def ended(self) -> bool:
        """True if it has ended and is fully read."""
        return bool(self.state) and RequestState(self.state).ended


class Scientists:
    """Errands in a thread of their own; a call the portal does not answer is made again."""

    def __init__(
        self,
        folder: DataFolder,
        documents: Iterator[Document],
        choose: random.Random,
        journal: Journal,
        *,
        meddles: bool = True,
    ) -> None:
        self._folder = folder
        self._documents = documents
        self._choose = choose
        self._journal = journal
        self._meddles = meddles
        self._most = 0
        self._still = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="scientists", daemon=True)
        self.moved = False
        self.errands: list[Errand] = []
        self.refused: list[str] = []

    def start(self, most: int) -> None:
        """Begin, with at most so many requests at a time."""
        self._most = most
        self._thread.start()

    def move(self, folder: DataFolder) -> None:
        """Go to the portal of another stack, which has a copy: what it does not know is asked anew.

        Results that people have are looked up there again.
        """
        self._folder, self.moved = folder, True

    def still(self) -> None:
        """Submit and order nothing more; go on reading, and resume what is paused."""
        self._still.set()

    @property
    def idle(self) -> bool:
        """True if nothing more is submitted and all has ended."""
        return self._still.is_set() and not self.live()

    def close(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def live(self) -> list[Errand]:
        """Return what has not ended."""
        return [errand for errand in list(self.errands) if not errand.ended]

    def _go_on(self) -> None:
        while not self._stop.wait(ROUND_SECONDS):
            live = self.live()
            for errand in live:
                self._try(errand, self._look_after)
            if not self._still.is_set():
                if len(live) < self._most:
                    self._new()
                if live and self._meddles:
                    self._meddle(self._choose.choice(live))

    def _new(self) -> None:
        document = next(self._documents, None)
        if document is None:
            self._still.set()
            return
        key = f"{self._choose.getrandbits(64):016x}"
        owner = self._choose.choice(PEOPLE)
        self.errands.append(Errand(owner=owner, document=document, key=key))

    def _look_after(self, errand: Errand) -> None:
        client = self._client(errand.owner)
        if not errand.id:
            errand.id = client.submit(parse_request(errand.document), key=errand.key).id
            self._journal.note("submitted", request=errand.id)
        status = client.status(errand.id)
        if errand.paused and self._still.is_set() and not status.state.ended:
            self._order(errand, "resume")
        if status.state.ended:
            errand.results = {file.name: file.sha256 for file in client.results(errand.id)}
            errand.gaps = status.gap_count
            errand.state = status.state.value
            self._journal.note("ended", request=errand.id, state=errand.state)

    def _meddle(self, errand: Errand) -> None:
        what = self._choose.choices(
            ("nothing", "cancel", "pause", "resume"), weights=(40, 3, 2, 6 if errand.paused else 0)
        )[0]
        if what != "nothing" and errand.id:
            self._try(errand, lambda one: self._order(one, what))

    def _order(self, errand: Errand, what: str) -> None:
        client = self._client(errand.owner)
        if what == "cancel":
            errand.cancelled = True
            client.cancel(errand.id)
        else:
            errand.paused = errand.paused or what == "pause"
            client.order(errand.id, what)
            errand.paused = what == "pause"
        self._journal.note(what, request=errand.id)

    def _try(self, errand: Errand, call: Callable[[Errand], None]) -> None:
        try:
            call(errand)
        except RefusedError as error:
            self._journal.note("refused", request=errand.id, error=str(error))
            if self.moved and error.status == HTTPStatus.NOT_FOUND:
                self._journal.note("asked again", request=errand.id)
                errand.id = ""
            elif error.status != HTTPStatus.CONFLICT:  # that is: it has ended meanwhile
                self.refused.append(str(error))
        except ApiError as error:
            self._journal.note("portal did not answer", error=str(error)[:200])

    def _client(self, owner: str) -> Client:
        token = api_token(self._folder, owner, Role.SCIENTIST)
        return Client(url=self._folder.state().portal_url, token=token, timeout=10.0)
