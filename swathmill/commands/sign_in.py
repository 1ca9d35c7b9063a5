"""`swathmill sign-in`: print a link or a token for somebody; the signing key is needed."""

from typing import Annotated

import typer
from rich.console import Console

from portal.core.tokens import Role
from swathmill.access import api_token, sign_in_link
from swathmill.commands.options import DataOption, JsonOption, data_folder, print_json
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
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Print a link that signs somebody in at the portal."""
    folder = data_folder(data)
    url = folder.state().portal_url or Settings().portal_url
    text = api_token(folder, owner, role) if token else sign_in_link(url, folder, owner, role)
    if as_json:
        print_json({"owner": owner, "role": role, "token" if token else "link": text})
        return
    Console(highlight=False, soft_wrap=True).print(text, markup=False)
