"""Collections of NASA's data products, in one spelling."""

from typing import Self


class Collection(str):
    """A collection in one spelling: "5" for 5, 005 and 5.0; "61" for 61, 061 and 6.1.

    The spelling has no point and no leading zeros. Text that is no number keeps its letters. A
    collection is a `str`, so that it compares with, and is stored as, the text it is.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Bring any spelling of a collection into the one spelling."""
        digits = text.strip().removesuffix(".0").replace(".", "")
        return super().__new__(cls, digits.lstrip("0") or digits[-1:])

    @property
    def padded(self) -> str:
        """The collection as granule names and data centres write it: "005", "061"."""
        return self.zfill(3)

    @property
    def dotted(self) -> str:
        """The collection as people write it: "5", "6.1"; "105" (of MOD16A2) stays "105"."""
        return f"{self[0]}.{self[1]}" if len(self) == 2 else str(self)

    @property
    def age(self) -> tuple[int, int]:
        """A sort key, oldest first: 1, 2, 5, 51, 6, 61. What is no number sorts first."""
        return (int(self[0]), int(self[1:] or 0)) if self.isdigit() else (0, 0)
