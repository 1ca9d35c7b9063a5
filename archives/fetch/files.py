"""The files of a folder archive: a folder of this machine, or anything fsspec can open."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Protocol

from archives.errors import (
    AnswerBrokenError,
    ArchiveError,
    ConnectionFailedError,
    IndexUnusableError,
    NotPermittedError,
    NotPublishedError,
    ServerBusyError,
    SourcesSettingError,
    UnlikeRecordError,
)
from archives.fetch.answers import bare_url
from archives.fetch.parts import InParts, Range
from archives.formats.checksums import read_chunks
from archives.formats.sidecar import MAX_BYTES, Sidecar, parse_sidecar, read_sidecar
from modis.formats import GRANULE_SUFFIXES

Stamp = tuple[int, int, str]
"""A file's size in bytes, a number that changes with its content, and both of its sidecar."""

_BLOCK = 1 << 22
_AT_ONCE = 4  # parts of a file that are read at once


class Files(Protocol):
    """The files below a place, by their relative path (with slashes)."""

    @property
    def place(self) -> str:
        """The place, for messages."""

    @property
    def near(self) -> bool:
        """True if opening a file costs almost nothing."""

    def stamps(self) -> Iterator[tuple[str, Stamp]]:
        """Yield every granule file with its stamp."""

    def names(self) -> Iterator[str]:
        """Yield the name of every file, granule or not, without its folder."""

    def stamp(self, file: str) -> Stamp | None:
        """Return the stamp of a granule file as it is now; None if there is no such file."""

    def sidecar(self, file: str) -> Sidecar | None:
        """Read the `.xml` beside a file; return None if there is none."""

    def local(self, file: str) -> AbstractContextManager[Path]:
        """Provide the file on this machine's disk while the context lasts."""

    def chunks(self, file: str) -> Iterator[bytes]:
        """Yield a file's bytes; raise NotPublishedError at once if it does not exist."""

    def in_parts(self, file: str, size: int) -> InParts:
        """Return a file of `size` bytes, of which parts can be read."""


class LocalFiles:
    """The files of a folder; raises IndexUnusableError if the folder does not exist."""

    near = True

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self.place = str(self._path)
        self._require()

    @property
    def absent(self) -> bool:
        """True if the folder is not there (any more)."""
        return not self._path.is_dir()

    def _require(self) -> None:
        if self.absent:
            raise IndexUnusableError(
                f"archive folder {self._path} is not a folder: name an existing one"
            )

    def stamps(self) -> Iterator[tuple[str, Stamp]]:
        """Implement `Files.stamps`.

        Raises IndexUnusableError if the folder is gone: its files are not deleted ones.
        """
        self._require()
        for folder, subfolders, names in os.walk(self._path):
            subfolders.sort()
            present = set(names)
            for name in sorted(names):
                if not name.lower().endswith(GRANULE_SUFFIXES) or name.startswith("."):
                    continue
                path = Path(folder) / name
                stamp = _stamp(path, beside=f"{name}.xml" in present)
                if stamp is not None:  # else it was deleted meanwhile
                    yield path.relative_to(self._path).as_posix(), stamp

    def names(self) -> Iterator[str]:
        """Implement `Files.names`."""
        for _, _, names in os.walk(self._path):
            yield from names

    def stamp(self, file: str) -> Stamp | None:
        """Implement `Files.stamp`."""
        path = self._path / file
        return _stamp(path, beside=path.with_name(f"{path.name}.xml").exists())

    def sidecar(self, file: str) -> Sidecar | None:
        """Implement `Files.sidecar`."""
        return read_sidecar(self._path / f"{file}.xml")

    def local(self, file: str) -> AbstractContextManager[Path]:
        """Implement `Files.local`."""
        return nullcontext(self._path / file)

    def chunks(self, file: str) -> Iterator[bytes]:
        """Implement `Files.chunks`."""
        return read_chunks(self._source(file))

    def in_parts(self, file: str, size: int) -> InParts:
        """Implement `Files.in_parts`."""
        return _FileInParts(self, file, size)

    def part(self, file: str, begin: int, end: int) -> bytes:
        """Return bytes of a file. Raises NotPublishedError if it is gone."""
        try:
            with self._source(file).open("rb") as opened:
                opened.seek(begin)
                return opened.read(end - begin)
        except FileNotFoundError:
            raise _missing(file, self.place) from None

    def _source(self, file: str) -> Path:
        # Links are followed, as for the index, but a record's name may not lead out of the folder.
        source = Path(os.path.normpath(self._path / file))
        if not source.is_relative_to(self._path) or not source.is_file():
            raise _missing(file, self.place)
        return source


