"""The checksums that archives publish: MD5, the SHA family and POSIX `cksum` (ECS `CKSUM`)."""

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_CHUNK = 1 << 18
_POSIX = ("cksum", "posix")  # ECS says CKSUM, UMM-G (its enumeration of algorithms) POSIX
_HASHES = ("md5", "sha1", "sha256", "sha384", "sha512")

# POSIX cksum uses the common CRC-32 polynomial with the opposite bit order, so zlib's fast code
# computes it from bytes with reversed bits (IEEE Std 1003.1, utility cksum).
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class Digest(Protocol):
    """A checksum in progress."""

    def update(self, data: bytes, /) -> None:
        """Add the next bytes."""

    def hexdigest(self) -> str:
        """Return the checksum in the notation of archives (decimal for cksum)."""


class Cksum:
    """POSIX cksum of a byte stream."""

    def __init__(self) -> None:
        # zlib inverts the register at the start and at the end; this value makes it start at zero.
        self._crc = 0xFFFFFFFF
        self._length = 0

    def update(self, data: bytes, /) -> None:
        """Add the next bytes."""
        self._crc = zlib.crc32(data.translate(_REVERSED), self._crc)
        self._length += len(data)

    def hexdigest(self) -> str:
        """Return the decimal number that `cksum` prints."""
        octets = (self._length.bit_length() + 7) // 8
        tail = self._length.to_bytes(octets, "little").translate(_REVERSED)
        register = zlib.crc32(tail, self._crc) ^ 0xFFFFFFFF
        return str(int(f"{register:032b}"[::-1], 2) ^ 0xFFFFFFFF)


def digest(kind: str) -> Digest | None:
    """Start a checksum of a named kind; return None for an unknown kind."""
    word = kind.lower().replace("-", "")
    if word in _POSIX:
        return Cksum()
    if word in _HASHES:
        return hashlib.new(word, usedforsecurity=False)
    return None


def same_checksum(found: str, published: str) -> bool:
    """Tell whether two checksums are equal: hexadecimal in any case, decimal with leading zeros."""
    return found.lower().lstrip("0") == published.strip().lower().lstrip("0")


def read_chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, so few at a time that they stay in the processor's cache."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
