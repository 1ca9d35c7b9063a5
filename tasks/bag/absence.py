"""What a task does without, so bounded that its specification fits into one transaction."""

from collections.abc import Iterable
from typing import NamedTuple

from tasks.strict_model import StrictModel

NAMED = 300
"""The most that a specification names of what its task does without."""


class Absent(StrictModel):
    """Describe an expected input that a task does without, and why.

    The reason is that the archive does not have the input, or a failure's category. `part` is what
    the task lacks because of it: a granule of a cell, a cell of a mosaic, a band of a group, a date
    of a cube. The parts that exist and the absent ones together are what was expected.
    """

    part: str
    what: str
    why: str


class Unnamed(StrictModel):
    """Count what a task does without beyond the inputs that its specification names.

    There is one number of inputs, and one of parts for which the specification names no input.
    """

    inputs: int
    parts: int


class Absence(NamedTuple):
    """All that a task does without: what is named of it, and how much more there is."""

    named: tuple[Absent, ...]
    unnamed: Unnamed | None = None

    @property
    def fields(self) -> dict[str, object]:
        """As fields of a specification."""
        return {"missing": self.named, "missing_unnamed": self.unnamed}

    @property
    def parts(self) -> int:
        """The number of parts that were expected and are not there."""
        return len({one.part for one in self.named}) + (self.unnamed.parts if self.unnamed else 0)

    def joined(self, other: "Absence") -> "Absence":
        """Both together, which have no part in common."""
        counts = [one.unnamed for one in (self, other) if one.unnamed]
        unnamed = Unnamed(
            inputs=sum(count.inputs for count in counts), parts=sum(count.parts for count in counts)
        )
        return bounded((*self.named, *other.named), unnamed)


NOTHING = Absence(())


def bounded(missing: Iterable[Absent], unnamed: Unnamed | None = None) -> Absence:
    """Return the same absences with as many names as are allowed.

    The first in the order of part and name are kept, in whatever order they were collected.
    `unnamed` is how much more there is than `missing`.
    """
    found = sorted({*missing}, key=lambda one: (one.part, one.what, one.why))
    named, left = found[:NAMED], found[NAMED:]
    names = {(one.what, one.why) for one in left} - {(one.what, one.why) for one in named}
    parts = {one.part for one in left} - {one.part for one in named}
    more = Unnamed(
        inputs=len(names) + (unnamed.inputs if unnamed else 0),
        parts=len(parts) + (unnamed.parts if unnamed else 0),
    )
    return Absence(tuple(named), more if more.inputs or more.parts else None)
