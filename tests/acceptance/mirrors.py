"""Mirrors of a folder of granules by HTTP and FTP, which serve its files as they are."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from modis.granule_day import granule_day
from modis.granule_name import GranuleName, parse_granule_name
from tests.archives.ftp_servers import ftp_server
from tests.archives.servers import Act, FileServer, Request, file_server


@dataclass(frozen=True)
class Mirror:
    """A source over a folder, as the settings name it; `put` stores a file, `path` is where."""

    sources: str
    archive: str
    path: Callable[[str], Path]
    answers: list[Act] = field(default_factory=list)
    """Answers to the next calls for a granule, in place of it; by HTTP only."""


def pages(folder: Path, answers: list[Act]) -> Mapping[str, Act]:
    """Answers of a data pool over a flat folder of granules, by path below `/pool`."""
    found: dict[str, set[str]] = {}
    for name in sorted(path.name for path in folder.iterdir()):
        parts = _parts(name)
        product = f"{parts.product}.{parts.collection.padded}/"
        day = f"{granule_day(parts.start):%Y.%m.%d}/"
        found.setdefault("/pool/", set()).add(product)
        found.setdefault(f"/pool/{product}", set()).add(day)
        found.setdefault(f"/pool/{product}{day}", set()).add(name)

    def page(links: Sequence[str]) -> Act:
        rows = "".join(f'<a href="{link}">{link}</a>\n' for link in links)
        return lambda request: request.answer(200, f"<html>{rows}</html>".encode())

    def file(name: str) -> Act:
        def act(request: Request) -> None:
            if answers:
                answers.pop(0)(request)
            else:
                request.answer(200, (folder / name).read_bytes())

        return act

    made = {path: page(sorted(links)) for path, links in found.items()}
    for path, links in found.items():
        made |= {f"{path}{link}": file(link) for link in links if not link.endswith("/")}
    return made


def _parts(name: str) -> GranuleName:
    parts = parse_granule_name(name)
    assert parts is not None
    return parts


@contextmanager
def mirror(kind: str, granules: Path, folder: Path) -> Iterator[Mirror]:
    """Serve copies of granules, kept below `folder`, as a `folder`, by `http` or by `ftp`."""
    with ExitStack() as running:
        flat = folder / "granules"
        shutil.copytree(granules, flat)
        if kind == "folder":
            yield Mirror("", str(flat), flat.joinpath)
        elif kind == "http":
            server: FileServer = running.enter_context(file_server())
            answers: list[Act] = []
            server.always.update(pages(flat, answers))
            yield Mirror(f"pool+{server.url}/pool", "", flat.joinpath, answers)
        else:
            root = folder / "ftp"

            def path(name: str) -> Path:
                parts = _parts(name)
                day = f"{granule_day(parts.start):%Y/%j}"
                return root / parts.collection / parts.product / day / name

            for one in flat.iterdir():
                path(one.name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(one, path(one.name))
            yield Mirror(running.enter_context(ftp_server(root)).url, "", path)
