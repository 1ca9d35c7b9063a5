"""Task keys: a family prefix, and the SHA-256 of everything that determines an artifact.

A key has 64 hex digits. By position:

| digits | are |
|---|---|
| 0 | the shard: a hash of product, collection and date |
| 1-7 | a hash of product and collection |
| 8 | the kind of task, in the order of the phases |
| 9-13 | the date: its number in the Gregorian calendar |
| 14-63 | the identity: the first 50 digits of its SHA-256 |

So the tasks of a family (one product and date) lie in one partition, and those of one kind lie
side by side: a range holds what a batch reads. A task that fetches takes product and date from its
granule's name, or that of the first one; every other task takes them from its first input. All of
it is in the identity.
"""

import json
import re
from datetime import date
from functools import lru_cache

from tasks.canonical import canonical, digest_of


def key_of(identity: str) -> str:
    """Return the task key of the canonical text of all that identifies a task's artifact."""
    digest = digest_of(identity)
    # An escaped quote in a value ends neither pattern: only fields match.
    given = _FIRST_INPUT.search(identity)
    kind = _KIND.search(identity, given.end() if given else 0)
    number = _KINDS.get(kind[1], "f") if kind else "f"
    if number in (_KINDS["parts"], _KINDS["near"]):
        given = None  # its input is the list of the sites, which has no date
    family = given[1] if given else _family_of_granule(identity, digest)
    return f"{family[:8]}{number}{family[9:14]}{digest[:50]}"


_FIRST_INPUT = re.compile(r'"inputs":\[\["([0-9a-f]{64})"')
_KIND = re.compile(r'"kind":"([a-z]+)"')
_DATE = re.compile(r"\.A(\d{4})(\d{3})(?:\.|$)")
_KINDS = {
    kind: f"{number:x}"
    for number, kind in enumerate(
        (
            *("collect", "reproject", "mosaic", "group", "reduce", "cube"),
            *("sites", "extract", "table", "sample", "parts", "overlap", "near"),
            "raster",
        )
    )
}


def _family_of_granule(identity: str, digest: str) -> str:
    """Return the family digits, with any kind, of a task that fetches, or has no inputs."""
    fields = json.loads(identity)
    name = None
    if isinstance(fields, dict):
        dates = fields.get("dates")  # each with its granules; the first counts
        name = dates[0][-1][0] if dates else fields.get("granule")
    dated = _DATE.search(name) if name else None
    if dated is None or dated[1] == "0000":
        return digest
    day = date(int(dated[1]), 1, 1).toordinal() + int(dated[2]) - 1
    return _family(str(fields.get("product")), str(fields.get("collection")), day)


@lru_cache(4096)
def _family(product: str, collection: str, day: int) -> str:
    together = digest_of(canonical([product, collection]).decode("ascii"))
    spread = digest_of(canonical([product, collection, day]).decode("ascii"))
    return f"{spread[0]}{together[:7]}0{day:05x}"


def mates(key: str) -> str:
    """Return the prefix that keys of one kind, product, collection and shard share."""
    return key[:9]


def family(key: str) -> str:
    """Return the prefix that keys of one kind and family share."""
    return key[:14]


def shard(key: str) -> str:
    """Return the partition of a task key: its first hex digit."""
    return key[0]


SHARDS = "0123456789abcdef"


def is_key(text: str) -> bool:
    """Tell whether a text has the form of a task key."""
    return len(text) == 64 and set(text) <= set(SHARDS)
