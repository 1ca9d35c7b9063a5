"""Mail from the outbox through a real SMTP server: once written, at least once sent."""

import datetime as dt
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email import message_from_bytes, policy
from email.message import EmailMessage
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from service_manager.mail import notify
from service_manager.mail.notify import (
    GIVE_UP,
    LOOK_SECONDS,
    MailServer,
    Postman,
    compose,
    message,
)
from tasks.bag.model import Phase, RequestState, TaskOutcome
from tasks.bag.task_rows import Interest
from tasks.errors import StoreError
from tasks.operators.manager_rows import RefusedMails
from tasks.requests import outbox
from tasks.requests.outbox import Mail
from tasks.requests.request_table import RequestRow
from tasks.settings import Settings
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tests.mails import text_of
from tests.waiting import until

pytestmark = pytest.mark.integration


@dataclass
class Catcher:
    """What a mail server took; answers 451 while `refusing`."""

    mails: list[EmailMessage] = field(default_factory=list)
    refusing: bool = False

    async def handle_DATA(self, _server: Any, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.refusing:
            return "451 4.7.1 greylisted, come again"
        raw = envelope.original_content or b""
        parsed = message_from_bytes(raw, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        self.mails.append(parsed)
        return "250 taken"


def serve(catcher: Catcher, **options: Any) -> Controller:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    controller = Controller(catcher, hostname="127.0.0.1", port=free, **options)
    controller.start()
    return controller


@pytest.fixture
def catcher() -> Catcher:
    return Catcher()


@pytest.fixture
def plain(catcher: Catcher) -> Iterator[MailServer]:
    controller = serve(catcher)
    yield MailServer(host="127.0.0.1", port=controller.port, sender="swathmill@example.org")
    controller.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("certificate")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "cert.pem", folder / "key.pem"


def mail(request: str = "r1") -> Mail:
    return Mail(
        request=request,
        to="scientist@example.org",
        kind="end",
        subject="Léaf area: complete",
        body="Your request is complete – 36 files.\n",
        written=1_700_000_000.0,
    )


def test_a_mail_goes_out_once_with_its_own_message_id(plain: MailServer, catcher: Catcher) -> None:
    store, clock = MemoryStore(), ManualClock()
    outbox.put(store, clock, mail())
    outbox.put(store, clock, replace(mail(), written=clock.now()))  # told twice
    postman = Postman(store, clock, plain)
    assert postman.deliver() == 1
    assert postman.deliver() == 0
    (got,) = catcher.mails
    assert got["Message-ID"] == mail().message_id
    assert got["Subject"] == "Léaf area: complete"
    assert got["To"] == "scientist@example.org"
    assert "swathmill@example.org" in got["From"]
    assert text_of(got).strip() == "Your request is complete – 36 files."
    assert not list(outbox.unsent(store))


def test_a_mail_whose_sending_was_not_recorded_is_sent_again_the_same(
    plain: MailServer, catcher: Catcher
) -> None:
    clock = ManualClock()
    for _ in range(2):  # the second store is the first one without the record of the sending
        store = MemoryStore()
        outbox.put(store, clock, mail())
        Postman(store, clock, plain).deliver()
    first, second = catcher.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert first.as_bytes() == second.as_bytes()


def test_a_mail_that_was_taken_while_storage_is_away_is_not_sent_again(
    plain: MailServer, catcher: Catcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = MemoryStore(), ManualClock()
    outbox.put(store, clock, mail())
    postman = Postman(store, clock, plain)

    def away(*_: object) -> None:
        raise StoreError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(store, "transact", away)
        for _ in range(2):
            with pytest.raises(StoreError):
                postman.deliver()
    assert list(outbox.unsent(store))
    assert postman.deliver() == 1
    assert not list(outbox.unsent(store))
    assert len(catcher.mails) == 1


def test_what_is_recorded_late_does_not_undo_that_a_mail_was_sent() -> None:
    """A manager that stalled says that the mail was refused, after another one has sent it."""
    store, clock = MemoryStore(), ManualClock()
    outbox.put(store, clock, mail())
    (stale,) = outbox.unsent(store)
    outbox.mark_sent(store, clock, stale, clock.now())
    outbox.mark_failed(store, clock, stale, "greylisted")
    outbox.mark_sent(store, clock, stale, clock.now() + 60)
    (kept,) = outbox.mails(store)
    assert (kept.sent_at, kept.error, kept.tries) == (clock.now(), "", 0)
    assert not list(outbox.unsent(store))


def test_a_mail_that_is_not_taken_waits_longer_each_time(
    plain: MailServer, catcher: Catcher
) -> None:
    store, clock = MemoryStore(), ManualClock()
    outbox.put(store, clock, mail())
    catcher.refusing = True
    postman = Postman(store, clock, plain)
    waited = []
    for _ in range(4):
        assert postman.deliver() == 0
        tries = next(outbox.unsent(store)).tries
        start = clock.now()
        while next(outbox.unsent(store)).tries == tries:
            clock.sleep(1.0)
            assert postman.deliver() == 0
        waited.append(clock.now() - start)
    assert "greylisted" in next(outbox.unsent(store)).error
    assert postman.refused.count == 1
    assert "greylisted" in postman.refused.error
    assert all(later > sooner for sooner, later in pairwise(waited))
    catcher.refusing = False
    clock.sleep(3600.0)
    assert postman.deliver() == 1
    assert len(catcher.mails) == 1
    assert postman.deliver() == 0
    assert postman.refused == RefusedMails()


def test_an_old_mail_is_given_up(plain: MailServer, catcher: Catcher) -> None:
    store, clock = MemoryStore(), ManualClock()
    outbox.put(store, clock, mail())
    clock.sleep(GIVE_UP + 1.0)
    assert Postman(store, clock, plain).deliver() == 0
    assert not catcher.mails
    assert GIVE_UP == 5 * 86_400
    outbox.put(store, clock, replace(mail(), request="later", written=clock.now() - GIVE_UP + 1.0))
    assert Postman(store, clock, plain).deliver() == 1


@pytest.mark.parametrize(
    ("opens", "good"),
    [
        ({"signs_in": "ada@example.org", "shows": ("r2",)}, 3600.0),
        ({"shows": ("r2",)}, 86_400.0),
    ],
)
def test_a_mail_whose_links_have_ended_is_given_up(
    plain: MailServer, catcher: Catcher, opens: dict[str, Any], good: float
) -> None:
    store, clock = MemoryStore(), ManualClock()
    outbox.put(store, clock, replace(mail(), **opens))
    catcher.refusing = True
    postman = Postman(store, clock, plain)
    clock.sleep(good)
    assert postman.deliver() == 0
    assert next(outbox.unsent(store)).tries == 1
    catcher.refusing = False
    clock.sleep(100.0)
    assert postman.deliver() == 0
    assert postman.refused.count == 0, "nobody waits for it any more"
    assert not catcher.mails


def test_no_server_there(plain: MailServer) -> None:
    store, clock = MemoryStore(), ManualClock()
    outbox.put(store, clock, mail())
    nobody = replace(plain, port=1)
    postman = Postman(store, clock, nobody)
    assert postman.deliver() == 0
    assert postman.refused.count == 0, "it had not been tried"
    assert "refused" in next(outbox.unsent(store)).error.lower()


def test_a_tick_does_not_wait_for_the_server(plain: MailServer, catcher: Catcher) -> None:
    store, clock = MemoryStore(), ManualClock()
    outbox.put(store, clock, mail())
    postman = Postman(store, clock, plain)
    postman.tick()
    until(lambda: len(catcher.mails) == 1)
    postman.close(10.0)
    assert not list(outbox.unsent(store))


def test_the_outbox_is_looked_at_when_told_and_now_and_then(
    plain: MailServer, catcher: Catcher
) -> None:
    store, clock = MemoryStore(), ManualClock()
    postman = Postman(store, clock, plain)

    def tick() -> None:
        postman.tick()
        postman.close(10.0)

    tick()
    outbox.put(store, clock, mail())
    tick()
    assert not catcher.mails, "nobody told of it"
    postman.look()
    tick()
    assert len(catcher.mails) == 1
    outbox.put(store, clock, mail("r2"))
    clock.sleep(LOOK_SECONDS)
    tick()
    assert len(catcher.mails) == 2, "the wake-up was lost"


def test_without_a_mail_server_mail_stays_in_the_outbox() -> None:
    store, clock = MemoryStore(), ManualClock()
    outbox.put(store, clock, mail())
    server = MailServer.of(Settings())
    assert server is None
    postman = Postman(store, clock, server)
    postman.tick()
    assert postman.deliver() == 0
    assert len(list(outbox.unsent(store))) == 1


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_encrypted_and_signed_in(
    tls: str, certificate: tuple[Path, Path], catcher: Catcher
) -> None:
    chain = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain.load_cert_chain(*certificate)
    seen: list[LoginPassword] = []

    def check(_server: Any, _session: Any, _letter: Any, _how: str, data: Any) -> AuthResult:
        seen.append(data)
        return AuthResult(success=data == LoginPassword(b"mill", b"secret"), handled=False)

    options: dict[str, Any] = {"authenticator": check}
    if tls == "tls":
        options |= {"ssl_context": chain, "auth_require_tls": False}
    else:
        options |= {"tls_context": chain, "require_starttls": True, "auth_required": True}
    controller = serve(catcher, **options)
    try:
        server = MailServer(
            host="localhost",
            port=controller.port,
            sender="swathmill@example.org",
            user="mill",
            password="secret",
            tls=tls,
            trust=ssl.create_default_context(cafile=certificate[0]),
        )
        store, clock = MemoryStore(), ManualClock()
        outbox.put(store, clock, mail())
        assert Postman(store, clock, server).deliver() == 1
        outbox.put(store, clock, mail("r2"))
        assert Postman(store, clock, replace(server, password="wrong")).deliver() == 0
        outbox.put(store, clock, mail("r3"))
        assert Postman(store, clock, replace(server, trust=None)).deliver() == 0
    finally:
        controller.stop()
    assert len(catcher.mails) == 1
    errors = [found.error for found in outbox.unsent(store)]
    assert any("certificate" in error.lower() for error in errors)
    assert not any("wrong" in error for error in errors)
    assert seen[0] == LoginPassword(b"mill", b"secret")
    assert LoginPassword(b"mill", b"wrong") in seen


def test_the_settings_name_the_server() -> None:
    server = MailServer.of(
        Settings(smtp_url="smtps://mail.example.org", smtp_password=SecretStr("x"))
    )
    assert server is not None
    assert (server.host, server.port, server.tls, server.password) == (
        "mail.example.org",
        465,
        "tls",
        "x",
    )


def test_composing_the_mail_of_a_request() -> None:
    row = RequestRow(
        id="r1", owner="o", state=RequestState.COMPLETE, submitted=0.0, title="Leaf\narea"
    )
    interests = [
        Interest(
            request="r1", key="0", phase=Phase.COLLECTION, outcome=TaskOutcome.DONE, reused=True
        )
    ]
    args: dict[str, Any] = {"portal_url": "http://portal/", "now": 5.0}
    assert compose(row, interests, (), to="", **args) is None
    made = compose(row, interests, (), to="scientist@example.org", **args)
    assert made is not None
    assert "http://portal/requests/r1" in made.body
    assert message(made, "a@b")["Subject"] == "Leaf area: complete"


def test_a_mail_that_is_never_taken_is_tried_each_half_hour(plain: MailServer) -> None:
    store, clock = MemoryStore(), ManualClock()
    postman = Postman(store, clock, plain)
    waits = {}
    for tries in (0, 1, 7, 8, 10_000):
        late = replace(mail(), tries=tries)
        postman._put_off(late, OSError("no"))
        waits[tries] = postman._due[late.id] - clock.monotonic()
    assert notify.LONGEST_DELAY == 1_800.0
    assert waits == pytest.approx({0: 10.0, 1: 20.0, 7: 1_280.0, 8: 1_800.0, 10_000: 1_800.0})
