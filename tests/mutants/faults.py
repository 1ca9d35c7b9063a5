"""The listed faults: small, realistic mistakes in the protocol, each with the test that sees it.

A fault is an entry `[[fault]]` of a TOML file beside this module: `what` it is, the `file`, the
`old` text and the `new` one, and either the cheapest `test` that fails with it, or why it is
`equivalent`: nothing that is promised changes by it.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTS = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One listed fault."""

    what: str
    file: str
    old: str
    new: str
    test: str = ""
    equivalent: str = ""

    def stale(self) -> str:
        """Say why the fault can no longer be put into the code; empty when it can."""
        count = (ROOT / self.file).read_text("utf-8").count(self.old)
        if count == 1:
            return ""
        found = "is no longer in" if not count else f"is {count} times in"
        return f"{self.what}: its old text {found} {self.file}; bring its entry up to date"

    def source(self) -> str:
        """Return the file's text with the fault in it."""
        return (ROOT / self.file).read_text("utf-8").replace(self.old, self.new)


def load_faults() -> list[Fault]:
    """Load all listed faults."""
    return [
        Fault(**entry)
        for path in sorted(LISTS.glob("*.toml"))
        for entry in tomllib.loads(path.read_text("utf-8"))["fault"]
    ]
