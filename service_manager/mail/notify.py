"""Mail: written into the outbox once, sent from it at least once.

The Message-ID is computed from what a mail is about, so that a mail sent twice (the server took
it, its answer was lost) is one mail in any mailbox.
"""

import datetime as dt
import math
import smtplib
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.message import EmailMessage
from email.utils import formataddr, formatdate

import structlog

from service_manager.mail import mail_text
from service_manager.mail.mail_html import to_html
from service_manager.mail.mail_picture import MailPicture
from service_manager.mail.mail_text import outcome
from tasks.accounts import reader_links, sign_in_links
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.errors import StoreError
from tasks.mail_address import is_address
from tasks.operators.manager_rows import RefusedMails
from tasks.requests import outbox, request_operations
from tasks.requests.outbox import Mail
from tasks.requests.plan import Gap
from tasks.requests.request_table import RequestRow
from tasks.settings import Settings
from tasks.shown_text import in_one_line, shown
from tasks.storage.clock import Clock
from tasks.storage.store import Store

KIND = "end"  # of the mails about a request's end
ASK = "ask"  # of those that ask for its confirmation
GIVE_UP = 5 * 86_400.0  # seconds: how long mail servers, too, try to hand on a mail
FIRST_DELAY = 10.0
LONGEST_DELAY = 1_800.0
TIMEOUT = 20.0  # seconds for each step of the talk with the mail server
LOOK_SECONDS = 5.0  # between two looks for mails of which no wake-up told

log = structlog.get_logger()


def compose(
    row: RequestRow,
    interests: Iterable[Interest],
    gaps: Sequence[Gap],
    *,
    to: str,
    portal_url: str,
    now: float,
    notes: Sequence[str] = (),
    kept_until: float | None = None,
    spending: str = "",
) -> Mail | None:
    """Write the mail about a request's end; None when it has no address.

    `interests` are the interests that decided how the request ended, `gaps` those of its plan,
    `notes` those of planning. Its results are deleted at the time `kept_until`. `spending`
    says what it took.
    """
    if not is_address(to):
        return None
    day = None if kept_until is None else dt.datetime.fromtimestamp(kept_until, dt.UTC).date()
    said = mail_text.compose(
        title=row.title,
        state=row.state,
        outcome=outcome(interests, gaps, row.phases),
        link=reader_links.page(portal_url, row.id),
        message=row.message,
        notes=(*_standing(row), *notes),
        kept_until=day,
        spending=spending,
    )
    return Mail(
        request=row.id,
        to=to,
        kind=KIND,
        subject=said.subject,
        body=said.body,
        written=now,
        links=row.links,
    )


def _standing(row: RequestRow) -> tuple[str, ...]:
    """Say whether the request goes on from another, and whether it will go on."""
    before = f"It goes on from request {row.continues} with new data." if row.continues else ""
    after = (
        "When the archive has later days, it continues; stop it on its page."
        if row.standing
        else ""
    )
    return tuple(filter(None, (before, after)))


def ask(runtime: Runtime, row: RequestRow, *, portal_url: str, kind: str = ASK) -> None:
    """Write to the owner of a request that waits for confirmation, once for each kind of reason.

    `row` has its document.

    Raises StoreError.
    """
    now = runtime.clock.now()
    to = request_operations.document_of(row).notify
    mail = compose(row, (), row.gaps, to=to, portal_url=portal_url, now=now, notes=row.notes)
    if mail is not None:
        outbox.post(runtime, replace(mail, kind=kind))


def tell_cancelled(runtime: Runtime, request: str, *, portal_url: str) -> None:
    """Write the mail about a request that was cancelled before its tasks were written.

    The mail about any other request is written as it ends, and stays as it is. Raises StoreError.
    """
    row = request_operations.load(runtime, request)
    if row.state is not RequestState.CANCELLED:
        return
    to = request_operations.document_of(row).notify
    mail = compose(row, (), (), to=to, portal_url=portal_url, now=runtime.clock.now())
    if mail is not None:
        outbox.post(runtime, mail)


