"""`swathmill find`: list what the sources in the settings have for a product, without a stack."""

import re
import tempfile
from collections.abc import Iterator
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from archives.errors import ArchiveError
from archives.formats.boundary import touches
from archives.model import GranuleRecord, Holding
from archives.sources import Sources
from modis.box import LonLatBox
from modis.granule_name import near_editions, standard_product
from reprojection.isolation import ReadingProcess
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    archive_place,
    data_folder,
    granules_text,
    last_archive,
    no_source,
    print_json,
)
from swathmill.commands.shared.paths import output_folder
from swathmill.commands.shared.target import refused
from swathmill.console import PlainConsole
from tasks.service.sources import open_sources
from tasks.settings import Settings
from tasks.storage.blobs import file_digest

EXIT_NOTHING = 3
_DAYS = re.compile(r"(\d{4}-\d\d-\d\d)(?:(?:\.\.|/)(\d{4}-\d\d-\d\d))?$")
_COLLECTION = re.compile(r"[0-9][0-9A-Za-z.]*")
_MB = 10**6


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(find)


def find(
    product: Annotated[str, typer.Argument(help="Short name, such as MOD13A2.")],
    days: Annotated[str, typer.Option(help="A day, or first..last: 2018-01-01..2018-01-16.")],
    collection: Annotated[
        str, typer.Option(help="Collection; by default the newest that is served.")
    ] = "",
    box: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(help="West, south, east, north in degrees."),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            help="Folder or URL of granules; default: the sources of the settings, else the last "
            "archive that a stack used.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of granules to list.")] = 100,
    fetch: Annotated[
        Path | None, typer.Option(help="Folder to fetch the listed granules into.")
    ] = None,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """List the granules that the sources have, or fetch them, too. Exits 3 if there are none."""
    console = PlainConsole(quiet=as_json)
    first, last = span_of(days)
    area = _area(box)
    collection = _plain(collection)
    folder_to = None if fetch is None else output_folder(fetch, "--fetch")
    settings = _with_source(archive_place(archive), data)
    with tempfile.TemporaryDirectory(prefix="swathmill-find-") as folder:
        reader = ReadingProcess()
        # The positions of a folder's swaths are only known from the files themselves.
        outlines = reader.read_outlines if box else None
        sources = open_sources(settings, Path(folder) / "index.sqlite", outlines)
        held = sources.holdings(product)
        chosen = collection or max((h.collection for h in held), key=lambda c: c.age, default="")
        found = list(islice(_there(sources, (product, chosen, first, last), area), limit))
        for record in found:
            console.print(_line(record), markup=False)
        reader.close()
        size = sum(record.size for record in found)
        told = f"{'' if all(record.size for record in found) else 'at least '}{size / _MB:.1f}"
        console.print(
            f"{granules_text(len(found))} of {f'{product} {chosen}'.strip()}, {told} MB",
            markup=False,
        )
        if near := _of_the_other_kind(sources, product):
            console.print(near, markup=False)
        if len(found) == limit:
            console.print(f"There may be more: this is what --limit {limit} allows.")
        if as_json:
            print_json(found)
        if not found:
            console.print(_served(product, held), markup=False)
            for said in [] if held else sources.overlooked(product):
                console.print(said, markup=False)
            raise typer.Exit(EXIT_NOTHING)
        if folder_to is not None:
            _fetch(sources, found, folder_to, console)


def _with_source(place: str, data: Path | None) -> Settings:
    """Return the settings with the archive named, or without any source with the last one used."""
    settings = Settings(archive=place) if place else Settings()
    if place or settings.sources:
        return settings
    last = last_archive(data_folder(data))
    if not last:
        raise no_source("there is nothing to look in")
    PlainConsole(stderr=True).print(f"Sources  {last} (that of the last stack)", markup=False)
    return Settings(archive=last)


def _plain(collection: str) -> str:
    """Return a collection's number; raise RefusedError for what is none."""
    if collection and not _COLLECTION.fullmatch(collection):
        raise refused(
            "collection",
            f"{collection!r} is not the number of a collection.",
            "Write its number, like 6.1 or 061, without quotes of a word processor.",
        )
    return collection


def _area(box: tuple[float, float, float, float] | None) -> LonLatBox | None:
    if box is None:
        return None
    _, south, _, north = box
    if not -90 <= south < north <= 90:
        raise refused(
            "box",
            f"from {south:g} to {north:g} is no span of latitudes.",
            "Write west, south, east, north in degrees; west may be greater than east.",
        )
    return LonLatBox(*box)


def span_of(text: str) -> tuple[date, date]:
    """Parse the first and last day; raise RefusedError if the text names none."""
    match = _DAYS.match(text.strip())
    try:
        if match is None:
            raise ValueError(text)
        first = date.fromisoformat(match[1])
        last = date.fromisoformat(match[2]) if match[2] else first
    except ValueError:
        raise refused(
            "days", f"{text!r} names no days.", "Write 2018-01-01 or 2018-01-01..2018-01-16."
        ) from None
    if last < first:
        raise refused("days", f"{text} ends before it begins.", "Name the first day first.")
    return first, last


def _there(
    sources: Sources, wanted: tuple[str, str, date, date], box: LonLatBox | None
) -> Iterator[GranuleRecord]:
    for record in sources.search(*wanted, box):
        if box is None or touches(record, box):
            yield record


def _line(record: GranuleRecord) -> str:
    size = f"{record.size / _MB:8.1f} MB" if record.size else "       ? MB"
    return f"{record.name:52} {size}  {record.day_night or '-':5}  {record.source}"


def _served(product: str, held: list[Holding]) -> str:
    if not held:
        return f"No source is known to serve {product}. Correct its name, or name another archive."
    spans = (f"{h.collection.padded} ({h.first or '?'} to {h.last or 'today'})" for h in held)
    return f"Sources serve {product} in collection {', '.join(spans)}."


def _of_the_other_kind(sources: Sources, product: str) -> str:
    """Say that the sources have a product's near-real-time granules, or its standard ones, too."""
    standard = standard_product(product)
    is_near = standard != product
    other = standard if is_near else near_editions(product, "")[0]
    if other == product:  # the two are collections of one product
        return ""
    try:
        held = sources.holdings(other)
    except ArchiveError:
        return ""
    if not held:
        return ""
    kind = "the standard product" if is_near else "near real time"
    return f"The sources also have {other} ({kind}), a product of its own: find {other}."


def _fetch(
    sources: Sources, found: list[GranuleRecord], folder: Path, console: PlainConsole
) -> None:
    """Fetch each granule; raise the first error when all have been tried."""
    failures: list[ArchiveError] = []
    for record in found:
        to = folder / Path(record.name).name
        if to.exists():
            console.print(f"{to} is there already", markup=False)
            continue
        try:
            fetched = sources.fetch(record, to)
        except ArchiveError as error:
            failures.append(error)
            continue
        sha256 = file_digest(fetched.path).sha256
        console.print(f"{to}  {fetched.size} bytes, SHA-256 {sha256[:16]}", markup=False)
    if len(failures) == 1 == len(found):
        raise failures[0]
    if failures:
        raise type(failures[0])(
            f"{len(failures)} of {granules_text(len(found))} could not be fetched, the first: "
            f"{failures[0]}"
        )
