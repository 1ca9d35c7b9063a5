"""`swathmill prices`: give the service prices, from a file of Azure's or by hand, or show them."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from swathmill.commands.shared.options import DataOption, JsonOption, data_folder, print_json
from swathmill.commands.stored.backup import open_storage
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError
from tasks.operators import prices as kept_prices
from tasks.operators.prices import PriceList, Prices
from tasks.operators.retail_prices import Choice, Item, chosen, read_page, with_own
from tasks.storage.clock import SystemClock

_WEB = ("https://", "http://")
_MOST_PAGES = 100


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(prices)


def prices(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="JSON files of the Azure Retail Prices API, its address with a filter, or amounts "
            "such as core-hour=0.05 storage=0.02. Default: show the prices there are.",
        ),
    ] = None,
    region: Annotated[str, typer.Option(help="Region, such as westeurope.")] = "",
    processor: Annotated[
        str, typer.Option(help="Meter of a core, or a size of virtual machines.")
    ] = Choice.processor,
    cores: Annotated[float, typer.Option(min=0.1, help="Cores of that size.")] = Choice.cores,
    memory: Annotated[
        float, typer.Option(min=0, help="GiB beside each core, where memory has its own meter.")
    ] = Choice.memory,
    blobs: Annotated[str, typer.Option(help="Product of the blobs.")] = Choice.blobs,
    kept: Annotated[str, typer.Option(help="Access tier and redundancy.")] = Choice.kept,
    moved: Annotated[
        str, typer.Option(help="Meter of a GB to or from storage, where that is charged.")
    ] = "",
    currency: Annotated[str, typer.Option(help="Of amounts given by hand.")] = "",
    forget: Annotated[bool, typer.Option("--forget", help="Have no prices any more.")] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Show the prices, or refresh them; without any, quantities are shown and no amounts.

    All processes read them from storage: nothing restarts.
    """
    given = [source for source in sources or () if _is_amount(source)]
    files = [source for source in sources or () if not _is_amount(source)]
    if forget and (given or files):
        raise ArgumentError("--forget goes with no SOURCE.", "Forget first, then give others.")
    own = _own(given)
    names = [source.partition("=")[0].replace("-", "_") for source in given]
    choice = Choice(
        region=region,
        processor=processor,
        cores=cores,
        memory=memory,
        blobs=blobs,
        kept=kept,
        moved=moved,
    )
    with open_storage(data_folder(data), alone=False) as runtime:
        known = PriceList() if forget else kept_prices.load(runtime.store)
        if files:
            known = chosen(_items(files), choice, ", ".join(files))
        if given:
            known = with_own(known, own, names, currency)
        if forget:
            kept_prices.forget(runtime.store, SystemClock())
        elif files or given:
            known = replace(known, taken=time.time())
            kept_prices.put(runtime.store, known)
    if as_json:
        print_json(known)
        return
    _show(PlainConsole(), known)


def _is_amount(source: str) -> bool:
    return "=" in source and not source.startswith(_WEB) and not Path(source).exists()


def _own(given: list[str]) -> Prices:
    try:
        return Prices.read(" ".join(given))
    except ValueError as error:
        raise ArgumentError(f"Prices: {error}.", "Write them such as core-hour=0.05.") from None


def _items(sources: list[str]) -> Iterator[Item]:
    """Yield the items of files, and of all pages of addresses."""
    files = [source for source in sources if not source.startswith(_WEB)]
    pages = [read_page(_text(file), file) for file in files]
    if pages and all(page.following for page in pages):  # the last one has no next page
        raise ArgumentError(
            f"{files[-1]} is a page that others follow: {pages[-1].following}.",
            "Save those as well, and name all files; or name the address.",
        )
    for page in pages:
        yield from page.items
    for source in (one for one in sources if one.startswith(_WEB)):
        address = source
        for _ in range(_MOST_PAGES):
            page = read_page(_fetched(address), source)
            yield from page.items
            if not page.following:
                break
            address = page.following
        else:
            raise ArgumentError(
                f"{source} has more than {_MOST_PAGES} pages.",
                "Add a filter, such as $filter=armRegionName eq 'westeurope'.",
            )


def _text(file: str) -> str:
    try:
        return Path(file).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{file}: {error}.", "Name a JSON file.") from None


def _fetched(address: str) -> str:
    if not address.startswith(_WEB):
        raise ArgumentError(f"The next page is at {address!r}.", "Save the pages as files.")
    try:
        with urllib.request.urlopen(address.replace(" ", "%20"), timeout=30) as answer:
            data: bytes = answer.read()
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise ArgumentError(
            f"{address} cannot be fetched: {error}.", "Save it as a file, and name that."
        ) from None
    return data.decode("utf-8-sig", "replace")


def _show(console: PlainConsole, known: PriceList) -> None:
    if not known:
        console.print(
            "There are no prices: processor hours, calls and bytes are shown, and no amounts.",
            markup=False,
        )
        return
    when = time.strftime("%Y-%m-%d", time.gmtime(known.taken))
    console.print(f"Prices in {known.currency}, from {known.source}, taken on {when}:")
    for name, value in vars(known.prices).items():
        unit = _UNITS[name]
        said = f"{value:g}" if value else "none: not in any amount"
        console.print(f"  {name.replace('_', '-'):10} {said:>12}  {unit}", markup=False)
    for line in known.meters:
        console.print(f"  {line}", markup=False)


_UNITS = {
    "core_hour": "an hour of one core",
    "storage": "a GB kept for a month",
    "reads": "10,000 calls that read",
    "writes": "10,000 calls that write",
    "moved": "a GB to or from storage",
    "download": "a GB fetched from an archive",
}
