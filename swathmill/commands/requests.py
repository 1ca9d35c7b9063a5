"""Commands about requests that talk to a running portal: submit, status, results."""

import os
import sys
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column, Table

from portal.serving.quantities import size_text
from swathmill.access import client_for
from swathmill.answers import RequestStatus
from swathmill.client import Client
from swathmill.commands.shared.counts import lines_of
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    MeasurementsOption,
    RegionOption,
    TokenOption,
    about,
    data_folder,
    print_json,
)
from swathmill.commands.shared.paths import output_folder
from swathmill.console import PlainConsole
from swathmill.delivery import EXIT_CODES, EXIT_FAILED
from swathmill.errors import ArgumentError, RefusedError, StackError
from swathmill.following import Follower
from swathmill.missing_lines import failure_lines, gap_lines, incomplete_lines, shortened
from swathmill.progress import PHASES, ProgressView
from tasks.answers.requests import PreviewAnswer
from tasks.answers.results import ResultAnswer
from tasks.bag.model import RequestState
from tasks.packages.items import without_items
from tasks.request.request_file import load_request

_LINES = 40  # lines of one list in the terminal


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(submit)
    app.command()(status)
    app.command()(results)


def submit(
    request: Annotated[Path, typer.Argument(help="Request document, YAML or JSON.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count granules, tasks, bytes and gaps.")
    ] = False,
    region: RegionOption = None,
    measurements: MeasurementsOption = None,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Submit a request to a running stack, and print its id."""
    document = load_request(request, region, measurements or ())
    client = client_for(data_folder(data), token)
    if dry_run:
        counts = client.preview(document)
        if as_json:
            print_json(counts)
            return
        for line in lines_of(PreviewAnswer.model_validate(counts)):
            PlainConsole().print(line, markup=False)
        return
    made = client.submit(document)
    if as_json:
        print_json(client.as_json(made.id))
    else:
        PlainConsole().print(made.id, markup=False)


def status(
    request_id: Annotated[str | None, typer.Argument(help="Request; default: all yours.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its progress until it has ended.")
    ] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Show the state of requests. With --follow it exits as `run`: 0, with gaps 3, failed 1."""
    if follow and request_id is None:
        raise typer.BadParameter("name the request to follow", param_hint="--follow")
    client = client_for(data_folder(data), token)
    if request_id is None:
        _list(client, as_json=as_json)
        return
    with about(request_id):
        found = client.status(request_id)
        if follow:
            found = _followed(client, request_id, quiet=as_json)
        if as_json:
            print_json(client.as_json(request_id))
        else:
            console = PlainConsole()
            _show(console, found)
            for line in _lacking(client, found):
                console.print(line, markup=False)
            if found.phases:
                with suppress(RefusedError):  # an earlier portal does not know
                    console.print(f"spent: {client.spending(request_id).text}", markup=False)
    if follow:
        raise typer.Exit(EXIT_CODES.get(found.state, EXIT_FAILED))


def results(
    request_id: Annotated[str, typer.Argument(help="Request.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to download into; by default only list.")
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            help="Have the portal copy them to your own storage: SAS URL of an Azure container, or "
            "s3://BUCKET/FOLDER with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION in "
            "the environment. `-` reads it from standard input.",
            show_default=False,
        ),
    ] = "",
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """List, download or copy the finished files of a request; lost files are named at the end."""
    client = client_for(data_folder(data), token)
    if to and out is not None:
        raise ArgumentError("--out and --to are given.", "Download, or have them copied.")
    if to:
        _copy(client, request_id, to, as_json=as_json)
        return
    folder = None if out is None else output_folder(out, "--out")
    with about(request_id):
        found = client.results(request_id)
    console = PlainConsole()
    if folder is None:
        if as_json:
            print_json(found)
            return
        for result in found:
            console.print(f"{result.size:>12,}  {result.sha256[:12]}  {result.name}", markup=False)
        _sum(console, found, "")
        return
    there, lost = _download(client, found, folder, console, quiet=as_json)
    if as_json:
        print_json([{**one.model_dump(), "path": str(path)} for one, path in there])
    else:
        _sum(console, [one for one, _ in there], f" in {out}")
    if lost:
        raise StackError(lost[0].problem, lost[0].remedy)  # nothing was refused


def _copy(client: Client, request_id: str, to: str, *, as_json: bool) -> None:
    """Have results copied by the portal, with a line for each of its answers."""
    address = sys.stdin.readline().strip() if to == "-" else to
    console = PlainConsole(stderr=True, quiet=as_json)

    def tell(copied: int, left: int) -> None:
        console.print(f"{copied:,} copied, {left:,} left.", markup=False)

    keys = {
        argument: os.environ.get(name, "")
        for argument, name in (
            ("access_key", "AWS_ACCESS_KEY_ID"),
            ("secret_key", "AWS_SECRET_ACCESS_KEY"),
            ("session_token", "AWS_SESSION_TOKEN"),
            ("region", "AWS_REGION"),
            ("endpoint", "AWS_ENDPOINT_URL"),
        )
    }
    given = keys if address.startswith("s3:") else {}
    with about(request_id):
        copied = client.copy_results(request_id, address, progress=tell, **given)
    if as_json:
        print_json({"copied": copied})


def _list(client: Client, *, as_json: bool) -> None:
    if as_json:
        print_json(client.as_json())
        return
    found = client.requests()
    if not found:
        PlainConsole().print("You have no requests. With --token, its owner's are listed.")
        return
    widest = max(len(row.id) for row in found)  # an id is there to be copied: whole
    table = Table(Column("request", min_width=widest), "state", "submitted", "title", box=None)
    for row in found:
        submitted = f"{row.submitted:%Y-%m-%d %H:%M}" if row.submitted else ""
        table.add_row(row.id, row.state_text, submitted, row.title)
    PlainConsole().print(table)


def _followed(client: Client, request_id: str, *, quiet: bool) -> RequestStatus:
    """Wait until a request has ended and return its state; show progress on standard error."""
    console = PlainConsole(stderr=True, quiet=quiet)
    with ProgressView(console) as view:
        follower = Follower(client=client, tick=lambda: time.sleep(0), view=view)
        return follower.until_ended(request_id)


def _download(
    client: Client,
    found: list[ResultAnswer],
    folder: Path,
    console: PlainConsole,
    *,
    quiet: bool,
) -> tuple[list[tuple[ResultAnswer, Path]], list[RefusedError]]:
    """Download results, with a bar on a terminal, else with a line for each.

    Results that storage has lost are left out and returned as errors.
    """
    there: list[tuple[ResultAnswer, Path]] = []
    lost: list[RefusedError] = []
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=36),
        DownloadColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
    ) as bars:
        bar = bars.add_task("Results", total=sum(one.size for one in found))
        for number, result in enumerate(found, 1):
            bars.update(bar, description=f"Results, {number} of {len(found)}")
            try:
                path = client.download(
                    result, folder, progress=lambda size: bars.advance(bar, size)
                )
            except RefusedError as error:
                if error.status != HTTPStatus.GONE:
                    raise
                console.print(f"lost: {result.name}", markup=False)
                lost.append(error)
                continue
            there.append((result, path))
            if not quiet and not console.is_terminal:
                console.print(str(path), markup=False)
    return there, lost


