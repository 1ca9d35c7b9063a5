"""Checksums archives publish: MD5, the SHA family and POSIX `cksum` (the ECS `CKSUM`)."""

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_CHUNK = 1 << 20
_POSIX = ("cksum", "posix")  # ECS says CKSUM, UMM-G (its enumeration of algorithms) POSIX
_HASHES = ("md5", "sha1", "sha256", "sha384", "sha512")

# POSIX cksum runs the common CRC-32 polynomial over bits in the other order, so reversing the bits
# of every byte lets zlib's fast code do the work (IEEE Std 1003.1, utility cksum).
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class Digest(Protocol):
    """A checksum under way."""

    def update(self, data: bytes, /) -> None:
        """Take in the next bytes."""

    def hexdigest(self) -> str:
        """The checksum, spelt as archives spell it (decimal for cksum)."""


class Cksum:
    """POSIX cksum of a byte stream."""

    def __init__(self) -> None:
        # zlib inverts the register at both ends; this start makes it zero inside.
        self._crc = 0xFFFFFFFF
        self._length = 0

    def update(self, data: bytes, /) -> None:
        """Take in the next bytes."""
        self._crc = zlib.crc32(data.translate(_REVERSED), self._crc)
        self._length += len(data)

    def hexdigest(self) -> str:
        """The decimal number that `cksum` prints."""
        octets = (self._length.bit_length() + 7) // 8
        tail = self._length.to_bytes(octets, "little").translate(_REVERSED)
        register = zlib.crc32(tail, self._crc) ^ 0xFFFFFFFF
        return str(int(f"{register:032b}"[::-1], 2) ^ 0xFFFFFFFF)


def digest(kind: str) -> Digest | None:
    """A fresh checksum of a named kind, or None for a kind we do not know."""
    word = kind.lower().replace("-", "")
    if word in _POSIX:
        return Cksum()
    if word in _HASHES:
        return hashlib.new(word, usedforsecurity=False)
    return None


def same_checksum(found: str, published: str) -> bool:
    """Whether two checksums are one: hexadecimal in any case, decimal with leading zeros."""
    return found.lower().lstrip("0") == published.strip().lower().lstrip("0")


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a megabyte at a time."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
