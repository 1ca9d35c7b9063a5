"""The mail catcher keeps every mail whole, and goes on counting after a restart."""

import smtplib
import sys
from email.message import EmailMessage
from functools import partial
from pathlib import Path

import pytest

from swathmill.delivery import read_mail
from swathmill.stack import ports
from swathmill.stack.children import Child, ChildSpec
from swathmill.stack.mail_catcher import LARGEST_MAIL_BYTES

pytestmark = pytest.mark.integration


def send(port: int, subject: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "mill@localhost", "one@example.org", subject
    mail.set_content("Fertig: 4 Dateien — größer als zuvor\n.\nA line after a lone dot")
    with smtplib.SMTP(ports.LOOPBACK, port, timeout=10) as server:
        server.send_message(mail)
        assert server.esmtp_features["size"] == str(LARGEST_MAIL_BYTES)


def test_mails_are_kept_over_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "mail"
    for subject in ("first", "second"):
        (port,) = ports.choose(1)
        arguments = ("--port", str(port), "--folder", str(folder))
        child = Child(
            ChildSpec(
                name="mail",
                argv=(sys.executable, "-m", "swathmill.stack.mail_catcher", *arguments),
                log=tmp_path / "mail.log",
            )
        )
        child.start()
        child.wait_until(partial(ports.answers, port), limit_seconds=30)
        send(port, subject)
        child.stop()
        assert child.exit_code() == 0, child.log_tail()
    assert [path.name for path in sorted(folder.iterdir())] == ["0001.eml", "0002.eml"]
    shown = read_mail(folder / "0002.eml")
    assert "Subject: second" in shown
    assert "To: one@example.org" in shown
    assert "größer als zuvor\n.\nA line after a lone dot" in shown