def _stamp(path: Path, *, beside: bool) -> Stamp | None:
    """Return a file's stamp, `beside` a sidecar; None if it is not there any more."""
    try:
        about = path.stat()
        sidecar = str(path.with_name(f"{path.name}.xml").stat().st_mtime_ns) if beside else ""
    except FileNotFoundError:
        return None
    return about.st_size, about.st_mtime_ns, sidecar


class RemoteFiles:
    """The files below a URL of fsspec.

    An example is `abfs://container@account.dfs.core.windows.net/folder`. `options` are those of the
    URL's file system; without any, `abfs` uses Azure's default credentials.
    """

    near = False

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        self.place = bare_url(url)
        chosen = dict(options or {})
        if url.startswith(("abfs://", "abfss://", "az://")):
            chosen.setdefault("anon", False)
        try:
            # Only where it is used: it takes long to import.
            import fsspec

            self._system, root = fsspec.core.url_to_fs(url, **chosen)
        except (ImportError, ValueError) as error:
            raise SourcesSettingError(
                f"the archive {self.place} cannot be opened ({error}): correct SWATHMILL_ARCHIVE"
            ) from error
        self._root = str(root).rstrip("/")

    def stamps(self) -> Iterator[tuple[str, Stamp]]:
        """Implement `Files.stamps`."""
        with self._named_errors(self.place):
            self._system.invalidate_cache()
            found = self._system.find(self._root, detail=True)
        changes = {str(path): _change(about) for path, about in found.items()}
        for path, about in sorted(found.items()):
            name = path.rpartition("/")[2]
            if name.lower().endswith(GRANULE_SUFFIXES) and not name.startswith("."):
                beside = str(changes.get(f"{path}.xml", ""))
                yield path[len(self._root) + 1 :], (int(about["size"]), changes[path], beside)

    def names(self) -> Iterator[str]:
        """Implement `Files.names`."""
        with self._named_errors(self.place):
            found = self._system.find(self._root)
        for path in found:
            yield str(path).rpartition("/")[2]

    def stamp(self, file: str) -> Stamp | None:
        """Implement `Files.stamp`."""
        path = self._path(file)
        with self._named_errors(file):
            self._system.invalidate_cache()
            if not self._system.exists(path):
                return None
            about = self._system.info(path)
            beside = f"{path}.xml"
            sidecar = ""
            if self._system.exists(beside):
                sidecar = str(_change(self._system.info(beside)))
        return int(about["size"]), _change(about), sidecar

    def sidecar(self, file: str) -> Sidecar | None:
        """Implement `Files.sidecar`."""
        try:
            with self._named_errors(file):
                return parse_sidecar(
                    self._system.cat_file(self._path(f"{file}.xml"), end=MAX_BYTES)
                )
        except NotPublishedError:
            return None

    @contextmanager
    def local(self, file: str) -> Iterator[Path]:
        """Implement `Files.local` with a copy that is deleted afterwards."""
        with tempfile.TemporaryDirectory(prefix="swathmill-") as folder:
            path = Path(folder) / file.rpartition("/")[2]
            with path.open("wb") as copy:
                for chunk in self.chunks(file):
                    copy.write(chunk)
            yield path

    def chunks(self, file: str) -> Iterator[bytes]:
        """Implement `Files.chunks`."""
        with self._named_errors(file):
            opened = self._system.open(self._path(file), "rb", block_size=_BLOCK)
        return self._read(opened, file)

    def in_parts(self, file: str, size: int) -> InParts:
        """Implement `Files.in_parts`."""
        return _FileInParts(self, file, size)

    def part(self, file: str, begin: int, end: int) -> bytes:
        """Return bytes of a file; raises what `stamp` raises."""
        with self._named_errors(file):
            return bytes(self._system.cat_file(self._path(file), start=begin, end=end))

    def _read(self, opened: IO[bytes], file: str) -> Iterator[bytes]:
        with opened, self._named_errors(file):
            while chunk := opened.read(_BLOCK):
                yield bytes(chunk)

    def _path(self, file: str) -> str:
        if ".." in file.split("/") or file.startswith("/"):
            raise _missing(file, self.place)
        return f"{self._root}/{file}"

    @contextmanager
    def _named_errors(self, file: str) -> Iterator[None]:
        """Translate what file systems raise into errors of `archives`."""
        # Only where it is used: it is a third of the time every process takes to start.
        import azure.core.exceptions as azure

        unreachable: tuple[type[Exception], ...] = (azure.AzureError, OSError, *_errors_of_s3())
        try:
            yield
        except ArchiveError:
            raise
        except (FileNotFoundError, azure.ResourceNotFoundError):
            raise _missing(file, self.place) from None
        except (PermissionError, azure.ClientAuthenticationError) as error:
            raise NotPermittedError(f"{self.place} refuses us: {error}") from error
        except azure.HttpResponseError as error:
            if error.status_code in (401, 403):
                raise NotPermittedError(f"{self.place} refuses us: {error.message}") from error
            if error.status_code in (429, 503):
                raise ServerBusyError(f"{self.place} is busy: {error.message}") from error
            raise ConnectionFailedError(f"{self.place} failed: {error.message}") from error
        except unreachable as error:
            raise ConnectionFailedError(f"{self.place} cannot be reached: {error}") from error


