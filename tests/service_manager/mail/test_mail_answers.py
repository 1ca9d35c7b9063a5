"""Answers of a mail server that come late, twice or not at all: every mail arrives, as one mail."""

import smtplib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email import message_from_bytes

import pytest

from service_manager.mail.notify import MailServer, Postman
from tasks.requests import outbox
from tasks.requests.outbox import Mail
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore

TAKEN, BUSY = b"250 taken\r\n", b"451 4.3.0 come again\r\n"
LATE = b"late"
GONE = b""


class Impatient(smtplib.SMTP):
    """A session that does not wait for an answer to a mail's end that comes `late`."""

    late = False

    def send(self, s: object) -> None:
        super().send(s)  # type: ignore[arg-type]
        ends = isinstance(s, bytes) and s.endswith(b"\r\n.\r\n")
        if ends and self.late and self.sock is not None:
            self.sock.settimeout(0.01)


@dataclass
class Scripted:
    """A mail server that answers the ends of mails by a list, in order, and then takes them.

    `LATE` is the answer 250 that is sent once the client has given up; `GONE` ends the session.
    """

    answers: Sequence[bytes] = ()
    mails: list[bytes] = field(default_factory=list)
    sessions: int = 0
    given_up: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def server(self) -> MailServer:
        port = self.listening.getsockname()[1]
        return MailServer(host="127.0.0.1", port=port, sender="swathmill@example.org")

    @property
    def ids(self) -> list[str]:
        return [str(message_from_bytes(one)["Message-ID"]) for one in self.mails]

    def _serve(self) -> None:
        while True:
            try:
                made, _ = self.listening.accept()
            except OSError:
                return
            self.sessions += 1
            threading.Thread(target=self._talk, args=(made,), daemon=True).start()

    def _talk(self, made: socket.socket) -> None:
        with suppress(OSError), made, made.makefile("rwb", buffering=0) as stream:
            stream.write(b"220 ready\r\n")
            while line := stream.readline():
                word = line.split(maxsplit=1)[0].upper()
                if word == b"DATA":
                    stream.write(b"354 go on\r\n")
                    if not self._take(stream):
                        return
                else:
                    stream.write(b"221 bye\r\n" if word == b"QUIT" else b"250 good\r\n")

    def _take(self, stream: socket.SocketIO) -> bool:
        lines = []
        while (line := stream.readline()) not in (b".\r\n", b""):
            lines.append(line)
        answer = self.answers[len(self.mails)] if len(self.mails) < len(self.answers) else TAKEN
        self.mails.append(b"".join(lines))
        if answer == LATE:
            assert self.given_up.wait(60)
            answer = TAKEN
        stream.write(answer)
        return answer != GONE


@pytest.fixture
def postman(monkeypatch: pytest.MonkeyPatch) -> Iterator["Office"]:
    monkeypatch.setattr(smtplib, "SMTP", Impatient)
    office = Office()
    yield office
    office.scripted.given_up.set()
    office.scripted.listening.close()


@dataclass
class Office:
    """An outbox with mails, and who sends them to a scripted server."""

    scripted: Scripted = field(default_factory=Scripted)
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.postman = Postman(self.store, self.clock, self.scripted.server)

    def write(self, *requests: str) -> None:
        for request in requests:
            mail = Mail(
                request=request,
                to="scientist@example.org",
                kind="end",
                subject="Leaf area: complete",
                body="Your request is complete.\n",
                written=self.clock.now(),
            )
            outbox.put(self.store, self.clock, mail)

    def deliver(self, *answers: bytes) -> int:
        """Have a round in which the server answers so."""
        self.scripted.answers = [b"?"] * len(self.scripted.mails) + [*answers]
        Impatient.late = LATE in answers
        return self.postman.deliver()

    def later(self) -> None:
        self.clock.sleep(3600.0)

    @property
    def unsent(self) -> dict[str, int]:
        """The mails that are not known to be taken, with the times they were tried."""
        return {mail.request: mail.tries for mail in outbox.unsent(self.store)}


@pytest.mark.parametrize("answer", [LATE, GONE, BUSY, BUSY + TAKEN])
def test_a_mail_without_a_good_answer_is_sent_again_as_the_same_mail(
    postman: Office, answer: bytes
) -> None:
    """The server may have it: both copies have the same bytes, and so one Message-ID."""
    postman.write("r1")
    assert postman.deliver(answer) == 0
    postman.scripted.given_up.set()  # now comes the late answer, to a client that has gone
    assert postman.unsent == {"r1": 1}
    assert postman.deliver() == 0, "not at once"
    postman.later()
    assert postman.deliver() == 1
    assert postman.unsent == {}
    first, second = postman.scripted.mails
    assert first == second
    assert len({*postman.scripted.ids}) == 1


@pytest.mark.parametrize(
    "twice", [TAKEN + TAKEN, TAKEN + BUSY, TAKEN + b"421 closing\r\n", 5 * TAKEN]
)
def test_a_second_answer_is_none_to_the_next_mail(postman: Office, twice: bytes) -> None:
    postman.write("r1", "r2", "r3")
    assert postman.deliver(twice, twice, twice) == 3
    assert postman.unsent == {}
    assert len(postman.scripted.mails) == len({*postman.scripted.ids}) == 3


def test_a_second_answer_counts_no_mail_as_taken_that_is_refused(postman: Office) -> None:
    postman.write("r1", "r2")
    assert postman.deliver(5 * TAKEN, BUSY + TAKEN) == 1
    assert [*postman.unsent.values()] == [1]


@pytest.mark.parametrize("answer", [LATE, GONE])
def test_a_mail_without_an_answer_holds_no_other_up(postman: Office, answer: bytes) -> None:
    """The others are not tried in vain, and go with the next round."""
    postman.write("r1", "r2", "r3")
    assert postman.deliver(answer) == 0
    assert sorted(postman.unsent.values()) == [0, 0, 1]
    assert postman.scripted.sessions == 1, "the round ended"
    postman.write("sign-in")
    assert postman.deliver() == 3
    assert [*postman.unsent.values()] == [1]
    postman.later()
    assert postman.deliver() == 1
    assert len(postman.scripted.mails) == 5


def test_a_mail_that_is_refused_holds_no_other_up(postman: Office) -> None:
    postman.write("r1", "r2", "r3")
    assert postman.deliver(BUSY) == 2
    assert [*postman.unsent.values()] == [1]
