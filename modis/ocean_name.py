"""What the file names of sea surface temperature and ocean colour say.

Unlike those of LAADS, LP DAAC and NSIDC (`modis.granule_name`) they do not name the product with
its collection. Sources: GHRSST Data Specification 2.0 revision 5, section 4 (GDS filenames) for
L2P; for ocean colour the names that OB.DAAC gives its files since 2020, and the older ones of maps
and bins.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_L2P = re.compile(
    r"(?P<granule>(?P<time>\d{14})-[^-]+-L2P_GHRSST-[^-]+-[^-]+(?:-(?P<segregator>[^-]+))?-v\d+\.\d+)"
    r"-fv\d+\.\d+\.nc"
)
_HALVES = {"D": "day", "N": "night"}
"""What the segregator of JPL's files of MODIS and VIIRS means; that of NOAA's is a version."""

_OCEAN = re.compile(
    r"(?P<granule>[A-Z0-9]+_[A-Z0-9]+\.(?P<day>\d{8})(?P<time>T\d{6})?(?:_\d{8})?"
    r"\.L(?:2|3[bm]\.(?P<period>[A-Z0-9]+))\..+?)(?:\.NRT)?\.nc"
)
_OLD_MAP = re.compile(
    r"(?P<granule>[A-Z](?P<day>\d{7})(?:\d{7})?\.L3[bm]_(?P<period>[A-Z0-9]+)_.+?)(?:\.nc)?"
)

_DAILY_MAP = re.compile(
    r"(?P<mission>[A-Z0-9]+_[A-Z]+)\.\d{8}\.L3m\.DAY\.(?P<suite>[A-Z0-9]+)\.[^.]+\.4km\.nc"
)
_MISSIONS = {
    "AQUA_MODIS": "MODISA",
    "TERRA_MODIS": "MODIST",
    "SNPP_VIIRS": "VIIRSN",
    "JPSS1_VIIRS": "VIIRSJ1",
    "JPSS2_VIIRS": "VIIRSJ2",
}

_SHORT_NAME = re.compile(r"(?P<product>\w+-\w+-L2P)-v(?P<version>\d+(?:\.\d+)?)")


@dataclass(frozen=True, kw_only=True)
class OceanName:
    """The parts of a file name.

    `granule` is what all editions of one granule share. `start` is the indicative time of a swath,
    the first day of a level 3 file, in UTC. `day_night` is `day`, `night` or "", `period` that of a
    level 3 file: `DAY`, `8D`, `MO`.
    """

    granule: str
    start: datetime
    day_night: str = ""
    period: str = ""


def parse_ocean_name(name: str) -> OceanName | None:
    """Return the parts of a file name, or None when it is not of these forms."""
    if (match := _L2P.fullmatch(name)) is not None:
        start = _moment(match["time"], "%Y%m%d%H%M%S")
        half = _HALVES.get(match["segregator"] or "", "")
        period = ""
    elif (match := _OCEAN.fullmatch(name)) is not None:
        start = _moment(match["day"] + (match["time"] or "T000000"), "%Y%m%dT%H%M%S")
        half, period = "", match["period"] or ""
    elif (match := _OLD_MAP.fullmatch(name)) is not None:
        start = _moment(match["day"], "%Y%j")
        half, period = "", match["period"]
    else:
        return None
    if start is None:
        return None
    return OceanName(granule=match["granule"], start=start, day_night=half, period=period)


def is_l2p(product: str) -> bool:
    """Tell whether a product is one of GHRSST's: each collection has a short name of its own."""
    return product.endswith("-L2P")


def product_of(short_name: str) -> tuple[str, str] | None:
    """Split a GHRSST short name, `MODIS_A-JPL-L2P-v2019.0`, into product and version, or None.

    It is the `id` of a file and the short name of a collection at PO.DAAC.
    """
    match = _SHORT_NAME.fullmatch(short_name)
    return (match["product"], match["version"]) if match else None


def product_of_map(name: str) -> str:
    """Return the product of a daily map in 4 km, `MODISA_L3m_CHL`; "" for any other file.

    Maps of other periods and pixels are in the same collections, and are none of a date.
    """
    match = _DAILY_MAP.fullmatch(name)
    mission = _MISSIONS.get(match["mission"]) if match else None
    return f"{mission}_L3m_{match['suite']}" if match and mission else ""


def _moment(text: str, written: str) -> datetime | None:
    try:
        return datetime.strptime(text, written).replace(tzinfo=UTC)
    except ValueError:
        return None
