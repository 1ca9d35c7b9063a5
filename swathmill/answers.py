"""What the portal answers, as the client and the commands read it."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

from pydantic import Field, JsonValue

from tasks.answers.answer import Answer
from tasks.answers.requests import RequestAnswer
from tasks.answers.uploads import (
    PackageFields,
    PackageVersionFields,
    RasterFields,
    RasterVersionFields,
)
from tasks.bag.model import Phase, RequestState


class SupportsGeo(Protocol):
    """A geometry or a table of them, of shapely, geopandas and others."""

    @property
    def __geo_interface__(self) -> Mapping[str, object]:
        """GeoJSON as a mapping."""


class RequestStatus(RequestAnswer):
    """The state of one request, with its first gaps and failures."""

    state: RequestState
    etag: str = Field("", exclude=True)

    @property
    def state_text(self) -> str:
        """The state as people read it: "running", or "running (paused)"."""
        return self.state.text(paused=self.paused)

    def __str__(self) -> str:
        """One line: the state, how far planning or writing is, tasks done by phase, results."""
        parts = [] if self.preparation is None else [self.preparation.text]
        for phase in Phase:
            count = self.phases.get(phase)
            if count is not None and count.total:
                notes = [f"{count.failed} failed"] if count.failed else []
                notes += [f"{count.cancelled} cancelled"] if count.cancelled else []
                noted = f" ({', '.join(notes)})" if notes else ""
                parts.append(f"{phase} {count.done}/{count.total}{noted}")
        if self.outputs:
            parts.append(f"results {self.delivered}/{self.outputs}")
        return " | ".join([self.state_text, *parts])


class PackageVersion(PackageVersionFields[Mapping[str, JsonValue]]):
    """A version of a package."""


class SharedPackage(PackageFields[PackageVersion]):
    """A package that one may run. `reference` is what a request names."""

    place: ClassVar = "packages"


class RasterVersion(RasterVersionFields[Mapping[str, JsonValue]]):
    """A version of a raster; `dates` is empty where it is of no date."""


class SharedRaster(RasterFields[RasterVersion]):
    """A raster that one may name. `reference` is what a request names."""

    place: ClassVar = "rasters"


class Problem(Answer):
    """An error from the portal (RFC 9457), with the field and what to do."""

    title: str = ""
    detail: str = ""
    field: str = ""
    remedy: str = ""
    also: tuple["Problem", ...] = ()


Upload = SharedPackage | SharedRaster
