"""Tables of measurements at sites: FLUXNET, AmeriFlux BASE, and plain CSV.

One text holds one table, or several: the line `# Site: ID` begins the table of that site, as in
AmeriFlux BASE. Other lines that begin with `#` are comments, of which `# UTC_OFFSET: 1` says the
time zone.

| columns | table | a row is of |
|---|---|---|
| `TIMESTAMP_START`, `TIMESTAMP_END` | FLUXNET (HH), AmeriFlux BASE | from one to the other |
| `TIMESTAMP` of 8 digits | FLUXNET (DD) | the day |
| a site, `time` or `date` | plain CSV, dates and times in ISO 8601 | the moment, or the day |

Times are the table's own: local standard time, unless the table or a time says otherwise. The
value -9999, nothing and `nan` stand for no value.
"""

import csv
import io
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from tasks.errors import RequestRefusedError, refusal_of

MOST_ROWS = 200_000
"""Rows of all tables of a request; a document of the API holds fewer, by its bytes."""
MISSING = -9999.0
UTC_OFFSET = "utc_offset"
"""The column of a table of sites that says the time zone of each."""
_LARGEST = 1e30
_DAY = timedelta(days=1)
_LONGEST = timedelta(days=1)
_COMMENT = re.compile(r"#\s*(site|utc_offset)\s*[:=]\s*(.+?)\s*$", re.IGNORECASE)
_SITE_OF_FILE = re.compile(r"(?:FLX|AMF|FLUXNET)_([A-Z]{2}-[A-Za-z0-9]{3})_")
_SITES = ("site", "site_id", "id", "name")
_TIMES = ("time", "datetime", "timestamp", "date")
_STAMPS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


class MeasurementsError(ValueError):
    """A table of measurements cannot be read."""


def refused_table(error: MeasurementsError) -> RequestRefusedError:
    """Return the refusal of a request whose table cannot be read."""
    otherwise = "give the columns site, time and values"
    return refusal_of("measurements.table", str(error), otherwise)


@dataclass(kw_only=True)
class Series:
    """What one column of a table has of one site, in the order of the table.

    `start` and `end` are in the table's time zone; both are equal where the table says moments.
    `offset` is that zone, in minutes ahead of UTC, where the table says it. `site` is empty
    where the table does not name it.
    """

    site: str
    column: str
    offset: int | None = None
    start: list[datetime] = field(default_factory=list)
    end: list[datetime] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    @property
    def step(self) -> timedelta | None:
        """The time one value stands for, or the usual distance of two; None if irregular."""
        lengths = Counter(end - one for one, end in zip(self.start, self.end, strict=True))
        if lengths and timedelta() not in lengths:
            return lengths.most_common(1)[0][0]
        moments = sorted({*self.start})
        between = Counter(later - one for one, later in pairwise(moments))
        ((usual, count),) = between.most_common(1) or ((None, 0),)
        return usual if count > 2 and 2 * count > between.total() else None


def utc_offset(text: str) -> int:
    """Read a time zone, "UTC", "+01:00", "-5" or "5.5", as minutes ahead of UTC.

    Raises MeasurementsError if it is none.
    """
    plain = text.strip().upper().removeprefix("UTC").removeprefix("GMT")
    if plain in ("", "Z"):
        return 0
    found = re.fullmatch(r"([+-]?)(\d{1,2})(?::?([0-5]\d)|(\.\d+))?", plain)
    if found:
        part = int(found[3] or 0) + round(60 * float(found[4] or 0))
        minutes = (-1 if found[1] == "-" else 1) * (60 * int(found[2]) + part)
        if -12 * 60 <= minutes <= 14 * 60:
            return minutes
    raise MeasurementsError(
        f"{text!r} is not a time zone; write UTC, or hours ahead of it: +01:00, behind it -05:00"
    )


def offset_text(minutes: int) -> str:
    """Write a time zone: +01:00."""
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def local_standard_time(longitude: float) -> int:
    """Return the time zone of a longitude, in minutes: the whole hours of the sun."""
    return 60 * math.floor(longitude / 15 + 0.5)


@lru_cache(8)
def read_measurements(text: str, columns: tuple[str, ...]) -> tuple[Series, ...]:
    """Read columns of tables: a series for each site and column, without what has no value.

    The series are shared by all callers.

    Raises MeasurementsError, which says what is wrong and what to do.
    """
    wanted = [*dict.fromkeys(columns)]
    found: list[Series] = []
    rows = 0
    for table in _tables(text):
        with _in_words():
            found += table.series(wanted)
        rows += table.rows
        if rows > MOST_ROWS:
            raise MeasurementsError(
                f"the tables have more than {MOST_ROWS:,} rows; give the days of the request alone"
            )
    if not found:
        raise MeasurementsError("there is no table; begin with the line site,time,value")
    return tuple(found)