@dataclass(frozen=True, kw_only=True)
class Signing:
    """Signs the links in a mail so that they sign their reader in.

    It happens when the mail is sent: tables and their backups hold no signed link.
    """

    portal_url: str
    secret: str

    @classmethod
    def of(cls, settings: Settings) -> "Signing":
        """Return the signing that the settings ask for; without a secret links stay as they are."""
        return cls(portal_url=settings.portal_url, secret=settings.secret.get_secret_value())

    def sign(self, mail: Mail) -> str:
        """Return the mail's text with the links that it may open signed, the same each time.

        Only a whole line counts as a link: titles are text that people wrote.

        Raises ValueError for a mail that is useless without its links when they cannot be signed.
        """
        asked = bool(mail.signs_in or mail.shows)
        if not self.secret and asked:
            raise ValueError("the manager has no SWATHMILL_SECRET to sign the mail's links with")
        if not self.secret:
            return mail.body
        links = self._links(mail)
        lines = mail.body.split("\n")
        if asked and not links.keys() <= {_parted(line)[0] for line in lines}:
            raise ValueError("portal and manager have different settings of SWATHMILL_PORTAL_URL")
        text = "\n".join(_signed(line, links) for line in lines)
        if text == mail.body or not mail.request:
            return text
        day = dt.datetime.fromtimestamp(mail.written + reader_links.LIFETIME, dt.UTC).date()
        return (
            f"{text}\nUntil {day} the link shows this request to whoever has it, without signing "
            "in:\npass it on only to those who may see the results.\n"
        )

    def _links(self, mail: Mail) -> dict[str, str]:
        """Return the signed address for each plain address that the mail opens."""
        lifetimes = dict.fromkeys(mail.shows, reader_links.ASKED_LIFETIME)
        if mail.request:
            lifetimes[reader_links.key(mail.request, mail.links)] = reader_links.LIFETIME
        url, secret = self.portal_url, self.secret
        links = {
            reader_links.page(url, reader_links.request_of(opened)): reader_links.address(
                url, secret, opened, mail.written + lifetime
            )
            for opened, lifetime in lifetimes.items()
        }
        if mail.signs_in:
            links[sign_in_links.page(url)] = sign_in_links.address(
                url, secret, mail.signs_in, mail.written + sign_in_links.LIFETIME
            )
        return links


def _signed(line: str, links: Mapping[str, str]) -> str:
    plain, then = _parted(line)
    if plain not in links:
        return line
    return line.replace(plain + then, links[plain] + then.replace("?", "&", 1))


def _parted(line: str) -> tuple[str, str]:
    """Split a line into an address and the page to open after signing in."""
    plain, mark, after = line.strip().partition(f"?{sign_in_links.THEN}=")
    return plain, mark + after


def patience(mail: Mail) -> float:
    """Seconds after which a mail that was not taken is given up: no later than its links end."""
    if mail.signs_in:
        return sign_in_links.LIFETIME
    return reader_links.ASKED_LIFETIME if mail.shows else GIVE_UP


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """Where mail is handed over, and how. `tls` is none, starttls or tls."""

    host: str
    port: int
    sender: str
    user: str = ""
    password: str = ""
    tls: str = "none"
    trust: ssl.SSLContext | None = None  # None: the machine's certificate authorities

    @classmethod
    def of(cls, settings: Settings) -> "MailServer | None":
        """Return the server that the settings name, or None."""
        if (known := settings.smtp) is None:
            return None
        return cls(
            host=known.host,
            port=known.port,
            sender=settings.mail_from,
            user=known.user,
            password=settings.smtp_password.get_secret_value(),
            tls=known.tls,
        )

    def connect(self) -> smtplib.SMTP:
        """Open a session, encrypted and signed in as asked; raises OSError or SMTPException."""
        # To read the certificates of the system takes as long as a mail.
        trust = None if self.tls == "none" else self.trust or ssl.create_default_context()
        if self.tls == "tls":
            session: smtplib.SMTP = smtplib.SMTP_SSL(
                self.host, self.port, timeout=TIMEOUT, context=trust
            )
        else:
            session = smtplib.SMTP(self.host, self.port, timeout=TIMEOUT)
        try:
            if self.tls == "starttls":
                session.starttls(context=trust)
            if self.user:
                session.login(self.user, self.password)
        except (OSError, smtplib.SMTPException):
            session.close()
            raise
        return session


def message(
    mail: Mail,
    sender: str,
    signing: Signing | None = None,
    picture: MailPicture | None = None,
) -> EmailMessage:
    """Return a mail as it is sent, as text and as HTML: the same each time."""
    text = EmailMessage()
    text["From"] = formataddr(("Swathmill", sender))
    text["To"] = mail.to
    # Python decodes `=?utf-8?q?=0A...?=`, and writes its line break: a title could add headers.
    text["Subject"] = in_one_line(mail.subject.replace("=?", "= ?"))
    text["Date"] = formatdate(mail.written)
    text["Message-ID"] = mail.message_id
    text["Auto-Submitted"] = "auto-generated"
    body = replace(mail, body=shown(mail.body))
    said = signing.sign(body) if signing else body.body
    text.set_content(said)
    cid = f"{mail.id}.png@swathmill" if picture else ""
    html = EmailMessage()
    html.set_content(to_html(said, cid, picture.path if picture else ""), subtype="html")
    if picture is not None:
        html.add_related(picture.png, "image", "png", cid=f"<{cid}>", disposition="inline")
        html.set_boundary(f"related-{mail.id}")
    text.make_alternative(boundary=f"mail-{mail.id}")
    text.attach(html)
    return text


