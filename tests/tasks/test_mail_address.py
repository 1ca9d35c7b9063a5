"""One rule for what is a mail address: in forms, in requests and for mails."""

from email.utils import parseaddr

import pytest
from pydantic import ValidationError

from tasks import mail_address
from tasks.mail_address import is_address
from tasks.request.document import Request
from tests.portal.submissions import DOCUMENT


@pytest.mark.parametrize("text", ["scientist@example.org", "a.b+c@d", "é@example.org"])
def test_an_address_stands_in_a_header_as_it_is(text: str) -> None:
    assert is_address(text)
    assert parseaddr(text)[1] == text
    assert Request.model_validate({**DOCUMENT, "notify": text}).notify == text


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "x y@z",
        "a@b\nBcc: c@d",
        "A Name <a@b>",
        "a,b@c",
        'a"b@c',
        "a@b@c",
        "a\x00@b",
        "a@\x1b[31mb",
        "x" * 254 + "@y",
    ],
)
def test_what_is_none_is_refused_by_a_request_too(text: str) -> None:
    assert not is_address(text)
    with pytest.raises(ValidationError):
        Request.model_validate({**DOCUMENT, "notify": text})


def test_an_address_has_so_many_characters() -> None:
    """RFC 5321, 4.5.3.1.3: a path has 256, with its brackets."""
    longest = "a" * 242 + "@example.org"
    assert len(longest) == mail_address.LONGEST == 254
    assert is_address(longest)
    assert not is_address(f"b{longest}")
