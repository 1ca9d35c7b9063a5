"""Values of settings that have parts, such as the amounts to confirm; pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Self
from urllib.parse import unquote, urlsplit

from modis.collection import short_text

_TLS = {"smtp": ("none", 25), "smtp+starttls": ("starttls", 587), "smtps": ("tls", 465)}
_LEAST_MOST = re.compile(r"(\d+)-(\d*)")
_BLOCKS = re.compile(r"(\d+)x(\d+)")
_LARGEST_BLOCK = 64  # MiB
_WORK = ("collection", "reprojection", "extraction", "aggregation", "reduction")

PLACE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
"""The name of a place where workers are."""


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


@dataclass(frozen=True, kw_only=True)
class WorkPlaces:
    """Which work is done by the workers of which place: the others do all else.

    `rules` are the first words of a class of tasks, and the place; of two that fit, the one with
    more words holds.
    """

    rules: tuple[tuple[tuple[str, ...], str], ...] = ()

    @classmethod
    def read(cls, text: str) -> "WorkPlaces":
        """Read `PLACE=WORK,WORK PLACE=WORK`; the words of a WORK are joined by slashes.

        Raises ValueError for anything else, and for work that is given to two places.
        """
        rules: dict[tuple[str, ...], str] = {}
        for part in text.split():
            place, equals, works = part.partition("=")
            if not equals or not PLACE_NAME.fullmatch(place):
                raise ValueError(f"{part!r} is not PLACE=WORK, as in gpu=reduction/segment")
            for work in works.split(","):
                words = tuple(short_text(work).split("/"))
                if words[0] not in _WORK or not all(words):
                    raise ValueError(f"{work!r} does not begin with one of {', '.join(_WORK)}")
                if rules.setdefault(words, place) != place:
                    raise ValueError(f"{work!r} has two places, {rules[words]} and {place}")
        return cls(rules=tuple(sorted(rules.items(), key=lambda rule: -len(rule[0]))))

    @property
    def names(self) -> tuple[str, ...]:
        """The places, in order of their names."""
        return tuple(sorted({place for _, place in self.rules}))

    def of(self, task_class: str) -> str:
        """Return the place of a class of tasks; empty: that of all other work."""
        return _place(self.rules, task_class) if self.rules else ""


@lru_cache(maxsize=4096)
def _place(rules: tuple[tuple[tuple[str, ...], str], ...], task_class: str) -> str:
    words = tuple(task_class.replace(",", " ").split())
    return next((place for first, place in rules if words[: len(first)] == first), "")


_Reader = type[SmtpServer | Confirm | Slots | Blocks | ClaimNames | WorkPlaces]

READERS: Mapping[str, _Reader] = {
    "smtp_url": SmtpServer,
    "confirm": Confirm,
    "scale_slots": Slots,
    "blocks": Blocks,
    "oidc_claims": ClaimNames,
    "work_places": WorkPlaces,
}
"""What reads the text of each such setting."""
