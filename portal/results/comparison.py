"""What a request's page tells of a comparison with measurements."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass

from portal.results.result_files import ResultFile, ResultReader

STATISTICS = "sites/comparison-statistics.csv"
_PICTURES = "sites/comparison."
_MOST = 2**20  # bytes of statistics that a page reads
_NUMBERS = ("bias", "rmse", "r", "slope", "intercept")


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How a layer agrees with measurements, at one site or in all; numbers as texts."""

    layer: str
    column: str
    units: str
    site: str
    n: str
    numbers: tuple[str, ...]
    regression: str


@dataclass(frozen=True, kw_only=True)
class ComparisonView:
    """The statistics of a comparison, and the paths of its scatter plots."""

    rows: tuple[Agreement, ...]
    pictures: tuple[str, ...]

    @property
    def regression(self) -> str:
        """The regression of the slopes."""
        return self.rows[0].regression if self.rows else ""


def comparison(files: Mapping[str, ResultFile], reader: ResultReader) -> ComparisonView | None:
    """Read the comparison among a request's results; None if there is none yet.

    Raises the errors of `ResultReader.part`.
    """
    found = files.get(STATISTICS)
    if found is None or found.file.size > _MOST:
        return None
    text = b"".join(reader.whole(reader.current(found))).decode("utf-8")
    rows = tuple(
        Agreement(
            layer=f"{row['product']} {row['layer']}",
            column=row["column"],
            units=row["units"],
            site=row["site"],
            n=row["n"],
            numbers=tuple(f"{float(row[name]):.4g}" if row[name] else "" for name in _NUMBERS),
            regression=row["regression"],
        )
        for row in csv.DictReader(text.splitlines())
    )
    pictures = tuple(path for path in files if path.startswith(_PICTURES) and path.endswith(".png"))
    return ComparisonView(rows=rows, pictures=pictures)
