"""The structure of granules that were read by parts: where their chunks lie, for later readings.

It is what a reader takes of a granule besides values: lists, tables of chunks, attributes. With it
a later reading fetches values alone, in one call or two. It is of one edition of the granule. What
is kept holds its own checksum; what is damaged is removed, and made again by the next reading. It
lies on this machine, and in storage where that is another: there other machines find it.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reprojection.formats.held import Held, Range, joined, keep, pack, unpack
from tasks.holdings.stored_structures import StoredStructures
from tasks.storage.blobs import Blobs
from tasks.storage.file_blobs import FileBlobs

FOLDER = "structures"
"""The folder below a data folder."""

MOST_BYTES = 2 * 10**9


@dataclass(frozen=True)
class Structures:
    """A folder of structures; beyond `most` bytes those used longest ago go.

    Several processes may share it: files are written aside and replaced whole. What it lacks may be
    `stored`.
    """

    folder: Path
    most: int = MOST_BYTES
    stored: StoredStructures | None = None

    def bring(self, name: str) -> None:
        """Take what is stored of a granule, where nothing is kept of it.

        Raises:
            OSError: the folder cannot be written.
        """
        if self.stored is None or not self.lacks(name):
            return
        data = self.stored.find(name)
        if data is None or _opened(data) is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".") as place:
            self._replace(name, data, Path(place))
        self._make_room()

    def give(self, name: str, path: Path) -> str | None:
        """Begin a file with a granule's structure.

        Args:
            name: What stands for the granule.
            path: The file, in a folder that is there.

        Returns:
            The granule's edition; None if nothing is kept of it.

        Raises:
            OSError: the file cannot be written.
        """
        kept = self.folder / name
        try:
            data = kept.read_bytes()
        except OSError:
            return None
        opened = _opened(data)
        if opened is None:
            self.forget(name)
            return None
        edition, packed = opened
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".structure.") as aside:
            source, to = Path(aside) / "packed", Path(aside) / path.name
            source.write_bytes(packed)
            unpack(source, to)
            to.replace(path)
        with suppress(OSError):  # another process has removed it
            os.utime(kept)
        return edition

    def lacks(self, name: str) -> bool:
        """Tell whether nothing is kept of a granule."""
        return not (self.folder / name).exists()

    def add(self, name: str, path: Path, ranges: Iterable[Range], edition: str) -> None:
        """Keep these ranges of a file, which holds them, beside what is kept of the granule.

        Raises:
            OSError: the folder cannot be written, or the file is no longer there.
        """
        held = Held.of(path)
        if held is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".") as place:
            aside = Path(place)
            before = aside / "before"
            known = self.give(name, before) == edition and Held.of(before)
            every = [*ranges, *(known.parts.tolist() if known else ())]
            every = [one for one in joined(every) if not held.missing([one])]
            with path.open("rb") as file:
                pieces = {low: os.pread(file.fileno(), high - low, low) for low, high in every}
            keep(aside / "part", held.size, pieces)
            if Held.of(aside / "part") is None:
                return  # it is the granule itself
            pack(aside / "part", aside / "packed")
            data = (aside / "packed").read_bytes()
            data = f"{_digest(edition, data)} {edition}\n".encode() + data
            self._replace(name, data, aside)
        self._make_room()
        if self.stored is not None:
            self.stored.put(name, data)

    def forget(self, name: str) -> None:
        """Remove what is kept of a granule."""
        (self.folder / name).unlink(missing_ok=True)

    def _replace(self, name: str, data: bytes, aside: Path) -> None:
        (aside / name).write_bytes(data)
        (aside / name).replace(self.folder / name)

    def _make_room(self) -> None:
        found = []
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # another process has removed it
                about = path.stat()
                if path.is_file():
                    found.append((about.st_mtime, about.st_size, path))
        held = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if held <= self.most:
                break
            path.unlink(missing_ok=True)
            held -= size


def open_structures(data_dir: Path, blobs: Blobs) -> Structures:
    """Open the structures of a data folder; files of this machine are not stored a second time."""
    stored = None if isinstance(blobs, FileBlobs) else StoredStructures(blobs)
    return Structures(data_dir / FOLDER, stored=stored)


def _opened(data: bytes) -> tuple[str, bytes] | None:
    """Return the edition and the packed structure; None of what is damaged."""
    head, _, packed = data.partition(b"\n")
    digest, _, edition = head.decode("utf-8", "replace").partition(" ")
    return (edition, packed) if digest == _digest(edition, packed) else None


def _digest(edition: str, packed: bytes) -> str:
    return hashlib.sha256(edition.encode("utf-8") + b"\n" + packed).hexdigest()
