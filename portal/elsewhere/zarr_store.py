"""A cube in Zarr as a store of keys: members of its ZIP, read by ranges, each by itself."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from portal.results.result_files import BlobFile, ResultFile, ResultReader
from portal.serving.problems import NotFoundError
from tasks.errors import CorruptBlobError

ENDING = ".zarr.zip"
_STORE = ".zarr"
_MOST_KEYS = 100_000  # of one store
_MOST_READ = 64 * 2**20  # bytes of a ZIP's directory, and of one member
_LOCAL = struct.Struct("<4s22xHH")  # of a member's own header: signature, lengths of name and extra


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """Where a key's bytes are in the ZIP: the place of its header, its size and its CRC-32."""

    header: int
    size: int
    crc: int


def split_address(path: str) -> tuple[str, str]:
    """Split `FOLDER/NAME.zarr/KEY` into the path of the result and the key.

    Raises NotFoundError where there is no `.zarr/` in it.
    """
    store, mark, key = path.partition(f"{_STORE}/")
    if not mark or not key:
        raise NotFoundError(
            f"{path!r} names no key of a store.",
            "An address is .../zarr/FOLDER/NAME.zarr/KEY for the result FOLDER/NAME.zarr.zip.",
        )
    return store + ENDING, key


def read_members(reader: ResultReader, result: ResultFile) -> Mapping[str, Member]:
    """Read the directory of a result's ZIP.

    Raises NotFoundError for a file that is no ZIP of stored members.
    """
    try:
        with zipfile.ZipFile(io.BufferedReader(_Bounded(reader, result), 2**16)) as archive:
            if len(archive.filelist) > _MOST_KEYS:
                raise ValueError
            return {
                one.filename: Member(header=one.header_offset, size=one.file_size, crc=one.CRC)
                for one in archive.infolist()
                if one.compress_type == zipfile.ZIP_STORED and one.file_size <= _MOST_READ
            }
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError):
        raise NotFoundError(
            f"{result.path} is not a store in a ZIP.", "Download it from the list of results."
        ) from None


def read_member(reader: ResultReader, result: ResultFile, member: Member) -> bytes:
    """Read a key's bytes, and check them by the ZIP's CRC-32.

    Raises CorruptBlobError.
    """
    head = b"".join(reader.part(result, member.header, _LOCAL.size))
    signature, name, extra = _LOCAL.unpack(head) if len(head) == _LOCAL.size else (b"", 0, 0)
    start = member.header + _LOCAL.size + name + extra
    data = b"".join(reader.part(result, start, member.size)) if member.size else b""
    if signature != b"PK\x03\x04" or zlib.crc32(data) != member.crc:
        raise CorruptBlobError(result.file.blob, f"{member.crc:08x}", f"{zlib.crc32(data):08x}")
    return data


class _Bounded(BlobFile):
    """A result of which no more than a bound is read: others' ZIPs may say anything."""

    _read = 0

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        self._read += min(len(buffer), max(0, self._size - self._at))
        if self._read > _MOST_READ:
            raise OSError("the directory is too large")
        return super().readinto(buffer)
