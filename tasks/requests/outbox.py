"""The table `outbox`: mail that is to be sent, at least once, and was in the last 60 days.

A row's id is computed from what it is about, so that telling twice writes one mail, and its
Message-ID is the same each time it is sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tasks.bag.runtime import Runtime
from tasks.messages.wakeups import LOOK
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.codec import Codec, Form, in_json
from tasks.storage.store import BATCH_OPERATIONS, Delete, Insert, Operation, Replace, Row, Store

TABLE = "outbox"
PARTITION = "outbox"
KEPT = 60 * 86_400.0
"""Seconds for which a mail is kept: so long, telling twice writes it once."""


@dataclass(frozen=True, kw_only=True)
class Mail:
    """One mail. `kind` says about what: `end` of the request, say.

    The text holds plain addresses of the portal, each on a line of its own. What a mail opens is
    signed when it is sent, and kept nowhere: its own request, the requests that it `shows`, a
    session of the owner that it `signs_in`. `links` is how often the links to its own request had
    been ended; `shows` has keys of links (`tasks/accounts/reader_links.py`).
    """

    request: str
    to: str
    kind: str
    subject: str
    body: str
    written: float
    sent_at: float = 0.0  # 0: not yet
    tries: int = 0
    error: str = ""
    signs_in: str = ""
    shows: tuple[str, ...] = ()
    links: int = 0
    etag: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """The identity of this mail: request, kind and addressee."""
        return updates.hashed(f"{self.request} {self.kind} {self.to}")

    @property
    def message_id(self) -> str:
        """The Message-ID header, the same each time the mail is sent."""
        return f"<{self.id}@swathmill>"


_MAIL = Codec(
    Mail,
    "mail",
    {
        "body": Form(
            write=lambda text: text.encode()[:60_000],
            read=lambda data: data.decode(errors="replace"),
        ),
        "shows": in_json(tuple[str, ...]),
        "links": Form(sparse=True),
    },
)


def post(runtime: Runtime, mail: Mail) -> None:
    """Write a mail to be sent, as `put`, and have the manager look."""
    put(runtime.store, runtime.clock, mail)
    runtime.wakeups.publish(LOOK)


def put(store: Store, clock: Clock, mail: Mail) -> None:
    """Write a mail to be sent; one of the same id stays as it is."""

    def change(found: Row | None) -> tuple[Operation, ...]:
        return () if found else (Insert(row=mail.id, entity=_MAIL.dump(mail)),)

    updates.update(store, clock, TABLE, PARTITION, mail.id, change)


def mails(store: Store, request: str | None = None) -> Iterator[Mail]:
    """All mails, or those of one request, sent or not."""
    for row in store.scan(TABLE, PARTITION, "", "g"):
        mail = _MAIL.load(row)
        if request is None or mail.request == request:
            yield mail


def unsent(store: Store) -> Iterator[Mail]:
    """Yield the mails that are to be sent."""
    return (mail for mail in mails(store) if not mail.sent_at)


def mark_sent(store: Store, clock: Clock, mail: Mail, at: float) -> None:
    """Record that the mail server accepted the mail."""
    _change(store, clock, replace(mail, sent_at=at, error=""))


def mark_failed(store: Store, clock: Clock, mail: Mail, error: str) -> None:
    """Record that the mail server did not accept the mail, which remains to be sent."""
    _change(store, clock, replace(mail, tries=mail.tries + 1, error=error[:500]))


def drop_old(store: Store, now: float) -> int:
    """Delete the mails that are kept no longer, sent or not; how many. Raises StoreError."""
    old = [mail.id for mail in mails(store) if now - mail.written > KEPT]
    for start in range(0, len(old), BATCH_OPERATIONS):
        batch = [Delete(row=row) for row in old[start : start + BATCH_OPERATIONS]]
        store.transact(TABLE, PARTITION, batch)
    return len(old)


def _change(store: Store, clock: Clock, mail: Mail) -> None:
    def change(found: Row | None) -> tuple[Operation, ...]:
        if found is None or _MAIL.load(found).sent_at:
            return ()
        if _MAIL.load(found) == mail:
            return ()
        return (Replace(row=mail.id, entity=_MAIL.dump(mail), etag=found.etag),)

    updates.update(store, clock, TABLE, PARTITION, mail.id, change)
