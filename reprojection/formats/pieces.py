"""Where a data set's bytes lie in its file, in pieces that others can read by themselves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Codec = Mapping[str, object]


class NotInPiecesError(Exception):
    """A data set's bytes are no pieces that others could read; says why."""


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """The chunks of a data set: their shape, byte order, and where each lies.

    `places` has offset and length of each chunk, by its position in units of chunks; one that is
    not there was never written. `codecs` are numcodecs' names and options of what made the bytes,
    in the order in which it was applied.
    """

    chunk: tuple[int, ...]
    byte_order: Literal["<", ">"]
    places: Mapping[tuple[int, ...], tuple[int, int]]
    codecs: tuple[Codec, ...]

    def across(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of chunks along each axis of a data set of this shape."""
        return tuple(-(-size // part) for size, part in zip(shape, self.chunk, strict=True))


INFLATE: Codec = {"id": "zlib", "level": 6}
