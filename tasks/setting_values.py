"""Values of settings that have parts, such as the amounts to confirm; pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self
from urllib.parse import unquote, urlsplit

_TLS = {"smtp": ("none", 25), "smtp+starttls": ("starttls", 587), "smtps": ("tls", 465)}
_LEAST_MOST = re.compile(r"(\d+)-(\d*)")
_BLOCKS = re.compile(r"(\d+)x(\d+)")
_LARGEST_BLOCK = 64  # MiB


@dataclass(frozen=True, kw_only=True)
class SmtpServer:
    """A mail server and how to speak to it; `tls` is none, starttls or tls."""

    host: str
    port: int
    user: str = ""
    tls: str = "none"

    @classmethod
    def read(cls, url: str) -> "SmtpServer | None":
        """Read `smtp://`, `smtp+starttls://` or `smtps://[USER@]HOST[:PORT]`; empty: None.

        Raises ValueError for anything else, and for a password in it.
        """
        if not url:
            return None
        parts = urlsplit(url)
        if parts.scheme not in _TLS or not parts.hostname or parts.path.strip("/"):
            raise ValueError("it is not smtp://, smtp+starttls:// or smtps://[USER@]HOST[:PORT]")
        if parts.query or parts.fragment:
            raise ValueError("write ? and # in a name as %3F and %23")
        if parts.password is not None:
            raise ValueError("the password stands in SWATHMILL_SMTP_PASSWORD alone")
        if parts.port == 0:
            raise ValueError("no server listens on port 0; leave the port out for the usual one")
        tls, port = _TLS[parts.scheme]
        return cls(
            host=parts.hostname,
            port=parts.port or port,
            user=unquote(parts.username or ""),
            tls=tls,
        )


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Amounts by name, written `name=1 other=2`; what is not named keeps its default."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the amounts. Raises ValueError for another name or for no amount, naming it."""
        known = [one.name for one in fields(cls)]
        given: dict[str, float] = {}
        for word in text.replace(",", " ").split():
            name, equals, amount = word.partition("=")
            name = name.replace("-", "_")
            if name not in known or not equals:
                names = " ".join(f"{one.replace('_', '-')}=AMOUNT" for one in known)
                raise ValueError(f"{word!r} is not one of {names}")
            given[name] = _amount(amount, word)
        return cls(**given)

    def __str__(self) -> str:
        said = ((one.name.replace("_", "-"), getattr(self, one.name)) for one in fields(self))
        return " ".join(f"{name}={amount:g}" for name, amount in said)


def _amount(text: str, word: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        raise ValueError(f"{word!r} has no number") from None
    if not 0 <= amount < float("inf"):
        raise ValueError(f"{word!r} is not zero or more")
    return amount


@dataclass(frozen=True, kw_only=True)
class Confirm(Amounts):
    """Beyond these amounts a request waits for its owner.

    Tasks, GB to fetch, expected hours of one core, and, where there are prices, expected cost.
    """

    tasks: float = 50_000
    gb: float = 500.0
    core_hours: float = 2_000.0
    cost: float = 100.0


@dataclass(frozen=True, kw_only=True)
class Slots:
    """The fewest slots that are ever wanted, and the most; 0: no limit."""

    least: int = 0
    most: int = 0

    @classmethod
    def read(cls, text: str) -> "Slots":
        """Read `LEAST-MOST` or `LEAST-`. Raises ValueError for anything else."""
        found = _LEAST_MOST.fullmatch(text.replace(" ", ""))
        if not found or (found[2] and int(found[2]) < max(int(found[1]), 1)):
            raise ValueError("it is not LEAST-MOST, or LEAST- for no limit")
        return cls(least=int(found[1]), most=int(found[2] or 0))


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """MiB of a block of a transfer (0: by the file's size), and how many are under way at once."""

    mib: int = 0
    at_once: int = 4

    @classmethod
    def read(cls, text: str) -> "Blocks":
        """Read `MIBxCOUNT`; empty: the default. Raises ValueError for anything else."""
        if not text:
            return cls()
        found = _BLOCKS.fullmatch(text.replace(" ", ""))
        if not found or int(found[1]) > _LARGEST_BLOCK or int(found[2]) < 1:
            raise ValueError(f"it is not MIBxCOUNT such as 8x4, blocks of {_LARGEST_BLOCK} at most")
        return cls(mib=int(found[1]), at_once=int(found[2]))


@dataclass(frozen=True, kw_only=True)
class ClaimNames:
    """The claim that is the owner of a person's requests, and the one that lists groups."""

    owner: str
    groups: str

    @classmethod
    def read(cls, text: str) -> "ClaimNames":
        """Read `OWNER,GROUPS`. Raises ValueError for anything else."""
        owner, comma, groups = (one.strip() for one in text.partition(","))
        if not (owner and comma and groups) or "," in groups:
            raise ValueError("it is not two claims, as in email,groups")
        return cls(owner=owner, groups=groups)


READERS: Mapping[str, type[SmtpServer | Confirm | Slots | Blocks | ClaimNames]] = {
    "smtp_url": SmtpServer,
    "confirm": Confirm,
    "scale_slots": Slots,
    "blocks": Blocks,
    "oidc_claims": ClaimNames,
}
"""What reads the text of each such setting."""
