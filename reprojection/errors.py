"""The errors of `reprojection`; each message names the problem, the value and the remedy."""

from collections.abc import Iterable
from pathlib import Path


class ReprojectionError(Exception):
    """Root of every error that `reprojection` raises on purpose."""


class UnreadableGranuleError(ReprojectionError):
    """The file is HDF but damaged: it is truncated, or its structure is inconsistent."""


class PointingFileError(UnreadableGranuleError):
    """The file says that its values lie in another file of the machine; nothing of it is read."""

    def __init__(self, name: str, part: str) -> None:
        self.name = name
        self.part = part
        super().__init__(
            f"{name}: {part} lies in another file. A file from outside has to hold its values "
            "itself: nothing of it is read; ask whoever made it, or fetch the archive's own copy"
        )

    def __reduce__(self) -> tuple[type["PointingFileError"], tuple[str, str]]:
        """Pickle by arguments, because a reader's errors cross process boundaries."""
        return type(self), (self.name, self.part)


class NotHeldError(ReprojectionError):
    """Bytes of a granule are needed that are not held; `ranges` are all that the call needs.

    Attributes:
        path: The file.
        size: Bytes of the whole granule.
        ranges: (first byte, byte behind the last one), in order, none held.
        values: True if they hold values alone, False if the granule's structure.
    """

    def __init__(
        self, path: Path, size: int, ranges: tuple[tuple[int, int], ...], values: bool = False
    ) -> None:
        self.path = path
        self.size = size
        self.ranges = ranges
        self.values = values
        count = sum(end - begin for begin, end in ranges)
        super().__init__(
            f"{path.name} is held in part, and {count:,} of its {size:,} bytes that are needed are "
            "not there: fetch them, or the whole granule"
        )

    def __reduce__(
        self,
    ) -> tuple[type["NotHeldError"], tuple[object, ...]]:
        """Pickle by arguments, because a reader's errors cross process boundaries."""
        return type(self), (self.path, self.size, self.ranges, self.values)


class BadFormatError(ReprojectionError):
    """The file is not HDF at all (an HTML page saved as .hdf, an empty file, another format)."""


class UnknownLayerError(ReprojectionError):
    """The granule does not hold the named layer; with `granules`, none of these does."""

    def __init__(self, layer: str, known: Iterable[str], granules: str = "") -> None:
        self.layer = layer
        self.known = tuple(known)
        self.granules = granules
        names = ", ".join(self.known) or "none"
        where = f" in {granules}" if granules else ""
        super().__init__(f"no layer {layer!r}{where}; the granule has: {names}")

    def __reduce__(self) -> tuple[type["UnknownLayerError"], tuple[str, tuple[str, ...], str]]:
        """Pickle by arguments, because a reader's errors cross process boundaries."""
        return type(self), (self.layer, self.known, self.granules)


class CatalogueError(ReprojectionError):
    """A file of the product catalogue breaks its schema."""


class NoGeolocationError(ReprojectionError):
    """The granule does not say where its pixels lie (for example, MOD14 needs its MOD03)."""


class GridError(ReprojectionError):
    """A grid, CRS, bounds or resolution that cannot be used."""


class ChoiceRefusedError(ReprojectionError):
    """The choice would give wrong values: blending classes, a QA rule without its layer."""


class RangeExcludesAllError(ChoiceRefusedError):
    """Every value of a layer lies outside the valid range that the file itself gives."""


class KernelsAbsentError(Exception):
    """The compiled kernels are not there, or of another version; the message says what to do.

    It is no `ReprojectionError`: those speak of granules, grids and options.
    """
