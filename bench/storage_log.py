"""Calls to Azurite, counted by its own log, in the kinds that Azure bills.

Azurite is started as ever but for `--silent`: it writes a line for each call.
"""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

from swathmill.stack import programs
from tasks.bag.model import Use

_LINE = re.compile(rb'"(?P<method>[A-Z]+) (?P<address>\S+) HTTP/1\.1" \d{3}')
READS = ("reads of a row", "reads of a range", "reads of blobs", "other reads")
"""Kinds of calls that Azure bills as reads; all others it bills as writes."""


def azurite_that_tells(folder: Path) -> Path:
    """Return a folder for SWATHMILL_NODE_MODULES whose Azurite writes a line for each call."""
    script = folder / "azurite" / "dist" / "src" / "azurite.js"
    script.parent.mkdir(parents=True)
    script.write_text(
        "process.argv = process.argv.filter((word) => word !== '--silent');\n"
        f"require({json.dumps(str(_azurite()))});\n"
    )
    return folder


@cache
def _azurite() -> Path:
    """Find the real one, before the setting names another."""
    return programs.azurite()


class StorageLog:
    """The log of a running Azurite."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._from = 0
        self.forget()

    def forget(self) -> None:
        """Leave out what was called until now."""
        self._from = self._path.stat().st_size

    def calls(self) -> Counter[str]:
        """Count the calls since, by kind."""
        with self._path.open("rb") as file:
            file.seek(self._from)
            found = _LINE.finditer(file.read())
        return Counter(kind_of(line["method"].decode(), line["address"].decode()) for line in found)


def kind_of(method: str, address: str) -> str:
    """Return what kind of call a line of the log tells of."""
    path, _, query = address.partition("?")
    if path.endswith("/$batch"):
        return "transactions"
    if "/messages" in path:
        return "other reads" if method == "GET" else "other writes"
    if "(PartitionKey=" in path or "(" in path:
        return "reads of a range" if path.endswith("()") else "reads of a row"
    if method in ("GET", "HEAD"):
        return "other reads" if "comp=" in query else "reads of blobs"
    return "blobs written" if method == "PUT" and "restype=" not in query else "other writes"


def billed(calls: Counter[str]) -> Use:
    """Return the calls as requests are billed for them."""
    reads = sum(number for kind, number in calls.items() if kind in READS)
    return Use(reads=reads, writes=calls.total() - reads)
