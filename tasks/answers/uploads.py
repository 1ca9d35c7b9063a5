"""Answers about uploads. What a version holds is typed by who reads it: a client takes any."""

import datetime as dt
from enum import StrEnum
from typing import Generic, Literal, TypeVar

from pydantic import Field

from tasks.answers.answer import Answer

Source = Literal["uploaded", "shipped", "folder"]
Manifest = TypeVar("Manifest")
Layer = TypeVar("Layer")
Version = TypeVar("Version")


class Visibility(StrEnum):
    """Who sees an upload, and may use it, besides its owner."""

    PRIVATE = "private"
    LINK = "link"  # whoever has opened its link, signed in
    EVERYONE = "everyone"


class PackageVersionFields(Answer, Generic[Manifest]):
    """A version of a package: its manifest, and the digest, bytes and files of its archive."""

    version: str
    digest: str
    size: int
    files: int
    pushed: dt.datetime | None
    deprecated: str = Field("", description="Why; empty if it is not.")
    dependencies: tuple[str, ...] = Field(
        (), description="The Python packages that were resolved for it, NAME==VERSION."
    )
    manifest: Manifest
    archive_url: str


class PackageFields(Answer, Generic[Version]):
    """A package. `reference` is what a request names; `link` is told to its owner alone."""

    id: str
    reference: str
    owner: str
    name: str
    description: str
    source: Source
    visibility: Visibility
    newest: str = Field(description="The version that its name alone means.")
    link: str = ""
    versions: tuple[Version, ...] = ()
    url: str


class RasterVersionFields(Answer, Generic[Layer]):
    """A version of a raster: what it holds, and the digest and bytes of its file."""

    version: str
    digest: str
    size: int
    pushed: dt.datetime
    came_from: str = Field(description="The names of its files, or its address.")
    layers: tuple[Layer, ...]
    dates: tuple[dt.date, ...] = Field(description="Empty: it is of no date.")
    period: int = Field(description="The days for which each date stands.")
    crs: str
    transform: tuple[float, float, float, float, float, float]
    width: int
    height: int
    bbox: tuple[float, float, float, float]


class RasterFields(Answer, Generic[Version]):
    """A raster. `reference` is what a request names; `link` is told to its owner alone."""

    id: str
    reference: str
    owner: str
    name: str
    visibility: Visibility
    newest: str = Field(description="The version that its name alone means.")
    layers: str = Field(description="The layers of the newest version, separated by commas.")
    link: str = ""
    versions: tuple[Version, ...] = ()
    url: str
