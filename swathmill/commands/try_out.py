"""`swathmill try`: the sample archive, a request over it and the portal, by one command."""

import os
import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from portal.serving.tokens import Role
from swathmill.access import LOCAL_OWNER, local_client, sign_in_link
from swathmill.commands.shared.options import JsonOption, print_json, stack_options
from swathmill.commands.up import run_until_interrupted
from swathmill.console import PlainConsole
from swathmill.stack.stack import Stack

FOLDER = Path("swathmill-try")
REQUEST = {
    "title": "Spring over the North Sea (synthetic sample)",
    "products": [
        {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]},
        {"name": "MYD04_L2", "collection": "061", "layers": ["Optical_Depth_Land_And_Ocean"]},
    ],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-04-13", "end": "2012-04-15"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.02},
    "reduction": {"package": "monthly-mean", "group_by": ["cell", "month"]},
    "notify": "scientist@example.org",
}
"""What `examples/sample.yaml` is; examples are not installed."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("try")(try_out)


def try_out(
    data: Annotated[Path, typer.Option(help="Folder for all that it makes.")] = FOLDER,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Portal's port; 0: a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the request's page in a browser.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Run a request over a small synthetic archive and open its page; Ctrl-C ends it."""
    # It takes a while to import.
    from reprojection.sample.sample import write_sample_archive
    from tasks.service.sources import SAMPLE

    console = PlainConsole(stderr=as_json)
    options = stack_options(data=data, archive=None, storage=None, workers=1, slots=0, port=port)
    sample = options.folder.path / SAMPLE
    if not sample.is_dir():
        console.print("1 of 3  Making an archive of synthetic granules")
        options.folder.prepare()
        write_sample_archive(sample)
    stack = Stack(
        replace(options, archive=str(sample)), say=lambda text: console.print(text, markup=False)
    )
    console.print("2 of 3  Starting the portal, a manager and a worker")
    stack.launch()
    stack.await_ready()
    made = local_client(options.folder).submit(REQUEST, key="try")
    link = sign_in_link(stack.portal_url, options.folder, LOCAL_OWNER, Role.OPERATOR)
    link += f"&next={quote(f'/requests/{made.id}')}"
    console.print("3 of 3  The request runs; its page shows how far it is:")
    console.print(link, markup=False, soft_wrap=True)
    if as_json:
        print_json({"request": made.id, "address": link})
    if browser and _has_screen():
        webbrowser.open(link)
    console.print(
        f"Ctrl-C ends it. All of it is in {options.folder.path}: delete that when you are done.",
        markup=False,
    )
    run_until_interrupted(stack, console)


def _has_screen() -> bool:
    """Tell whether a browser would have a window: in a terminal alone it would take that."""
    named = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or bool(named)
