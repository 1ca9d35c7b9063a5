"""What tests read in a mail."""

from email.message import EmailMessage


def text_of(mail: EmailMessage) -> str:
    """Return the plain text of a mail, which it has beside HTML."""
    return part_of(mail, "plain")


def part_of(mail: EmailMessage, kind: str) -> str:
    """Return a mail as `plain` text or as `html`."""
    part = mail.get_body((kind,))
    assert part is not None, f"the mail has no {kind} text"
    return str(part.get_content())
