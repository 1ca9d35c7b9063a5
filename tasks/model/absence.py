"""What a task does without, so bounded that its specification fits into one transaction."""

from collections.abc import Iterable
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

NAMED = 300
"""The most that a specification names of what its task does without."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Absent(_Model):
    """An expected input that a task does without, and why: what the archive does not have, or a
    failure's category.

    `part` is what the task has not for want of it: a granule of a cell, a cell of a mosaic, a band
    of a group, a date of a cube. The parts there are, and those, are what was expected.
    """

    part: str
    what: str
    why: str


class Unnamed(_Model):
    """How much more a task does without than its specification names: so many inputs, and so many
    parts of which it names no input."""

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
    """The same with as many names as are allowed: the first in the order of part and name, however
    they came together. `unnamed` is how much more there is than `missing`."""
    found = sorted({*missing}, key=lambda one: (one.part, one.what, one.why))
    named, left = found[:NAMED], found[NAMED:]
    names = {(one.what, one.why) for one in left} - {(one.what, one.why) for one in named}
    parts = {one.part for one in left} - {one.part for one in named}
    more = Unnamed(
        inputs=len(names) + (unnamed.inputs if unnamed else 0),
        parts=len(parts) + (unnamed.parts if unnamed else 0),
    )
    return Absence(tuple(named), more if more.inputs or more.parts else None)
