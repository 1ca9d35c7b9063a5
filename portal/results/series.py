"""Values of a layer at a place over its dates."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from portal.results.charts import Chart, Line, Mark, chart
from portal.results.layers import ResultLayer, minute_of
from portal.results.state import Results
from portal.serving.portal import Portal
from portal.serving.quantities import unit_text
from tasks.requests.request_table import RequestRow


@dataclass(frozen=True, kw_only=True)
class Series:
    """Values of a layer's first band at a place, by date; None where there is none.

    `texts` are the values as pages and tables write them, "" where there is none.
    """

    dates: tuple[str, ...]
    values: tuple[float | None, ...]
    texts: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    """The dates whose rasters lack some of their inputs."""

    @property
    def known(self) -> int:
        """Count the dates that have a value."""
        return sum(value is not None for value in self.values)

    def chart(self, units: str, at: str) -> Chart:
        """Draw the values over all dates; the one of the date `at` is marked."""
        marks = [
            Mark(
                name=date,
                moment=minute_of(date),
                value=value,
                text=f"{text} {unit_text(units)}".rstrip(),
                is_chosen=date == at,
                is_doubtful=date in self.lacking,
            )
            for date, value, text in zip(self.dates, self.values, self.texts, strict=True)
        ]
        return chart([Line(marks=marks)], unit_text(units))


def series_at(
    portal: Portal, row: RequestRow, layer: ResultLayer, lon: float, lat: float, most: int
) -> Series:
    """Read the values of a layer at a place in degrees, of its first `most` dates."""
    results = portal.state(Results)
    reader = results.index.reader(portal.runtime, row)
    dates = tuple(day for day in layer.dates if day)[:most] or layer.dates[:1]
    values: list[float | None] = []
    texts: list[str] = []
    for day in dates:
        read = results.pictures.pixel(reader, reader.current(layer.rasters[day]), lon, lat)
        value = float("nan") if read is None else float(read[0].values(0)[0, 0])
        if read is None or not math.isfinite(value):
            values.append(None)
            texts.append("")
        else:
            values.append(value)
            texts.append(number_text(value, read[0].data.dtype))
    lacking = tuple(day for day in dates if layer.rasters[day].file.completeness.count)
    return Series(dates=dates, values=tuple(values), texts=tuple(texts), lacking=lacking)


def number_text(value: float, stored: npt.DTypeLike) -> str:
    """Write a physical value with all digits that its stored type carries, and no more.

    A value stored as float32 has the fewest digits that give the same float32 again.
    """
    if np.dtype(stored) == np.float32:
        return str(np.float32(value)).removesuffix(".0")
    return f"{value:.15g}"