class _Parted(Protocol):
    """Files of which bytes can be read."""

    @property
    def place(self) -> str: ...

    def stamp(self, file: str) -> Stamp | None: ...

    def part(self, file: str, begin: int, end: int) -> bytes: ...


class _FileInParts:
    """Implement `InParts` by a file system, which is asked again whether the file is the same."""

    def __init__(self, files: _Parted, file: str, size: int) -> None:
        self._files = files
        self._file = file
        self._size = size
        self._stamp: Stamp | None = None

    @property
    def edition(self) -> str:
        """The edition, by what the file system says of the file."""
        return "" if self._stamp is None else repr(self._stamp)

    def size(self) -> int:
        """Return the bytes that the file is listed with."""
        return self._size

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Implement `InParts.read`."""
        self._stamp = self._stamp or self._files.stamp(self._file)
        if self._stamp is None:
            raise _missing(self._file, self._files.place)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(lambda one: self._files.part(self._file, *one), ranges))
        if self._files.stamp(self._file) != self._stamp or self._stamp[0] != self._size:
            name = self._file.rpartition("/")[2]
            raise UnlikeRecordError(f"{name} was replaced while it was read; begin again")
        if [len(one) for one in found] != [min(end, self._size) - at for at, end in ranges]:
            raise AnswerBrokenError(f"{self._file} gave less than the parts asked for; try later")
        return found


def _errors_of_s3() -> tuple[type[Exception], ...]:
    """Return what s3fs lets through of its own library, which is there when s3fs was used."""
    library = sys.modules.get("botocore.exceptions")
    return (library.BotoCoreError,) if library else ()


def _missing(file: str, place: str) -> NotPublishedError:
    name = file.rpartition("/")[2]
    return NotPublishedError(
        f"{name} is no longer in {place}: put it back, or plan again without it"
    )


def _change(about: Mapping[str, object]) -> int:
    """Compute a number that changes with a file, from whatever its file system says about it."""
    said = [about.get(key) for key in ("etag", "last_modified", "mtime", "created", "size")]
    return int.from_bytes(hashlib.sha256(repr(said).encode()).digest()[:7], "big")
