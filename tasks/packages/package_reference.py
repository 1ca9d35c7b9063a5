"""How a request names a reduction package: `NAME`, `NAME@VERSION` or `OWNER/NAME@VERSION`.

In place of the version the SHA-256 of the archive may stand. Without an owner it is one's own
package, else one of this installation; without a version it is the newest that is not deprecated.
"""

import re
from dataclasses import dataclass
from typing import Self

NAME = r"[a-z0-9][a-z0-9-]{0,62}"
VERSION = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}"
DIGEST = r"[0-9a-f]{64}"
OWNER = r"[^\x00-\x1f]{1,254}"
PATTERN = rf"^(?:{OWNER}/)?{NAME}(?:@(?:{DIGEST}|{VERSION}))?$"

_WHOLE = re.compile(PATTERN)


@dataclass(frozen=True, kw_only=True)
class PackageReference:
    """The parts of a reference; each but the name may be empty."""

    name: str
    owner: str = ""
    version: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a reference; raise ValueError for a text that is none."""
        if not _WHOLE.fullmatch(text):
            raise ValueError(
                f"{text!r} names no package; write NAME, NAME@VERSION or OWNER/NAME@VERSION"
            )
        owner, _, rest = text.rpartition("/")
        name, _, chosen = rest.partition("@")
        exact = re.fullmatch(DIGEST, chosen) is not None
        return cls(
            name=name,
            owner=owner,
            version="" if exact else chosen,
            digest=chosen if exact else "",
        )

    def __str__(self) -> str:
        owner = f"{self.owner}/" if self.owner else ""
        chosen = self.digest or self.version
        return f"{owner}{self.name}" + (f"@{chosen}" if chosen else "")
