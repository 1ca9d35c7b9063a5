"""How a request names a user's raster: `raster:NAME`, `raster:OWNER/NAME@VERSION` or the like.

The part behind `raster:` is what names a package (`tasks/packages/package_reference.py`). A
reference that has been looked up is exact: it means one version, which is known by its digest.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from archives.model import GranuleRecord
from modis.collection import Collection
from reprojection.catalogue.user_raster import PREFIX, UserRaster
from tasks.packages.package_reference import PATTERN, PackageReference

REFERENCE = rf"{PREFIX}{PATTERN.removeprefix('^')}"
SOURCE = "raster"
"""What the specification of a collection says is its source: the store's own blob."""
_IS_REFERENCE = re.compile(REFERENCE)


def is_raster(product: str) -> bool:
    """Tell whether a product's name in a request is a reference to a raster."""
    return product.startswith(PREFIX)


def reference_of(product: str) -> PackageReference:
    """Parse the name of a raster in a request; raise ValueError for none."""
    if not _IS_REFERENCE.fullmatch(product):
        raise ValueError(
            f"{product!r} names no raster; write raster:NAME, raster:NAME@VERSION or "
            "raster:OWNER/NAME@VERSION"
        )
    return PackageReference.parse(product.removeprefix(PREFIX))


def blob_of(digest: str) -> str:
    """Return the name of the blob of a raster's file."""
    return f"{digest}.h5"


@dataclass(frozen=True, kw_only=True)
class ExactRaster:
    """One version of a raster: what it is, and the SHA-256 and bytes of its file."""

    raster: UserRaster
    digest: str
    size: int
    owner: str
    version: str

    @property
    def collection(self) -> str:
        """The text in place of a collection; it tells versions apart, whoever owns them."""
        return f"sha256-{self.digest[:16]}"

    @property
    def granule(self) -> str:
        """The name of its file among granules."""
        return f"{self.raster.name}-{self.digest}.h5"

    def record(self, day: date) -> GranuleRecord:
        """Return the record of its file as a granule of one of its dates."""
        start = datetime.combine(day, time(), UTC)
        return GranuleRecord(
            name=self.granule,
            product=self.raster.product_name,
            collection=Collection(self.collection),
            start=start,
            end=start + timedelta(days=1, seconds=-1),
            tile=None,
            boundary=self.raster.outline,
            production_time="",
            size=self.size,
            checksum=self.digest,
            checksum_type="sha256",
            url="",
            day_night="",
            source=SOURCE,
        )
