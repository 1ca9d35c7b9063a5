"""What a request's page tells of how the sensors of its records differ."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from portal.results.result_files import ResultFile, ResultReader

_TABLE = ".overlap.csv"
_MOST = 2**16  # bytes of a table that a page reads
_NUMBERS = ("bias", "rmse", "r")


@dataclass(frozen=True, kw_only=True)
class SensorsCompared:
    """How a sensor differs from the one before it, in a layer of a record; numbers as texts."""

    layer: str
    units: str
    sensor: str
    reference: str
    dates: str
    cells: str
    n: str
    numbers: tuple[str, ...]
    path: str


def sensor_overlaps(
    files: Mapping[str, ResultFile], reader: ResultReader
) -> Iterator[SensorsCompared]:
    """Yield the rows of the tables of overlaps among a request's results.

    Raises the errors of `ResultReader.part`.
    """
    for path, found in files.items():
        if not path.endswith(_TABLE) or found.file.size > _MOST:
            continue
        text = b"".join(reader.whole(reader.current(found))).decode("utf-8", "replace")
        try:
            yield from [_row(path, row) for row in csv.DictReader(text.splitlines())]
        except (KeyError, ValueError, TypeError):
            continue  # a package's own file of such a name


def _row(path: str, row: Mapping[str, str]) -> SensorsCompared:
    span = f", {row['first']} to {row['last']}" if row["first"] else ""
    return SensorsCompared(
        layer=f"{row['record']} {row['layer']}",
        units=row["units"],
        sensor=row["sensor"],
        reference=row["reference"],
        dates=f"{row['dates']}{span}",
        cells=row["cells"],
        n=f"{int(row['n']):,}",
        numbers=tuple(f"{float(row[name]):.4g}" if row[name] else "" for name in _NUMBERS),
        path=path,
    )
