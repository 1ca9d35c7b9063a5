"""A mail server that is away at times, refuses mails, or takes them and does not answer."""

import smtplib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import EmailMessage
from random import Random
from typing import cast

from service_manager.mail.notify import MailServer
from tests.simulation.world import Process, ViolationError, World

_LATE = 0.3
"""How often an answer is late."""


@dataclass
class Mailboxes:
    """All mails that the server took: their texts by Message-ID, in order."""

    taken: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class SimMailServer:
    """The mail server as one process reaches it: a `MailServer` and the session with it."""

    world: World
    process: Process
    mailboxes: Mailboxes
    trouble: float  # how often a call fails
    random: Random
    outbox_goes: Callable[[float], None]  # the outbox is away for so many seconds
    sender: str = "swathmill@example.org"
    answered: set[str] = field(default_factory=set)  # Message-IDs that the process knows are taken

    def as_server(self) -> MailServer:
        """Return it as what the product talks to."""
        return cast(MailServer, self)

    def connect(self) -> smtplib.SMTP:
        """Open a session."""
        self._travel()
        if self._fails():
            self.world.faults["mail server away"] += 1
            raise ConnectionRefusedError("the mail server is away")
        return cast(smtplib.SMTP, self)

    def send_message(self, message: EmailMessage, _sender: str, _to: list[str]) -> None:
        """Take a mail, or refuse it, or take it and lose the answer.

        A process sends none again of which it knows that it was taken.
        """
        name = str(message["Message-ID"])
        if name in self.answered:
            raise ViolationError(f"{self.process.name} sends the mail {name} again")
        self._think()
        if self._fails():
            self.world.faults["mail refused"] += 1
            raise smtplib.SMTPDataError(451, b"later, please")
        self.mailboxes.taken[name].append(bytes(message))
        self._think()
        if self._fails():
            self.world.faults["mail not answered"] += 1
            raise smtplib.SMTPServerDisconnected("no answer")
        self.answered.add(name)

    def quit(self) -> None:
        """End the session."""

    def close(self) -> None:
        """End the session without a word."""

    def _think(self) -> None:
        """Answer, and sometimes late: storage may be away by then, or another manager act."""
        self._travel()
        if not self.world.calm and self.random.random() < _LATE:
            self.world.faults["mail answered late"] += 1
            if self.random.random() < 0.5:
                self.outbox_goes(self.random.uniform(25.0, 60.0))
            self.world.pause(self.process, self.random.uniform(1.0, 25.0))

    def _travel(self) -> None:
        self.world.point(self.process)
        self.world.pause(self.process, self.random.uniform(0.01, 0.5))

    def _fails(self) -> bool:
        return not self.world.calm and self.random.random() < self.trouble
