"""Collections of NASA's data products, in one spelling."""

import re
from typing import Self

_PRODUCT = r"\b([A-Z][A-Z0-9_]*\d[A-Z0-9_]*)"
_SHORT = re.compile(_PRODUCT + r"\.(\d{1,2})(?![\d.]*\d)")
_PADDED = re.compile(_PRODUCT + r"\.(0\d{2})(?!\d)")


def versioned(product: str, collection: str) -> str:
    """Name a product in a collection as its granules and data centres do: MCD15A2.005.

    This is what files, addresses and texts say. Without a collection it is the product's name.
    """
    return f"{product}.{Collection(collection).padded}" if collection else product


def versioned_text(text: str) -> str:
    """Write the collections of products in a text as granules have them: MCD15A2.5 as MCD15A2.005.

    Classes of tasks have the short spelling, and so have names that earlier versions made.
    """
    return _SHORT.sub(lambda found: versioned(found[1], found[2]), text)


def short_text(text: str) -> str:
    """Write the collections of products in a text as classes of tasks have them: MCD15A2.5."""
    return _PADDED.sub(lambda found: f"{found[1]}.{Collection(found[2])}", text)


def parted(name: str) -> tuple[str, "Collection"]:
    """Part the name of a product in a collection, in any spelling; without one it is ""."""
    product, _, collection = name.partition(".")
    return product, Collection(collection)


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
        """The collection as granule names and data centres write it: "005", "061"; "" stays ""."""
        return self.zfill(3) if self else ""

    @property
    def dotted(self) -> str:
        """The collection as people may type it: "5", "6.1"; "105" (of MOD16A2) stays "105"."""
        return f"{self[0]}.{self[1]}" if len(self) == 2 else str(self)

    @property
    def age(self) -> tuple[int, int]:
        """A sort key, oldest first: 1, 2, 5, 51, 6, 61. What is no number sorts first."""
        return (int(self[0]), int(self[1:] or 0)) if self.isdigit() else (0, 0)
