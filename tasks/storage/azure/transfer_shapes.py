"""How files are cut into blocks on their way to and from blob storage."""

from dataclasses import dataclass, replace

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How files are cut into blocks.

    A file is sent whole up to `single` bytes, then in about `parts` blocks of between `least` and
    `most` bytes, `parallel` of them at once.
    """

    single: int
    parts: int
    least: int
    most: int
    parallel: int

    def block(self, size: int) -> int:
        """Return the block size for a file of `size` bytes, in whole MiB."""
        wanted = -(-size // self.parts)
        return min(max(self.least, -(-wanted // MIB) * MIB), self.most)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The settings that say how files are cut: bytes of a block, and calls under way at once.

    `block` 0 leaves the size of blocks to that of the file.
    """

    block: int = 0
    at_once: int = 4

    def __str__(self) -> str:
        return f"{self.block // MIB} MiB x {self.at_once}"

    def shape(self, base: Shape) -> Shape:
        """Return a shape with these settings."""
        if not self.block:
            return replace(base, parallel=self.at_once)
        return replace(
            base, single=self.block, least=self.block, most=self.block, parallel=self.at_once
        )


BY_SIZE = Cut()
UP = Shape(single=8 * MIB, parts=8, least=4 * MIB, most=32 * MIB, parallel=4)
DOWN = Shape(single=32 * MIB, parts=16, least=16 * MIB, most=32 * MIB, parallel=4)
