"""Task classes: the attempts that have one historical mean.

The text of a class names the work, what it is done to, and how much of it there is, in powers of
two: `reprojection MOD13A2.6 0.01, 1-2 Mpx`. Two classes may be of the same work but for the amount,
of the same family (another resolution of the product, other parameters of the package), or of
the same kind (other products).
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from tasks.bag.model import Phase

_PHASES = {phase.value: phase for phase in Phase} | {"extraction": Phase.REPROJECTION}
_PREFIXES = ("", "K", "M", "G", "T", "P")  # of 1024 each
_AMOUNT = re.compile(r"^(\d+)-\d+ ([KMGTP]?)(?:B|px)$")
# Words of a class that name its kind, and its family; more words name the work within the family.
_KIND = {"collection": 1, "reprojection": 1, "aggregation": 2, "reduction": 1}
_FAMILY = {"collection": 2, "reprojection": 2, "aggregation": 2, "reduction": 3}


@dataclass(frozen=True, slots=True)
class TaskClass:
    """Describe a class, read from its text.

    `octave` is the power of two at or below the amount; None where the amount is not known.
    """

    kind: str
    family: str
    work: str
    octave: int | None


def sized(work: str, amount: int) -> str:
    """Return the class of an amount of work.

    The amount is in bytes (of a collection) or in pixels; 0 means that it is not known.
    """
    if amount <= 0:
        return work
    return f"{work}, {_span(amount.bit_length() - 1, 'B' if work[:10] == 'collection' else 'px')}"


@lru_cache(maxsize=1024)
def _span(octave: int, unit: str) -> str:
    step = min(octave // 10, len(_PREFIXES) - 1)
    low = 2 ** (octave - 10 * step)
    return f"{low}-{2 * low} {_PREFIXES[step]}{unit}"


@lru_cache(maxsize=8192)
def parse(text: str) -> TaskClass:
    """Parse a class from its text; any text is a class."""
    work, _, amount = text.rpartition(", ")
    found = _AMOUNT.match(amount) if work else None
    octave = None
    if found:
        octave = int(found[1]).bit_length() - 1 + 10 * _PREFIXES.index(found[2])
    else:
        work = text
    words = work.split(" ")
    return TaskClass(
        kind=" ".join(words[: _KIND.get(words[0], len(words))]),
        family=" ".join(words[: _FAMILY.get(words[0], len(words))]),
        work=work,
        octave=octave,
    )


def phase(text: str) -> Phase | None:
    """Return the phase of a class; None where its text does not begin with one."""
    word = text.partition(" ")[0].rstrip(",")
    return _PHASES.get(word)


def product(text: str) -> str:
    """Return the product and collection of a class, `MOD13A2.6`; empty where it has none."""
    words = text.split(" ")
    if words[0] not in ("collection", "reprojection", "extraction") or len(words) < 2:
        return ""
    return words[1].rstrip(",") if "." in words[1] else ""


def archive_host(text: str) -> str:
    """Return the host that a collection class fetches from; empty where it needs no connection."""
    words = text.split(" ", 4)
    if words[0] != "collection" or len(words) < 4 or words[2] != "from":
        return ""
    return words[3].rstrip(",")


def package(text: str) -> str:
    """Return the reduction package of a class; empty where it has none."""
    words = text.split(" ")
    return words[1].rstrip(",") if words[0] == "reduction" and len(words) > 1 else ""
