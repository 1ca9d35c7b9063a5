"""`swathmill deploy`: the service in Azure, by one command."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from swathmill.commands.shared.options import JsonOption, print_json
from swathmill.console import PlainConsole
from swathmill.deployment import choices as given
from swathmill.deployment.az import Az
from swathmill.deployment.choices import Choices
from swathmill.deployment.deploy import checkout, preview
from swathmill.deployment.deploy import deploy as deploy_service
from swathmill.errors import ArgumentError

_SOURCES = "Sources of granules in order: cmr (NASA), folder, or both as in folder,cmr"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(deploy)


def deploy(
    group: Annotated[str, typer.Argument(help="Resource group; it is made if it is absent.")],
    location: Annotated[str, typer.Option(help="Azure's region, such as westeurope.")],
    operator: Annotated[str, typer.Option(help="Mail address of who operates the service.")],
    size: Annotated[
        str, typer.Option(help="production, or development: the parameter file in infra/bicep.")
    ] = given.SIZES[0],
    name: Annotated[str, typer.Option(help="What all resources are named after.")] = "swathmill",
    sources: Annotated[
        str, typer.Option(envvar="SWATHMILL_SOURCES", help=f"{_SOURCES}. Asked for if absent.")
    ] = "",
    archive: Annotated[
        str, typer.Option(help="The folder's URL, such as abfs://container/folder.")
    ] = "",
    archive_account: Annotated[
        str, typer.Option(help="Resource id of a storage account with an NFS share of granules.")
    ] = "",
    archive_share: Annotated[str, typer.Option(help="Name of that share.")] = "",
    mail: Annotated[
        str,
        typer.Option(
            help="`azure`: Azure Communication Services; else the server that SWATHMILL_SMTP_URL "
            "names; without it mail stays in the outbox."
        ),
    ] = "",
    sign_in: Annotated[
        str,
        typer.Option(
            help="`entra`: people sign in with Microsoft Entra ID, which is registered there; "
            "else by links, or at the provider that SWATHMILL_OIDC_* of --set name."
        ),
    ] = "",
    operators: Annotated[
        str,
        typer.Option(
            help="Object id of the group that reads logs and vault; with --sign-in entra its "
            "members are operators."
        ),
    ] = "",
    image: Annotated[
        str, typer.Option(help="An image that exists; by default one is built from the checkout.")
    ] = "",
    registry: Annotated[
        str, typer.Option(help="The registry of that image, if it is private.")
    ] = "",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, such as RESULT_DAYS=60. May be repeated."),
    ] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Show what would change, and change nothing.")
    ] = False,
    folder: Annotated[Path, typer.Option("--checkout", help="Folder of the checkout.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Deploy the service into Azure, or a newer version of it, and wait until it works.

    Secrets are read from the environment: SWATHMILL_EARTHDATA_TOKEN, SWATHMILL_SMTP_PASSWORD. The
    signing key is made the first time and kept in the vault (SWATHMILL_SECRET replaces it).
    """
    console = PlainConsole(stderr=as_json)
    if not sources and sys.stdin.isatty():
        sources = typer.prompt(_SOURCES, default="cmr")
    if mail not in ("", "azure"):
        raise ArgumentError(
            f"--mail {mail}: there is no such mail service.",
            "Use `azure`, or name your server by SWATHMILL_SMTP_URL.",
        )
    if sign_in not in ("", "entra"):
        raise ArgumentError(
            f"--sign-in {sign_in}: it is not known how to register there.",
            "Use `entra`, or register the portal yourself and --set OIDC_ISSUER, OIDC_CLIENT_ID.",
        )
    wanted = Choices(
        group=group,
        location=location,
        operator=operator,
        size=size,
        name=name,
        sources=sources,
        archive=archive,
        account=archive_account,
        share=archive_share,
        image=image,
        registry=registry,
        operators=operators,
        azure_mail=mail == "azure",
        entra=sign_in == "entra",
        settings=given.read_settings_given(setting or ()),
    )
    wanted.check()
    az = Az(checkout(folder))
    if what_if:
        changes = preview(az, wanted, as_json=as_json)
        if as_json:
            print_json(changes)
        return
    made = deploy_service(az, wanted, lambda text: console.print(text, markup=False))
    if as_json:
        print_json(made)
        return
    console.print(f"Swathmill works at {made.url}", markup=False)
    if made.link:
        console.print(f"Sign in as operator (a week): {made.link}", markup=False)
    console.print(f"A link later on: {made.command}", markup=False)