class Postman:
    """Sends the outbox's mails.

    Each mail is tried until the server takes it, five days have passed, or the links that somebody
    asked for have expired. A mail that was not taken waits 10 s, then twice as long each time, up
    to half an hour; `refused` counts such mails at the beginning of a round. `draw` makes the
    picture for the mail about a request's end. `tick` returns at once: a thread talks to the
    server.

    Each mail has a session of its own: an answer that comes late, or twice, is none to another
    mail. A round ends with a session that broke off, so that the wait for a server that does not
    answer holds up no mail that is written meanwhile.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        server: MailServer | None,
        signing: Signing | None = None,
        draw: Callable[[str], MailPicture | None] | None = None,
    ) -> None:
        self._store = store
        self._signing = signing
        self._draw = draw
        self._clock = clock
        self._server = server
        self._due: dict[str, float] = {}  # monotonic, by mail
        self.refused = RefusedMails()
        self._taken: set[str] = set()  # mails that the server has, though storage does not say so
        self._due_look = -math.inf  # monotonic
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Have the next tick begin a round: a mail may be there."""
        self._due_look = -math.inf

    def tick(self) -> None:
        """Begin a round if it is time, unless one is under way or there is no mail server."""
        now = self._clock.monotonic()
        if self._server is None or now < self._due_look:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._due_look = now + LOOK_SECONDS
        self._thread = threading.Thread(target=self._round, name="postman", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Wait for the round under way, at most so many seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def deliver(self) -> int:
        """Send what is due; how many mails the server took. Raises StoreError."""
        now = self._clock.now()
        tried = [m for m in outbox.unsent(self._store) if now - m.written <= patience(m)]
        refused = [mail.error for mail in sorted(tried, key=lambda m: m.written) if mail.error]
        self.refused = RefusedMails(count=len(refused), error=refused[-1] if refused else "")
        due = [mail for mail in tried if self._is_due(mail)]
        if due:
            self.look()  # again: the session may break off, and mails that come meanwhile are told
        if self._server is None:
            return 0
        sent = 0
        for number, mail in enumerate(due):
            try:
                session = self._server.connect()
            except OSError as error:  # SMTPException is one
                for one in due[number:]:
                    self._put_off(one, error)
                break
            try:
                taken = self._send(session, self._server.sender, mail)
            finally:
                _leave(session)
            if taken is None:
                break
            sent += taken
        return sent

    def _round(self) -> None:
        try:
            self.deliver()
        except StoreError as error:
            log.warning("the outbox could not be read or written; next round", error=str(error))

    def _is_due(self, mail: Mail) -> bool:
        return self._due.get(mail.id, 0.0) <= self._clock.monotonic()

    def _send(self, session: smtplib.SMTP, sender: str, mail: Mail) -> bool | None:
        """Hand a mail over; tell whether the server took it, None if the session broke off."""
        if mail.id not in self._taken:
            try:
                picture = self._draw(mail.request) if self._draw and mail.kind == KIND else None
                sent = message(mail, sender, self._signing, picture)
                session.send_message(sent, sender, [mail.to])
            except (OSError, ValueError) as error:
                self._put_off(mail, error)
                return None if _broke_off(error) else False
            self._taken.add(mail.id)
        outbox.mark_sent(self._store, self._clock, mail, self._clock.now())
        self._taken.discard(mail.id)
        self._due.pop(mail.id, None)
        log.info("mail sent", request=mail.request, kind=mail.kind)
        return True

    def _put_off(self, mail: Mail, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(mail.tries, 20))
        self._due[mail.id] = self._clock.monotonic() + delay
        outbox.mark_failed(self._store, self._clock, mail, said)
        log.warning("mail not taken", request=mail.request, error=said, again_in=delay)


def _broke_off(error: Exception) -> bool:
    """Tell whether a session ended without an answer of the server."""
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return True
    return isinstance(error, OSError) and not isinstance(error, smtplib.SMTPException)


def _leave(session: smtplib.SMTP) -> None:
    """End a session politely; a server that has gone already took the mails it answered for."""
    try:
        session.quit()
    except (OSError, smtplib.SMTPException) as error:
        log.debug("the mail server left first", error=str(error))
        session.close()