def needed_text(
    files: Sequence[tuple[str, str]], columns: Sequence[str], first: date, last: date
) -> str:
    """Write what a request needs of tables, given by file name and text, as one text.

    Only rows from the day before the first to the day after the last are kept, and the columns
    that are compared. A site is named by its table, or by the name of its file as FLUXNET and
    AmeriFlux have it.

    Raises MeasurementsError as `read_measurements`.
    """
    out = io.StringIO()
    for name, text in files:
        by_file = _SITE_OF_FILE.search(name)
        try:
            tables = list(_tables(text))
            for table in tables:
                with _in_words():
                    if not table.site and by_file and not table.names_sites:
                        table.site = by_file[1]
                    table.write(out, columns, first - _DAY, last + _DAY)
        except MeasurementsError as error:
            raise MeasurementsError(f"{name}: {error}") from None
    return out.getvalue()


@contextmanager
def _in_words() -> Iterator[None]:
    """Turn what the standard library says of a table into a MeasurementsError."""
    try:
        yield
    except (csv.Error, OverflowError) as error:
        raise MeasurementsError(f"a table cannot be read: {error}") from None


@dataclass(kw_only=True)
class _Table:
    """One table of the text: its lines, and what its comments say."""

    site: str
    offset: int | None
    lines: list[str] = field(default_factory=list)
    rows: int = 0

    def series(self, wanted: Sequence[str]) -> list[Series]:
        """Read the wanted columns; a table must have one of them."""
        reader, head, lower = self._head()
        here = [name for name in wanted if name.lower() in lower]
        if not here:
            raise MeasurementsError(
                f"a table has none of the columns {', '.join(wanted)}; it has "
                f"{', '.join(head[:20])}"
            )
        places = [(name, lower.index(name.lower())) for name in here]
        of_site = self._site_column(lower)
        made: dict[tuple[str, str], Series] = {}
        for row in reader:
            if not row:
                continue
            self.rows += 1
            if len(row) != len(head):
                raise MeasurementsError(
                    f"a row has {len(row)} cells and the first has {len(head)}: "
                    f"{','.join(row)[:60]!r}"
                )
            site = row[of_site].strip() if of_site is not None else self.site
            start, end, offset = self._when(lower, row)
            for name, place in places:
                value = _number(row[place], name)
                one = made.setdefault((site, name), Series(site=site, column=name))
                one.offset = self.offset if offset is None else offset
                if value is not None:
                    one.start.append(start)
                    one.end.append(end)
                    one.values.append(value)
        return [*made.values()]

    @property
    def names_sites(self) -> bool:
        """True if a column names the site of each row."""
        return self._site_column(self._head()[2]) is not None

    def write(self, out: io.StringIO, columns: Sequence[str], first: date, last: date) -> None:
        """Write the needed rows and columns as a table."""
        writer = csv.writer(out, lineterminator="\n")
        reader, head, lower = self._head()
        asked = {name.lower() for name in columns}
        times = [n for n, name in enumerate(lower) if name in {*_TIMES, *_STAMP_COLUMNS}]
        of_site = self._site_column(lower)
        kept = [n for n, name in enumerate(lower) if name in asked or n in times or n == of_site]
        out.write(f"# Site: {self.site}\n" if self.site else "# Site:\n")
        if self.offset is not None:
            out.write(f"# UTC_OFFSET: {offset_text(self.offset)}\n")
        writer.writerow([head[n] for n in kept])
        for row in reader:
            if len(row) != len(head):
                continue
            if first <= self._when(lower, row)[0].date() <= last:
                writer.writerow([row[n] for n in kept])

    def _head(self) -> tuple[Iterator[list[str]], list[str], list[str]]:
        separator = max(",;\t", key=self.lines[0].count)
        reader = csv.reader(self.lines, delimiter=separator)
        head = [name.strip().lstrip("\ufeff") for name in next(reader)]
        lower = [name.lower() for name in head]
        if not {*lower} & {*_TIMES, *_STAMP_COLUMNS}:
            raise MeasurementsError(
                f"a table has no column of times; it needs TIMESTAMP_START and TIMESTAMP_END, "
                f"TIMESTAMP, or time; it has {', '.join(head[:20])}"
            )
        return reader, head, lower

    def _site_column(self, lower: Sequence[str]) -> int | None:
        return next((lower.index(name) for name in _SITES if name in lower), None)

    def _when(
        self, lower: Sequence[str], row: Sequence[str]
    ) -> tuple[datetime, datetime, int | None]:
        """Return the begin and end of a row, and the time zone if its time says one."""
        if "timestamp_start" in lower and "timestamp_end" in lower:
            start, end = (_stamp(row[lower.index(name)]) for name in _STAMP_COLUMNS)
            if not timedelta() < end - start <= _LONGEST:
                raise MeasurementsError(
                    f"a row goes from {start} to {end}; rows of half hours to days are read"
                )
            return start, end, None
        name = next((name for name in _TIMES if name in lower), "")
        if not name:
            raise MeasurementsError("a table has TIMESTAMP_START or TIMESTAMP_END alone; give both")
        text = row[lower.index(name)].strip()
        if re.fullmatch(r"\d{8}|\d{4}-\d\d-\d\d", text):
            day = _stamp(text.replace("-", ""))
            return day, day + _DAY, None
        if text.isdigit():
            moment = _stamp(text)
            return moment, moment, None
        try:
            said = datetime.fromisoformat(text)
        except ValueError:
            raise MeasurementsError(
                f"{text!r} is not a time; write 2012-04-13, 2012-04-13T10:30 or 201204131030"
            ) from None
        zone = said.utcoffset()
        if zone is None:
            return said, said, None
        minutes = round(zone / timedelta(minutes=1))
        if self.offset is None:
            self.offset = minutes  # one zone for all rows: that of the first
        moment = (said - zone + timedelta(minutes=self.offset)).replace(tzinfo=None)
        return moment, moment, self.offset


