"""`swathmill sign-in`: print a link, which the signing key makes, or a token, which is stored."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from portal.serving.tokens import LONGEST_OWNER, Role
from swathmill.access import sign_in_link, signing_key
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    data_folder,
    print_json,
)
from swathmill.commands.stored.backup import open_storage
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError
from swathmill.stack.folder import DataFolder, is_running
from tasks.accounts import session_table
from tasks.accounts.token_table import MOST_DAYS, Scope, TokenTable, make_token
from tasks.bag.runtime import Runtime
from tasks.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("sign-in")(sign_in)


def sign_in(
    owner: Annotated[str, typer.Argument(help="Who is signed in, such as a mail address.")],
    role: Annotated[Role, typer.Option(help="What they may see.")] = Role.SCIENTIST,
    token: Annotated[
        bool, typer.Option("--token", help="Print a token for the HTTP API instead of a link.")
    ] = False,
    scope: Annotated[Scope, typer.Option(help="What the token may do.")] = Scope.WRITE,
    days: Annotated[
        int, typer.Option(min=1, max=MOST_DAYS, help="For how many days the token is good.")
    ] = 365,
    revoke: Annotated[
        bool,
        typer.Option("--revoke", help="End all sessions, links and tokens of this person instead."),
    ] = False,
    end_operator: Annotated[
        bool,
        typer.Option("--end-operator", help="End the operator's rights of this person instead."),
    ] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Print a link that signs somebody in at the portal, or a token; or end what a person has."""
    if not 1 <= len(owner) <= LONGEST_OWNER:
        raise ArgumentError(
            f"OWNER has {len(owner)} characters.",
            f"Name who is signed in, by 1 to {LONGEST_OWNER}, such as a mail address.",
        )
    folder = data_folder(data)
    if revoke:
        with _storage(folder) as runtime:
            session_table.end_all(runtime.store, runtime.clock, owner)
            number = TokenTable(runtime.store).revoke_all(owner)
        what, text = "revoked", str(number)
    elif end_operator:
        with _storage(folder) as runtime:
            session_table.end_operator(runtime.store, runtime.clock, owner)
        what, text = "role", Role.SCIENTIST.value
    elif token:
        with _storage(folder) as runtime:
            text, _ = make_token(
                runtime.store, owner=owner, role=role, scope=scope, name="by the command",
                now=time.time(), days=days,
            )  # fmt: skip
        what = "token"
    else:
        url = folder.state().portal_url or Settings().portal_url
        what, text = "link", sign_in_link(url, folder, owner, role)
        if url == folder.state().portal_url and not is_running(folder):
            PlainConsole(stderr=True).print(
                "Nobody answers there now: `swathmill up` starts the portal."
            )
    if as_json:
        print_json({"owner": owner, "role": role, what: text})
        return
    shown = f"Sessions ended. Tokens revoked: {text}" if revoke else text
    shown = f"{owner} is no operator any more." if end_operator else shown
    PlainConsole().print(shown, markup=False)


@contextmanager
def _storage(folder: DataFolder) -> Iterator[Runtime]:
    """Open the storage of the settings, or of a data folder that has a stack."""
    if not Settings().storage.get_secret_value():
        signing_key(folder)  # a folder without one has no stack, and is not to get a storage
    with open_storage(folder, alone=False) as runtime:
        yield runtime
