"""Commands that give orders about a request: pause, resume, cancel, confirm, retry, change."""

from pathlib import Path
from typing import Annotated

import typer

from swathmill.access import client_for
from swathmill.answers import RequestStatus
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    TokenOption,
    about,
    data_folder,
    print_json,
)
from swathmill.console import PlainConsole
from swathmill.errors import RefusedError
from tasks.bag.model import RequestState

IdArgument = Annotated[str, typer.Argument(metavar="REQUEST", help="Request.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(pause)
    app.command()(resume)
    app.command()(cancel)
    app.command()(confirm)
    app.command()(retry)
    app.command()(change)


def pause(
    request_id: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Start no new tasks of a request; running tasks will finish."""
    _order(request_id, "pause", "is being paused", as_json, data, token)


def resume(
    request_id: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Resume a paused request."""
    _order(request_id, "resume", "continues", as_json, data, token)


def cancel(
    request_id: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Stop a request; finished results stay, and tasks that other requests want continue."""
    found = _order(request_id, "cancel", "is being cancelled", as_json, data, token)
    if found.state is RequestState.CANCELLED:  # cancelled at once, because nothing had started
        if as_json:
            print_json(client_for(data_folder(data), token).as_json(request_id))
        else:
            _say(f"{request_id} is cancelled.")
    elif found.state.ended:
        raise RefusedError(
            field="",
            problem=f"Request {request_id} has ended: it is {found.state}.",
            remedy="There is nothing to cancel.",
            status=0,
        )


def confirm(
    request_id: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Start a request that waits for confirmation because it takes so much."""
    _order(request_id, "confirm", "is confirmed", as_json, data, token)


def retry(
    request_id: IdArgument,
    category: Annotated[
        str, typer.Option(help="Only what failed in this category, such as 'server busy'.")
    ] = "",
    task: Annotated[str, typer.Option(help="Only this task, by its key.")] = "",
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Try again what failed; for an ended request, print the id of the new request that does it."""
    client = client_for(data_folder(data), token)
    with about(request_id):
        found = client.retry(request_id, category=category, task=task)
    if as_json:
        print_json(client.as_json(found.id))
    elif found.id == request_id:
        _say(f"{request_id} tries again.")
    else:
        _say(f"{request_id} has ended; {found.id} tries it again.")


def change(
    request_id: IdArgument,
    labels: Annotated[
        str | None, typer.Option(help="Its labels, with commas between; empty: none.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Group whose members may read it; empty: nobody.")
    ] = None,
    standing: Annotated[
        int | None,
        typer.Option(
            min=0, max=366, help="Days after which it goes on with new data; 0: it does not."
        ),
    ] = None,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Change a request's labels, who else may read it, and whether it goes on with new data."""
    if labels is None and group is None and standing is None:
        raise typer.BadParameter("name what is to change: --labels, --group or --standing")
    client = client_for(data_folder(data), token)
    named = None if labels is None else [one for one in map(str.strip, labels.split(",")) if one]
    with about(request_id):
        found = client.change(request_id, labels=named, group=group, standing=standing)
    if as_json:
        print_json(client.as_json(found.id))
        return
    stands = f"goes on each {found.standing} days at most" if found.standing else "does not go on"
    _say(
        f"{found.id}: labels {', '.join(found.labels) or 'none'}; "
        f"read by {f'the group {found.group}' if found.group else 'nobody else'}; {stands}."
    )


def _order(
    request_id: str, what: str, becomes: str, as_json: bool, data: Path | None, token: str | None
) -> RequestStatus:
    client = client_for(data_folder(data), token)
    with about(request_id):
        found = client.order(request_id, what)
    if found.state.ended:
        return found
    if as_json:
        print_json(client.as_json(request_id))
    else:
        _say(f"{request_id} {becomes}.")
    return found


def _say(text: str) -> None:
    PlainConsole().print(text, markup=False)
