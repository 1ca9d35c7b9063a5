"""A download in progress: the bytes so far beside the final name, and their origin."""

import errno
import json
import shutil
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from archives.errors import NotGranuleError, UnlikeRecordError
from archives.formats.checksums import digest, read_chunks, same_checksum
from archives.formats.granule_file import check_granule_file
from archives.model import Fetched

_SPARE = 64 * 2**20  # bytes of disk left free for other programs


@dataclass(frozen=True, kw_only=True)
class DownloadOrigin:
    """The file that the bytes of a partial file belong to.

    `url` is the first address without its query. `validator` is a strong ETag or a Last-Modified
    for If-Range, empty if the server gave none. `total` is the announced size in bytes, 0 if
    unknown.
    """

    url: str
    validator: str
    total: int


class Partial:
    """The file `<to>.part`, which outlives a killed process, and its state `<to>.part.json`.

    The checksum is updated as bytes are appended, so that the file is read only once.
    """

    def __init__(self, to: Path, checksum_type: str | None) -> None:
        self.to = to
        self.path = to.with_name(f"{to.name}.part")
        self._state = to.with_name(f"{to.name}.part.json")
        self._kind = checksum_type or ""
        self.length = 0
        self.origin: DownloadOrigin | None = None
        self._digest = digest(self._kind)
        self._file: FileIO | None = None
        self._read()

    def clear(self) -> None:
        """Delete all bytes."""
        self.close()
        self._state.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self.length, self.origin, self._digest = 0, None, digest(self._kind)

    def begin(self, origin: DownloadOrigin) -> None:
        """Start again with the bytes of an origin; the state is on disk before the first byte."""
        self.clear()
        draft = self._state.with_name(f"{self._state.name}.new")
        draft.write_text(json.dumps(asdict(origin)), "utf-8")
        draft.replace(self._state)
        self.origin = origin

    def append(self, data: bytes) -> None:
        """Append bytes."""
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        self._file.write(data)
        self._count(data)

    def close(self) -> None:
        """Close the file; its bytes stay for a later attempt."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def finish(self, size: int, checksum: str | None) -> Fetched:
        """Verify the file and give it its final name.

        Raises:
            DownloadFailedError: size (0: unknown) or checksum differ, or it is no whole granule;
                the bytes are deleted.
        """
        self.close()
        self.path.touch()
        if size and self.length != size:
            self._refuse(f"has {self.length} bytes, announced were {size}")
        found = self._digest.hexdigest() if self._digest is not None else ""
        if checksum and found and not same_checksum(found, checksum):
            self._refuse(f"has {self._kind} {found}, announced was {checksum}")
        where = self.origin.url if self.origin is not None else "the source"
        try:
            check_granule_file(self.path, self.to.name, f"{where} sent")
        except NotGranuleError:
            self.clear()
            raise
        self.path.replace(self.to)
        self._state.unlink(missing_ok=True)
        return Fetched(path=self.to, size=self.length)

    def _refuse(self, what: str) -> None:
        self.clear()
        raise UnlikeRecordError(f"{self.to.name} {what}; it is fetched again from the start")

    def _count(self, data: bytes) -> None:
        self.length += len(data)
        if self._digest is not None:
            self._digest.update(data)

    def _read(self) -> None:
        """Adopt the bytes of an earlier process, unless their origin is unknown."""
        try:
            state = json.loads(self._state.read_text("utf-8"))
            self.origin = DownloadOrigin(
                url=str(state["url"]),
                validator=str(state["validator"]),
                total=int(state["total"]),
            )
            for chunk in read_chunks(self.path):
                self._count(chunk)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            self.clear()


def check_room(folder: Path, wanted: int) -> None:
    """Raise OSError (ENOSPC) if a folder lacks space for this many bytes and a reserve."""
    free = shutil.disk_usage(folder).free
    if wanted > 0 and wanted + _SPARE > free:
        raise OSError(
            errno.ENOSPC,
            f"{folder} has {free} bytes free, and {wanted} that are still to be fetched need "
            f"{wanted + _SPARE}, with a reserve",
        )
