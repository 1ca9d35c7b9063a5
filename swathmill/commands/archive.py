"""`swathmill archive check`: read the granules of a folder, and name those that are damaged."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from archives.errors import NotGranuleError
from archives.fetch.files import LocalFiles
from archives.formats.checksums import digest, read_chunks, same_checksum
from archives.formats.granule_file import check_granule_file
from archives.formats.sidecar import read_sidecar
from reprojection.errors import ReprojectionError
from reprojection.inspect.soundness import read_whole
from reprojection.isolation import ReadingProcess
from swathmill.cli import EXIT_FAILED
from swathmill.commands.shared.options import JsonOption, granules_text, print_json
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError

_SECONDS = 600.0  # for one granule; the largest take some seconds


def register(app: typer.Typer) -> None:
    """Add the command's group to the application."""
    group = typer.Typer(no_args_is_help=True, help="Look after a folder of granules.")
    group.command("check")(check)
    app.add_typer(group, name="archive")


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """What is wrong with a file: `kind` in a word or two, `found` in a sentence."""

    file: str
    kind: str
    found: str


def check(
    folder: Annotated[Path, typer.Argument(help="Folder of granules.")],
    as_json: JsonOption = False,
) -> None:
    """Read every granule of a folder whole. Exits 1 if one is damaged, cut or another's content."""
    if not folder.is_dir():
        raise ArgumentError(f"FOLDER {folder} is not a folder.", "Name a folder of granules.")
    console = PlainConsole(quiet=as_json)
    flaws: list[Flaw] = []
    number = 0
    with ReadingProcess(seconds=_SECONDS) as reader:
        for file, _ in LocalFiles(folder).stamps():
            number += 1
            for flaw in _flaws(folder, file, reader):
                console.print(f"{flaw.file}  {flaw.kind}: {flaw.found}", markup=False)
                flaws.append(flaw)
    if as_json:
        print_json({"folder": folder, "granules": number, "flaws": flaws})
    kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(one.kind for one in flaws).items())
    console.print(
        f"{granules_text(number)} read: {kinds or 'all whole, and what their names say'}",
        markup=False,
    )
    if flaws:
        console.print("Put good copies in their place under the same names, then retry.")
        raise typer.Exit(EXIT_FAILED)


def _flaws(folder: Path, file: str, reader: ReadingProcess) -> Iterator[Flaw]:
    """Yield the first thing that is wrong with a file, if any."""
    path = folder / file
    try:
        check_granule_file(path, path.name, "the file holds")
        if said := _unlike_sidecar(path):
            yield Flaw(file=file, kind="damaged", found=said)
        elif other := reader.run(read_whole, path):
            yield Flaw(file=file, kind="another granule", found=f"it holds {other}")
    except NotGranuleError as error:
        yield Flaw(file=file, kind=error.kind, found=str(error))
    except ReprojectionError as error:
        yield Flaw(file=file, kind="damaged", found=str(error))
    except OSError as error:
        yield Flaw(file=file, kind="not readable", found=str(error.strerror or error))


def _unlike_sidecar(path: Path) -> str:
    """Tell how a file differs from the checksum in its sidecar; "" if it does not."""
    sidecar = read_sidecar(path.with_name(f"{path.name}.xml"))
    running = digest(sidecar.checksum_type or "") if sidecar else None
    if sidecar is None or running is None or not sidecar.checksum:
        return ""
    for chunk in read_chunks(path):
        running.update(chunk)
    if same_checksum(running.hexdigest(), sidecar.checksum):
        return ""
    return f"its {sidecar.checksum_type} is {running.hexdigest()}, its sidecar says otherwise"
