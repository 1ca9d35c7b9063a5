"""A submitted request as a Python program holds it: watch it, fetch its results, open them."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from reprojection.files import AnyPath
from swathmill.answers import RequestStatus, SupportsGeo
from swathmill.errors import ArgumentError, JobFailedError
from swathmill.listing import worth_listing
from tasks.answers.polygons import PolygonsAnswer
from tasks.answers.results import ResultAnswer
from tasks.bag.model import RequestState
from tasks.request import windows

if TYPE_CHECKING:
    import xarray

    from swathmill.answers import RequestStatus, SupportsGeo
    from swathmill.client import Client
    from tasks.answers.polygons import PolygonsAnswer
    from tasks.answers.results import ResultAnswer

_DATE = re.compile(r"\d{4}(-\d{2}){0,2}(T\d{4})?")
_WINDOW = re.compile(windows.NAME)
_ALL_YEARS = "0000"
_MADE = (RequestState.COMPLETE, RequestState.GAPS)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request that was submitted, and where it stood when this was made.

    Every call may raise RefusedError and ApiError, as those of `Client`.

    Attributes:
        client: The portal's client.
        status: Where the request stood.
    """

    client: Client
    status: RequestStatus

    def __repr__(self) -> str:
        """Say in one line which request it is, and where it stood."""
        return f"Job({self.id}: {self.status})"

    @property
    def id(self) -> str:
        """The request's id."""
        return self.status.id

    @property
    def state(self) -> RequestState:
        """The state in which the request was."""
        return self.status.state

    def watch(self, progress: Callable[[RequestStatus], None] = lambda _: None) -> Job:
        """Wait until the request has ended; return the job as it is then.

        A portal that is being restarted is waited for, for two minutes.

        Args:
            progress: Called with each change; by default nothing is.

        Raises:
            JobFailedError: the request failed, was refused or cancelled, or waits for somebody to
                confirm it.
        """
        status = self.status
        for status in self.client.follow(self.id):
            progress(status)
            self.check_confirmed(status)
        return self.ended_as(status)

    def check_confirmed(self, status: RequestStatus) -> None:
        """Raise JobFailedError if the request waits for somebody to confirm it.

        Args:
            status: Where it stands.
        """
        if status.state is RequestState.HELD:
            raise JobFailedError(
                f"Request {self.id} waits for confirmation. {status.message}".rstrip(),
                f'Confirm it with client.order("{self.id}", "confirm"), then watch it again.',
            )

    def ended_as(self, status: RequestStatus) -> Job:
        """Return the job as it ended.

        Args:
            status: Where it stands.

        Raises:
            JobFailedError: it has not been made, with or without gaps.
        """
        if status.state not in _MADE:
            raise JobFailedError(
                f"Request {self.id} is {status.state.value}. {status.message}".rstrip(),
                f'client.failures("{self.id}") says what failed, and why.',
            )
        return Job(client=self.client, status=status)

    def results(self) -> list[ResultAnswer]:
        """List the files that are finished."""
        return self.client.results(self.id)

    def results_as_made(self) -> Iterator[ResultAnswer]:
        """Yield each file once it is finished, until the request has ended.

        What is finished already comes first. A portal that is being restarted is waited for, for
        two minutes. Of many files, those of up to a twentieth come together.

        Raises:
            JobFailedError: as `watch`, after the files that were finished.
        """
        told: set[tuple[str, str]] = set()
        listed, status = 0, self.status
        for status in self.client.follow(self.id):
            if status.state.ended or worth_listing(status.delivered, listed):
                listed = status.delivered
                for one in self.results():
                    if (one.name, one.sha256) not in told:
                        told.add((one.name, one.sha256))
                        yield one
            self.check_confirmed(status)
        self.ended_as(status)

    def polygons(
        self,
        polygons: Mapping[str, object] | SupportsGeo | AnyPath,
        *,
        layers: Sequence[str] = (),
        since: str = "",
        until: str = "",
    ) -> PolygonsAnswer:
        """Compute mean, spread, valid share and count within polygons, as `Client.polygons` does.

        Args:
            polygons: A file, GeoJSON, or what has `__geo_interface__`.
            layers: Names of layers, such as Lai_1km; all by default.
            since: Only dates from this one on.
            until: Only dates up to this one.
        """
        return self.client.polygons(self.id, polygons, layers=layers, since=since, until=until)

    def download(
        self,
        folder: AnyPath,
        *,
        layers: str | Sequence[str] = (),
        since: str = "",
        until: str = "",
    ) -> list[Path]:
        """Download finished files into a folder, each checked by its SHA-256; return their paths.

        A file that is there already is not fetched again.

        Args:
            folder: Where the files' own folders are made.
            layers: Only this layer or these, by the names of their folders; by default all files.
            since: Only files of this date or a later one, such as "2012-04-01"; "" means any.
                Windows count by their first day, those of all years always.
            until: Only files of this date or an earlier one; "" means any.

        Raises:
            ArgumentError: `since` or `until` is no date.
            OSError: a file cannot be written.
        """
        for name, day in (("since", since), ("until", until)):
            if day and not _DATE.fullmatch(day):
                raise ArgumentError(f"{name} {day!r} is no date.", "Write it like 2012-04-01.")
        wanted = {layers} if isinstance(layers, str) else {*layers}
        chosen = [
            one
            for one in self.results()
            if (not layers or PurePosixPath(one.name).parent.name in wanted)
            and _lies(_date(one.name), since, until)
        ]
        return [self.client.download(one, folder) for one in chosen]

    def to_xarray(
        self,
        layers: str | Sequence[str] = (),
        *,
        since: str = "",
        until: str = "",
        folder: AnyPath | None = None,
    ) -> xarray.Dataset:
        """Open the rasters as one dataset over time: a variable for each layer, NaN for no data.

        Variables have dimensions time, y and x, values in physical units, and the attributes of the
        cubes that a request delivers (CF-1.11); `crs` holds the grid mapping. The package xarray is
        needed: install swathmill[cube].

        Args:
            layers: Only this layer or these; by default all.
            since: Only dates from this one on, such as "2012-04-01"; "" means any.
            until: Only dates up to this one; "" means any.
            folder: Where the files are kept, so that values are read when they are used; None, the
                default, reads all values into memory and keeps no file.

        Raises:
            ArgumentError: no finished raster is among what was asked for, xarray is missing, or
                `since` or `until` is no date.
            ChoiceRefusedError: the rasters of a layer do not fit in one cube.
        """
        try:
            import xarray
        except ImportError as error:
            raise ArgumentError(
                "to_xarray needs the package xarray.", "Install swathmill[cube]."
            ) from error
        if folder is not None:
            cubes = self._cubes(layers, since, until, folder)
            return _merged({name: xarray.open_dataset(path) for name, path in cubes.items()})
        parts = {}
        with tempfile.TemporaryDirectory() as made:
            for name, path in self._cubes(layers, since, until, Path(made)).items():
                with xarray.open_dataset(path) as opened:
                    parts[name] = opened.load()
        return _merged(parts)

    def _cubes(
        self, layers: str | Sequence[str], since: str, until: str, folder: AnyPath
    ) -> dict[str, Path]:
        """Write the rasters of each layer into a NetCDF file; return the files by name."""
        # Reading rasters loads GDAL, which other calls do not need.
        from reprojection.write.cube import write_cube

        groups: dict[Path, list[Path]] = {}
        for path in self.download(folder, layers=layers, since=since, until=until):
            if path.suffix == ".tif":
                groups.setdefault(path.parent, []).append(path)
        if not groups:
            raise ArgumentError(
                f"Request {self.id} has no finished raster of what was asked for.",
                "job.results() lists what is finished.",
            )
        names = Counter(group.name for group in groups)
        cubes = {}
        for group, members in groups.items():
            alone = names[group.name] == 1
            name = group.name if alone else f"{group.parent.name}.{group.name}"
            cubes[name] = group / f"{group.name}.nc"
            write_cube(members, cubes[name], times=_times(members))
        return cubes


