"""Mail addresses: the one rule by which forms, requests and mails know one."""

import re

_PART = r'[^@\s\x00-\x1f\x7f()<>\[\]:;,\\"]+'
ADDRESS = f"{_PART}@{_PART}"
"""An address as it stands in a header, without controls and the specials of RFC 5322, 3.2.3."""
LONGEST = 254


def is_address(text: str) -> bool:
    """Tell whether mail can be sent to a text as it stands."""
    return len(text) <= LONGEST and re.fullmatch(ADDRESS, text) is not None
