"""Mail addresses: the one rule by which forms, requests and mails know one."""

import re

ADDRESS = r'[^@\s()<>\[\]:;,\\"]+@[^@\s()<>\[\]:;,\\"]+'
"""An address as it stands in a header, without the specials of RFC 5322, section 3.2.3."""
LONGEST = 254


def is_address(text: str) -> bool:
    """Whether mail can be sent to a text as it stands."""
    return len(text) <= LONGEST and re.fullmatch(ADDRESS, text) is not None
