"""Mail a sign-in link to an address that this portal knows.

The address is looked up after the answer was sent: neither the text of the answer nor its duration
reveals whether the address is known. The link signs in as the owner with that very address, never
as an operator. If requests only notify an address, it gets read-only links to those requests.

Addresses that differ only in the case of ASCII letters are looked up together. Each spelling gets a
mail of its own, which holds only what is known about that spelling.
"""

import datetime as dt
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import structlog

from portal.accounts.owners import folded
from tasks.accounts import reader_links, sign_in_links
from tasks.accounts.group_table import GroupTable
from tasks.bag.runtime import Runtime, new_id
from tasks.errors import SwathmillError
from tasks.requests import outbox, request_operations
from tasks.requests.outbox import Mail
from tasks.requests.request_table import RequestRow
from tasks.settings import Settings

KIND = "sign-in"
HOUR = 3600.0
PER_ADDRESS = 3  # mails per hour
ALTOGETHER = 60  # mails per hour
WAITING = 100  # unfinished look-ups
FRESH = 10.0  # seconds after a read during which the newest requests are not read again
_NEWEST = 200  # requests searched for other spellings and for the addresses that they notify
_LISTED = 20

log = structlog.get_logger(__name__)

Later = Callable[[Callable[[], None]], object]
Notified = tuple[RequestRow, str]  # a request and the address that it notifies


class SignInDesk:
    """Accept addresses and write mails into the outbox.

    `later` runs the look-ups one at a time, in a thread of its own.
    """

    def __init__(self, runtime: Runtime, settings: Settings, later: Later | None = None) -> None:
        self._runtime = runtime
        self._settings = settings
        self._later = later or ThreadPoolExecutor(1, thread_name_prefix="sign-in").submit
        self._lock = threading.Lock()
        self._waiting = 0
        # Only the look-ups use the attributes below.
        self._mailed: deque[tuple[float, str]] = deque()  # time and address
        self._read: tuple[float, list[Notified]] | None = None

    @property
    def sends_mail(self) -> bool:
        """True if a mail server is configured."""
        return bool(self._settings.smtp_url)

    def ask(self, address: str, then: str = "") -> bool:
        """Start looking an address up and writing to it; return False if too many look-ups wait.

        The sign-in link leads to the page `then`. If too many mails were written within the hour,
        to this address or to all, the caller is not told: the answer would reveal who is known.
        """
        with self._lock:
            if self._waiting >= WAITING:
                return False
            self._waiting += 1
        self._later(lambda: self._serve(address.strip(), then))
        return True

    def _serve(self, address: str, then: str) -> None:
        try:
            for mail in self._letters(address, then):
                if self._may_write(mail.to):
                    outbox.post(self._runtime, mail)
        except SwathmillError as error:
            log.warning("a sign-in mail could not be written", error=str(error))
        finally:
            with self._lock:
                self._waiting -= 1

    def _may_write(self, to: str) -> bool:
        """Tell whether one more mail may be written within the hour, and count it if so."""
        now = self._runtime.clock.monotonic()
        while self._mailed and now - self._mailed[0][0] > HOUR:
            self._mailed.popleft()
        if len(self._mailed) >= ALTOGETHER:
            log.warning("too many sign-in mails within the hour; one was not written")
            return False
        alike = sum(folded(known) == folded(to) for _, known in self._mailed)
        if alike >= PER_ADDRESS:
            return False
        self._mailed.append((now, to))
        return True

    def _letters(self, address: str, then: str) -> list[Mail]:
        """Write one mail to each spelling of an address; the spelling asked for comes first."""
        key = folded(address)
        notified = [(row, notify) for row, notify in self._newest() if folded(notify) == key]
        owners = {
            row.owner
            for name in (address, key)
            for row in request_operations.list_requests(self._runtime, name, 1)
        }
        owners |= {row.owner for row, _ in self._newest() if folded(row.owner) == key}
        owners |= {name for name in (address, key) if GroupTable(self._runtime.store).of(name)}
        spelt = owners | {notify for _, notify in notified}
        letters = []
        for to in sorted(spelt, key=lambda name: (name != address, name not in owners, name)):
            others = (row for row, notify in notified if notify == to and row.owner != to)
            shown = [*islice(others, _LISTED)]
            if to in owners or shown:
                letters.append(self._letter(to, to in owners, shown, then))
        return letters

    def _letter(self, to: str, is_owner: bool, shown: Sequence[RequestRow], then: str) -> Mail:
        """Write a mail with plain addresses; the manager signs them when it sends the mail."""
        url, now = self._settings.portal_url, self._runtime.clock.now()
        parts = [f"Somebody, probably you, asked to sign in to Swathmill at {url}"]
        if is_owner:
            parts.append(
                f"Sign in as {to}:\n  {sign_in_links.page(url, then)}\n"
                f"The link is good until {_moment(now + sign_in_links.LIFETIME)}. "
                "Do not pass it on."
            )
        if shown:
            lines = [
                f"- {' '.join(row.title.split())[:80] or row.id}:\n"
                f"  {reader_links.page(url, row.id)}"
                for row in shown
            ]
            until = _moment(now + reader_links.ASKED_LIFETIME)
            head = f"Requests of others that notify you; you can read them until {until}:"
            parts.append("\n".join([head, *lines]))
        parts += ["If you did not ask for this, nothing needs to be done.", "Swathmill"]
        return Mail(
            request="",
            to=to,
            kind=f"{KIND} {new_id(self._runtime.random)}",
            subject="Sign in to Swathmill",
            body="\n\n".join(parts) + "\n",
            written=now,
            signs_in=to if is_owner else "",
            shows=tuple(reader_links.key(row.id, row.links) for row in shown),
        )

    def _newest(self) -> list[Notified]:
        """Return the newest requests and whom they notify; read them at most every few seconds."""
        now = self._runtime.clock.monotonic()
        if self._read is None or now - self._read[0] > FRESH:
            found = []
            for listed in request_operations.list_requests(self._runtime, None, _NEWEST):
                found.append((listed, _notify(request_operations.load(self._runtime, listed.id))))
            self._read = now, found
        return self._read[1]


def _notify(row: RequestRow) -> str:
    """Return the address that a request notifies; an earlier build may have written its row."""
    return str(json.loads(row.document).get("notify", ""))


def _moment(time: float) -> str:
    return f"{dt.datetime.fromtimestamp(time, dt.UTC):%Y-%m-%d %H:%M} UTC"