def _sum(console: PlainConsole, found: list[ResultAnswer], where: str) -> None:
    size = size_text(sum(one.size for one in found))
    results = len(without_items([one.name for one in found]))
    said = "1 result" if results == 1 else f"{results:,} results"
    if items := len(found) - results:
        said += f" with {items:,} STAC item{'s' if items != 1 else ''}"
    console.print(f"{said}, {size}{where}", markup=False)


def _show(console: PlainConsole, row: RequestStatus) -> None:
    console.print(str(row), markup=False)
    at = row.preparation
    if at is not None and console.is_terminal:
        console.print(ProgressBar(total=at.total, completed=at.done, width=36))
    if row.state is RequestState.CANCELLING:
        left = sum(count.left for count in row.phases.values())
        console.print(f"being cancelled: {left:,} tasks left to withdraw", markup=False)
    table = Table("phase", "tasks", "done", "running", "failed", "reused", "cancelled", box=None)
    for phase in PHASES:
        count = row.phases.get(phase)
        if count is not None and count.total:
            numbers = (
                count.total,
                count.done,
                count.running,
                count.failed,
                count.reused,
                count.cancelled,
            )
            table.add_row(phase, *map(str, numbers))
    console.print(table)
    if row.message:
        console.print(row.message, markup=False)


def _lacking(client: Client, row: RequestStatus) -> list[str]:
    """List what a request lacks: gaps, results made without some inputs, failures."""
    where = f"{client.url}/api/requests/{row.id}"
    gaps = client.gaps(row.id) if row.gap_count else []
    failed = row.failures or any(count.failed for count in row.phases.values())
    results = client.results(row.id) if gaps or failed else []
    failures = client.failures(row.id) if row.failures else []
    return [
        *shortened(gap_lines(gaps), _LINES, f"{where}/gaps"),
        *shortened(incomplete_lines(results), _LINES, f"{where}/results"),
        *shortened(failure_lines(failures), _LINES, f"{where}/failures"),
    ]
