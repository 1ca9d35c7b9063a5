"""Commands about requests, spoken to a running portal: submit, status, results, cancel, retry."""

from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from swathmill.access import client_for
from swathmill.client import RequestStatus
from swathmill.commands.options import DataOption, TokenOption, data_folder
from swathmill.errors import RefusedError
from swathmill.progress import PHASES, describe
from tasks.request.request import load_request


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(submit)
    app.command()(status)
    app.command()(results)
    app.command()(cancel)
    app.command()(confirm)
    app.command()(retry)


def submit(
    request: Annotated[Path, typer.Argument(help="Request document, YAML or JSON.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count granules, tasks, bytes and gaps.")
    ] = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Hand a request to a running stack; prints its id."""
    document = load_request(request)
    client = client_for(data_folder(data), token)
    console = _console()
    if not dry_run:
        console.print(client.submit(document).id, markup=False)
        return
    for name, value in client.preview(document).items():
        console.print(f"{name:12} {value}", markup=False)


def status(
    request_id: Annotated[str | None, typer.Argument(help="Request; none: all yours.")] = None,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Where requests stand."""
    client = client_for(data_folder(data), token)
    console = _console()
    if request_id is None:
        table = Table("request", "state", "submitted", "title", box=None)
        for row in client.requests():
            submitted = f"{row.submitted:%Y-%m-%d %H:%M}" if row.submitted else ""
            table.add_row(row.id, row.state, submitted, row.title)
        console.print(table)
        return
    _show(console, client.status(request_id))


def results(
    request_id: Annotated[str, typer.Argument(help="Request.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to download into; none: only list.")
    ] = None,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """List or download the finished files of a request; what storage has lost is told last."""
    client = client_for(data_folder(data), token)
    console = _console()
    lost: list[RefusedError] = []
    for result in client.results(request_id):
        if out is None:
            console.print(f"{result.size:>12,}  {result.sha256[:12]}  {result.name}", markup=False)
            continue
        try:
            console.print(str(client.download(result, out)), markup=False)
        except RefusedError as error:
            if error.status != HTTPStatus.GONE:
                raise
            console.print(f"lost: {result.name}", markup=False)
            lost.append(error)
    if lost:
        raise lost[0]


def cancel(
    request_id: Annotated[str, typer.Argument(help="Request.")],
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Stop a request; what other requests want of it goes on."""
    client_for(data_folder(data), token).cancel(request_id)
    _console().print(f"{request_id} is being cancelled.", markup=False)


def confirm(
    request_id: Annotated[str, typer.Argument(help="Request that waits for confirmation.")],
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Let a request go on that takes so much that it waits for confirmation."""
    client_for(data_folder(data), token).order(request_id, "confirm")
    _console().print(f"{request_id} is confirmed.", markup=False)


def retry(
    request_id: Annotated[str, typer.Argument(help="Request.")],
    category: Annotated[
        str, typer.Option(help="Only what failed of this category, such as 'server busy'.")
    ] = "",
    task: Annotated[str, typer.Option(help="Only this task, by its key.")] = "",
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Try again what failed; an ended request is tried again by another, whose id is printed."""
    client = client_for(data_folder(data), token)
    found = client.retry(request_id, category=category, task=task)
    if found.id == request_id:
        _console().print(f"{request_id} tries again.", markup=False)
    else:
        _console().print(f"{request_id} has ended; {found.id} tries it again.", markup=False)


def _show(console: Console, row: RequestStatus) -> None:
    console.print(describe(row), markup=False)
    table = Table("phase", "tasks", "done", "running", "failed", "reused", box=None)
    for phase in PHASES:
        count = row.phases.get(phase)
        if count is not None and count.total:
            numbers = (count.total, count.done, count.running, count.failed, count.reused)
            table.add_row(phase, *map(str, numbers))
    console.print(table)
    if row.message:
        console.print(row.message, markup=False)
    for gap in row.gaps:
        console.print(f"gap: {gap.what}: {gap.why}", markup=False)
    for failure in row.failures:
        console.print(f"failed: {failure.output or failure.name}: {failure.category}", markup=False)


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)
