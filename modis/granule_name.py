"""What a granule's file name says, as the data centres form it.

`PRODUCT.AYYYYDDD[.HHMM][.hHHvVV].CCC[.PRODUCTION].hdf`: the acquisition date, the time of a swath
or the tile, the collection and the production time (LP DAAC and LAADS naming conventions). Of
albedo with gaps filled, `PRODUCT_DDD_YYYY_VCCC.hdf`: the product names the kind and the band.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from modis.collection import Collection
from modis.tile import Tile

_NAME = re.compile(
    r"^(?P<product>[A-Za-z][A-Za-z0-9_]{2,})\.A(?P<year>\d{4})(?P<day>\d{3})"
    r"(?:\.(?P<hour>\d{2})(?P<minute>\d{2}))?"
    r"(?:\.h(?P<h>\d{2})v(?P<v>\d{2}))?"
    r"\.(?P<collection>\d{3})"
    r"(?:\.(?P<production>\d{13}))?(?:\.|$)"
)

_GAP_FILLED = re.compile(
    r"^(?P<product>MCD43GF_\w+?)_(?P<day>\d{3})_(?P<year>\d{4})_V(?P<collection>\d{3})\."
)

_NEAR_MAIAC = re.compile(r"(?P<standard>MCD19A\d)N")

_OTHER = re.compile(r"(?:M[OY]D|V[NJ].)(?:(?:29|30)[PE]|46A)|V[NJ].19A")
"""Sea ice on the polar EASE-Grids (NSIDC), night lights on the geographic grid (Black Marble User
Guide), MAIAC of VIIRS on sinusoidal grids of other meridians: their h and v are of other grids."""


@dataclass(frozen=True, kw_only=True)
class GranuleName:
    """The parts of a granule's file name.

    `start` is the nominal start in UTC, `tile` None for a swath and for a tile of another grid,
    whose number is `other_tile`. `production_time` is YYYYDDDHHMMSS, "" when the name has none.
    """

    product: str
    collection: Collection
    start: datetime
    tile: Tile | None
    production_time: str
    other_tile: str = ""

    @property
    def is_swath(self) -> bool:
        """True if the name is of a 5-minute swath: those bear no tile."""
        return self.tile is None and not self.other_tile


def is_near_real_time(name: str) -> bool:
    """Tell by its file name whether a granule is LANCE's, which the standard one replaces.

    Of MODIS and ocean colour the name ends in `.NRT.hdf` or `.NRT.nc`, of aerosol of VIIRS in
    `.nrt.nc`, of VIIRS otherwise the product in `_NRT`
    (MOD09GA.A2022246.h00v08.061.2022247021401.NRT.hdf, VNP09GA_NRT.A2026042.h29v13.002...,
    AERDT_L2_VIIRS_SNPP.A2021050.1218.011.nrt.nc, as programs in public repositories name what they
    fetched; LANCE's page "About"), of MAIAC in `N` (MCD19A2N.A2019140.h18v04.006.hdf).
    """
    product = name.partition(".")[0]
    return ".NRT." in name.upper() or standard_product(product) != product


def standard_product(name: str) -> str:
    """Return the product of which this one is LANCE's edition; the same name if it is of none."""
    if match := _NEAR_MAIAC.fullmatch(name):
        return match["standard"]
    return name.removesuffix("_NRT")


def near_editions(product: str, collection: str) -> tuple[str, str]:
    """Return the product and collection under which the CMR has the near real time granules.

    Of VIIRS the product is another one (VNP46A1_NRT, 2), of MODIS the collection (MYD01, 6.1NRT),
    of MAIAC both (MCD19A2N, 6.1NRT): identifiers of collections of LANCEMODIS in Earthdata's
    catalogue; that of aerosol of VIIRS (AERDT_L2_VIIRS_SNPP_NRT) at data.nasa.gov; that of MAIAC
    in public programs, its product at LAADS (c6-nrt/MCD19A2N.html).
    """
    if product.startswith("V") or "_VIIRS_" in product:
        return f"{product}_NRT", collection
    maiac = f"{product}N"
    return maiac if _NEAR_MAIAC.fullmatch(maiac) else product, f"{collection}NRT"


def other_granule(name: str, inside: str, tile: Tile | None) -> str:
    """Tell which other granule a file holds than the one it is called after; "" if it is that one.

    `inside` is the granule's name by the file's own metadata, `tile` the one its structure is of.
    What is not known (an empty name, None) differs from nothing. The production time does not
    count, nor whether it is near real time.
    """
    named, holds = parse_granule_name(name), parse_granule_name(inside)
    if named is None:
        return ""
    if holds is not None and _identity(holds) != _identity(named):
        return inside
    if tile is not None and named.tile is not None and tile != named.tile:
        return f"tile h{tile.h:02d}v{tile.v:02d}"
    return ""


def _identity(name: GranuleName) -> tuple[object, ...]:
    product = standard_product(name.product)
    return product, name.collection, name.start, name.tile, name.other_tile


def parse_granule_name(name: str) -> GranuleName | None:
    """Return the parts of a file name, or None when it is not a granule's."""
    match = _NAME.match(name) or _GAP_FILLED.match(name)
    if match is None:
        return None
    said: dict[str, str | None] = dict.fromkeys(("hour", "minute", "h", "v", "production"))
    said |= match.groupdict()
    day, hour, minute = int(match["day"]), int(said["hour"] or 0), int(said["minute"] or 0)
    year = int(match["year"])
    if not (1 <= day <= 366 and hour < 24 and minute < 60 and 1 <= year <= 9998):
        return None
    other = bool(said["h"] and _OTHER.match(match["product"]))
    return GranuleName(
        product=match["product"],
        collection=Collection(match["collection"]),
        start=datetime(year, 1, 1, hour, minute, tzinfo=UTC) + timedelta(days=day - 1),
        tile=Tile(int(said["h"]), int(said["v"] or 0)) if said["h"] and not other else None,
        other_tile=f"h{said['h']}v{said['v']}" if other else "",
        production_time=said["production"] or "",
    )
