"""One request on a stack of its own, from its submission to its files."""

import shlex
from collections.abc import Callable
from pathlib import Path

from swathmill.access import local_client
from swathmill.console import PlainConsole
from swathmill.delivery import (
    EXIT_CODES,
    EXIT_FAILED,
    Delivery,
    ResultFetcher,
    collect_mails,
    read_mail,
    write_summary,
)
from swathmill.following import Follower, Unfinished
from swathmill.missing_lines import failure_lines, gap_lines, incomplete_lines
from swathmill.progress import ProgressView
from swathmill.stack import programs
from swathmill.stack.stack import Stack, StackOptions
from tasks.request.document import Request

SHOWN = 12


def exit_code(delivery: Delivery) -> int:
    """Return the exit code of the command for how the request ended."""
    return EXIT_CODES.get(delivery.summary.state, EXIT_FAILED)


def _unrehearsed(document: Request) -> Request:
    """Have a request go on when its package fails in a first run: nobody is asked here."""
    steps = tuple(step.model_copy(update={"rehearse": False}) for step in document.steps)
    return document.model_copy(update={"steps": steps})


def carry_out(
    stack: Stack, options: StackOptions, document: Request, out: Path, console: PlainConsole
) -> Delivery:
    """Submit a request, or take up an interrupted one; follow it; write what it gave.

    When this returns, the stack has been asked to stop.
    """
    caught = frozenset(path.name for path in options.folder.mail.glob("*.eml"))
    client = local_client(options.folder)
    unfinished = Unfinished(folder=options.folder, request=document, archive=options.archive)
    request_id = unfinished.take_up(client)
    if request_id:
        console.print(f"Request {request_id} continues where it was interrupted.")
    else:
        request_id = client.submit(_unrehearsed(document)).id
        unfinished.remember(request_id)
        console.print(f"Request {request_id}: {document.title or 'no title'}", markup=False)
    # Imported while the request runs; at its end somebody waits for it.
    from reprojection.write.picture import write_png

    view = ProgressView(console)
    with ResultFetcher(client, request_id, out, lambda path: view.arrived(path.name)) as fetcher:
        with view:
            follower = Follower(client=client, tick=stack.tick, view=view, changed=fetcher.begin)
            status = follower.until_ended(request_id)
        stack.release_workers()
        failed = any(count.failed for count in status.phases.values()) or status.gap_count
        if failed:  # the status has the first of them
            gaps, failures = tuple(client.gaps(request_id)), tuple(client.failures(request_id))
            status = status.model_copy(update={"gaps": gaps, "failures": failures})
        unfinished.forget()
        files = fetcher.finish(tick=stack.tick)
    mails = collect_mails(
        options.folder.mail,
        caught,
        out,
        expected=bool(document.notify) and options.catch_mail,
        tick=stack.tick,
    )
    stack.begin_stop()
    picture = _picture([path for _, path in files], out, write_png)
    return write_summary(out, status, files, mails, picture)


def _picture(results: list[Path], out: Path, draw: Callable[[Path, Path], None]) -> Path | None:
    """Draw the first raster among the results; return None if there is none."""
    rasters = sorted(path for path in results if path.suffix == ".tif")
    if not rasters:
        return None
    picture = out / "picture.png"
    draw(rasters[0], picture)
    return picture


def tell(console: PlainConsole, delivery: Delivery) -> None:
    """Print how the request ended, what it lacks, its mail and its files."""
    summary = delivery.summary
    console.print(f"\nRequest {summary.request}: {summary.state} ({summary.message})", markup=False)
    _tell_some(console, gap_lines(summary.gaps))
    _tell_some(console, incomplete_lines(summary.files))
    _tell_some(console, failure_lines(summary.failures, messages=True))
    for mail in delivery.mails:
        console.print(f"\n--- mail, {mail} ---\n{read_mail(mail)}\n---", markup=False)
    console.print("\nResults")
    _tell_some(console, [str(path) for path in delivery.results])
    console.print(f"Summary  {delivery.summary_path}", markup=False)
    for mail in delivery.mails:
        console.print(f"Mail     {mail}", markup=False)
    if delivery.picture is not None:
        console.print(f"Picture  {delivery.picture}", markup=False)


def tell_portal(console: PlainConsole, data: Path | None, delivery: Delivery) -> None:
    """Say how to see the request in the portal, because the stack of this command has stopped."""
    command = "make up" if programs.checkout() else "swathmill up"
    if data:
        command = f"swathmill up --data {shlex.quote(str(data))}"
    title = delivery.summary.title or delivery.summary.request
    console.print(
        f"Portal   `{command}` starts it over the same data. Open the link that it prints and "
        f'click on "{title}": results, pictures, progress. "New request" makes the next one.',
        markup=False,
    )


def _tell_some(console: PlainConsole, lines: list[str]) -> None:
    for line in lines[:SHOWN]:
        console.print(f"  {line}", markup=False)
    if len(lines) > SHOWN:
        console.print(f"  and {len(lines) - SHOWN} more, all in the summary", markup=False)