_BOUNDS = ("time_bnds", "climatology_bounds")
# Variables of a cube that are no layers.
_BESIDE = ("crs", *_BOUNDS, "inputs_time", "granules", "provenance")


def _merged(parts: Mapping[str, xarray.Dataset]) -> xarray.Dataset:
    """Put cubes side by side; of layers with the same name, each is named after its product."""
    import xarray

    count = Counter(str(name) for part in parts.values() for name in part.data_vars)
    count["crs"] = 1  # the same in all: they are on one grid
    renamed = []
    for name, part in parts.items():
        if len(parts) > 1:  # each layer has its own, under another name
            for about in (part["time"].attrs, part["time"].encoding):
                about.pop("bounds", None)
                about.pop("climatology", None)
        twice = [str(one) for one in part.data_vars if count[str(one)] > 1]
        names = {one: name if name.endswith(one) else f"{name}.{one}" for one in twice}
        beside = [names.get(one, one) for one in _BESIDE if one in part]
        renamed.append(part.rename(names).set_coords(beside))
    return xarray.merge(renamed, join="outer", compat="override", combine_attrs="drop_conflicts")


def _date(name: str) -> str:
    """Return the date in a file's name, such as 2012-04-14, 2012-04-14T1035 or 2012-04, or "".

    Of another window it is where that begins; of one of all years the year is 0000.
    """
    last = PurePosixPath(name).stem.rpartition(".")[2]
    if _WINDOW.fullmatch(last):
        return windows.begin(last)
    return last if _DATE.fullmatch(last) else ""


def _lies(date: str, since: str, until: str) -> bool:
    """Tell whether a date is one of those asked for; what is of all years always is."""
    if date.startswith(_ALL_YEARS):
        return True
    return (not since or date >= since) and (not until or date[: len(until)] <= until)


def _times(paths: Iterable[Path]) -> list[datetime] | None:
    """Return the times that the names of files have, or None if one has none, or is of all years.

    The layers of a day are of one date then, even if their granules started at different times.
    """
    dates = [_date(path.name) for path in paths]
    if not all(dates) or any(date.startswith(_ALL_YEARS) for date in dates):
        return None
    starts = [date if "T" in date else f"{date}-01-01"[:10] for date in dates]
    return [datetime.fromisoformat(start).replace(tzinfo=UTC) for start in starts]
