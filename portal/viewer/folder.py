"""Reads what a folder of granules holds, without a copy of any, for the page that shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from archives.kinds.coverage import Coverage
from archives.kinds.folder import FolderArchive, index_name
from modis.collection import versioned
from reprojection.errors import ReprojectionError
from reprojection.isolation import ReadingProcess
from reprojection.read.outline import LayersSeen, Outline, read_layers
from tasks.bag.runtime import Runtime
from tasks.holdings import holdings
from tasks.holdings.holdings import Holdings
from tasks.holdings.told import held_of
from tasks.settings import Settings


@dataclass(frozen=True, kw_only=True)
class FolderRead:
    """What was found: of products how many granules, and files that are not shown.

    `unreadable` are listed by their names, but cannot be opened; of `unnamed` neither the file nor
    its name tells the product.
    """

    products: dict[str, int]
    unreadable: tuple[str, ...]
    unnamed: tuple[str, ...]


def read_folder(settings: Settings, runtime: Runtime) -> FolderRead:
    """Index the folder that the settings name as archive, and publish what it holds.

    The index lies in the data folder. Raises IndexUnusableError.
    """
    unreadable: list[str] = []
    with ReadingProcess() as process:

        def outlines(paths: Sequence[Path]) -> list[Outline | None]:
            found = process.read_outlines(paths)
            read = zip(paths, found, strict=True)
            unreadable.extend(path.name for path, one in read if one is None)
            return found

        index = settings.data_dir / index_name("archive-index")
        archive = FolderArchive(Path(settings.archive), index, outlines)
        refreshed = archive.refresh()
        held = tuple(held_of(each, _layers(process, each)) for each in archive.coverage())
    holdings.publish(runtime.store, Holdings(products=held), 0)
    return FolderRead(
        products={versioned(one.name, one.collection): one.granules for one in held},
        unreadable=tuple(unreadable),
        unnamed=refreshed.unrecognised,
    )


def _layers(process: ReadingProcess, covered: Coverage) -> LayersSeen:
    """Return the layers of those samples together that can be read."""
    found = LayersSeen(lengths={}, notes={})
    for path in covered.samples:
        try:
            one = process.run(read_layers, Path(path))
        except ReprojectionError:
            continue
        found.lengths.update(one.lengths)
        found.notes.update(one.notes)
    return found
