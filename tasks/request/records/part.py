"""A product as one of a record's: what a choice in a resolved request knows of its record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# Spelt here, as only a request with a record needs the records.
RECORD = "record:"
RECORD_NAME = r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*"


@dataclass(frozen=True, kw_only=True)
class RecordPart:
    """What a product is to the record that stands in the document.

    `place` is the number of the record among the document's products, `record` its name without
    prefix. `names` has the record's names of the product's layers, `units` the unit of each by the
    record's name. `every` counts the days between two dates of the record.
    """

    place: int
    record: str
    overlap: Literal["prefer", "mean", "all"]
    names: Mapping[str, str]
    units: Mapping[str, str]
    every: int

    @property
    def is_mean(self) -> bool:
        """True if a date is the mean of all of the record's products that have it."""
        return self.overlap == "mean"

    @property
    def shares_dates(self) -> bool:
        """True if the record's products stand for one another, so that a date needs one."""
        return self.overlap != "all"


def is_record(name: str) -> bool:
    """Tell whether a product's name in a request is that of a record."""
    return name.startswith(RECORD)