_STAMP_COLUMNS = ("timestamp_start", "timestamp_end")


def _tables(text: str) -> Iterator[_Table]:
    """Cut a text into its tables."""
    table = _Table(site="", offset=None)
    for line in text.lstrip("\ufeff").splitlines():
        plain = line.strip()
        if not plain:
            continue
        if not plain.startswith("#"):
            table.lines.append(line)
            continue
        if re.match(r"#\s*site\s*[:=]", plain, re.IGNORECASE) and table.lines:
            yield table
            table = _Table(site="", offset=None)
        said = _COMMENT.match(plain)
        if said and said[1].lower() == "site":
            table.site = said[2]
        elif said:
            table.offset = utc_offset(said[2])
    if table.lines:
        yield table


def _stamp(text: str) -> datetime:
    plain = text.strip()
    pattern = _STAMPS.get(len(plain))
    try:
        if pattern is None:
            raise ValueError
        return datetime.strptime(plain, pattern)
    except ValueError:
        raise MeasurementsError(
            f"{plain!r} is not a time stamp; tables of half hours to days have 8, 10 or 12 digits: "
            "201204131030"
        ) from None


def _number(text: str, column: str) -> float | None:
    plain = text.strip()
    if not plain:
        return None
    try:
        value = float(plain)
    except ValueError:
        raise MeasurementsError(f"{column} is {plain!r}, which is not a number") from None
    if math.isnan(value) or value == MISSING:
        return None
    if abs(value) > _LARGEST:
        raise MeasurementsError(f"{column} has the value {plain!r}, which nothing measures")
    return value


def by_site(series: Iterable[Series], only: str) -> dict[str, list[Series]]:
    """Group series by site; a table that names no site is of the `only` one.

    Raises MeasurementsError for a table without a site where there are several (`only` is empty).
    """
    found: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        if not one.site and not only:
            raise MeasurementsError(
                "a table does not say of which site it is; add a column site, or the line "
                "# Site: ID before it"
            )
        found[one.site or only].append(one)
    return found


def time_zone(
    series: Iterable[Series], said: str, columns: Iterable[tuple[str, str]], longitude: float
) -> tuple[int, str]:
    """Return the time zone of a site's measurements in minutes ahead of UTC, and what says it.

    What its tables say counts, then the request (`said`), then the column `utc_offset` of the table
    of sites, then the longitude.

    Raises MeasurementsError for a text that is no time zone, and for tables that disagree.
    """
    zones = {one.offset for one in series if one.offset is not None}
    if len(zones) > 1:
        texts = " and ".join(map(offset_text, sorted(zones)))
        raise MeasurementsError(
            f"tables of one site have the time zones {texts}; give each site's times in one zone"
        )
    if zones:
        return zones.pop(), "table"
    if said:
        return utc_offset(said), "request"
    column = next((text for name, text in columns if name.lower() == UTC_OFFSET), "")
    if column.strip():
        return utc_offset(column), "sites"
    return local_standard_time(longitude), "longitude"
