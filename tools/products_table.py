"""Make docs/products.md: every NASA MODIS and VIIRS product from L1B to L4, and whether it is read.

Products of the catalogue are listed by themselves; the others stand in `OTHERS`, with the form of
their files and why they are read from attributes alone, or not at all. Lists of products: LAADS,
LP DAAC, NSIDC, OB.DAAC and PO.DAAC; near-real-time editions (names in _NRT) are not listed again.
Run `python -m tools.products_table` after a change.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from modis.collection import Collection
from reprojection import catalogue
from tests.generated.products import layouts

PAGE = Path(__file__).parent.parent / "docs" / "products.md"

Form = Literal[
    "tile",
    "globe",
    "swath",
    "netcdf swath",
    "netcdf grid",
    "netcdf northward grid",
    "netcdf grid of groups",
    "netcdf bins",
    "hdf5 tile",
    "hdf5 globe",
    "polar grid",
    "hdf5 polar grid",
    "hdf5 rotated tile",
    "geographic tile",
    "hdf5 geographic tile",
    "",
]

REAL = (
    "MCD15A2",
    "MCD15A3H",
    "MOD04_L2",
    "MYD04_L2",
    "MOD09A1",
    "MOD09GA",
    "MOD10A1",
    "MOD10A2",
    "MOD11B2",
    "MOD13A2",
    "MOD14",
    "MYD11_L2",
    "MYD13A2",
    "MODIS_A-JPL-L2P",
    "VNP13A2",
)
"""Products of which the tests read real granules; the page says of no other that it is read."""

HEADERS = Path(__file__).parent.parent / "tests" / "headers"


def with_headers() -> frozenset[str]:
    """Name the products of whose real granules the tests have the header, and not the values."""
    every = {path.stem: json.loads(path.read_text("utf-8")) for path in HEADERS.glob("*.json")}
    # A file of ocean colour names no product: its header's name does, but that of SeaWiFS, with a
    # point in it. That of an albedo with gaps filled bears the kind and the band, too.
    names = (one["product"] or stem for stem, one in every.items())
    products = frozenset(re.sub(r"^(MCD43GF)_.*", r"\1", name) for name in names)
    return frozenset(one for one in products if "." not in one) - {*REAL}


_SHOWN = {
    "netcdf grid": "; real files of SeaWiFS in this form",
    "netcdf bins": "; real files of SeaWiFS in this form",
}
"""Forms that real files of other instruments have shown."""


class Other(NamedTuple):
    """Products outside the catalogue; `why` they are not read, "" if they are."""

    names: str
    title: str
    form: Form
    why: str = ""


_MODIS_OCEAN = ("MODISA", "MODIST")
_VIIRS_OCEAN = ("VIIRSN", "VIIRSJ1", "VIIRSJ2")
_SUITES = ["CHL", "IOP", "KD", "PAR", "PIC", "POC", "RRS", "SST", "NSST"]
"""Suites of ocean colour, level 3, of every sensor; MODIS has FLH and SST4, VIIRS SST3 besides."""


def _ocean(level: str, more_modis: str, more_viirs: str, suites: Sequence[str] = ()) -> str:
    sensors = [(one, more_modis) for one in _MODIS_OCEAN] + [
        (one, more_viirs) for one in _VIIRS_OCEAN
    ]
    return " ".join(
        f"{sensor}_{level}_{suite}"
        for sensor, more in sensors
        for suite in (*suites, *more.split())
    )


def _viirs(*names: str) -> str:
    """Spell VIIRS names, given from their number on, for the three satellites."""
    return " ".join(f"{satellite}{name}" for satellite in ("VNP", "VJ1", "VJ2") for name in names)


_STATIONS = (
    "cut-outs around stations, each in data sets of its own; the swaths they are cut from are read"
)

OTHERS = (
    Other("MOD02SSH MYD02SSH", "L1B subsampled, 5 km", "swath"),
    Other(
        "MOD02OBC MYD02OBC", "L1B of the calibrators on board", "", "readings of no place on Earth"
    ),
    Other("MOD09CMA MYD09CMA", "aerosol for surface reflectance, 0.05 degrees", "globe"),
    Other("MODOCGA MYDOCGA", "ocean bands, daily, 1 km", "tile"),
    Other("MODTBGA MYDTBGA", "thermal bands, daily, 1 km", "tile"),
    Other(
        "MOD09A1G_EVI MOD09A1G_NDVI MOD09Q1G_EVI MOD09Q1G_NDVI",
        "vegetation index, smoothed, 8 days (North America)",
        "tile",
    ),
    Other(
        "MOD09A1P_EVI MOD09A1P_NDVI MOD09Q1P_EVI MOD09Q1P_NDVI",
        "phenology, yearly (North America)",
        "tile",
    ),
    Other("MOD15A2GFS", "leaf area index and FPAR, smoothed, 8 days (North America)", "tile"),
    Other("MOD15A2PHN", "phenology of leaf area and FPAR, yearly (North America)", "tile"),
    Other("MODATML2 MYDATML2", "atmosphere joint product", "swath"),
    Other("MODARNSS MYDARNSS", "atmosphere around AERONET's stations", "", _STATIONS),
    Other("MODBMSS MYDBMSS", "atmosphere around BELMANIP's stations", "", _STATIONS),
    Other("MODFNSS MYDFNSS", "atmosphere around FLUXNET's stations", "", _STATIONS),
    Other(
        "MODCSR_8 MYDCSR_8 MODCSR_B MYDCSR_B",
        "clear sky radiance",
        "",
        "equal-area rows and zonal bands without a description of their layout at hand",
    ),
    Other("MCD06COSP_D3_MODIS MCD06COSP_M3_MODIS", "clouds, 1 degree", "netcdf grid of groups"),
    Other("MOD10C1F MYD10C1F", "snow with cloud gaps filled, 0.05 degrees", "globe"),
    Other(
        "MODGRNLD",
        "ice temperature and albedo of Greenland",
        "",
        "netCDF-4 on a polar stereographic grid, which is not tried",
    ),
    Other("MOD14CM1 MYD14CM1", "fire, monthly, 0.5 degrees", "globe"),
    Other("MCD14ML MCD14DL VNP14IMGML", "fire locations", "", "lists of points in text files"),
    Other("MOD17A3H MYD17A3H", "net primary production, yearly, 500 m", "tile"),
    Other(
        "MCD19A1CMGL MCD19A1CMGO MCD19A2CMG MCD19A3CMG",
        "MAIAC on 0.05 degrees",
        "globe",
    ),
    Other(
        "MOD28C2 MYD28C2 MOD28C3 MYD28C3 VNP28C2 VNP28C3 VJ128C2 VJ128C3",
        "reservoirs",
        "",
        "tables of reservoirs, no raster",
    ),
    Other("MOD29E1D MYD29E1D", "sea ice, daily, 4 km polar grids", "polar grid"),
    Other("MCD43B1 MCD43B2 MCD43B3 MCD43B4", "BRDF, albedo and NBAR (collection 5), 1 km", "tile"),
    Other("MCD43C2", "BRDF snow-free parameters, 0.05 degrees", "globe"),
    Other(
        "MCD43D01 MCD43D31 MCD43D40 MCD43D51 MCD43D62",
        "BRDF and albedo, 30 arc seconds (five of D01 to D68, which are alike)",
        "globe",
    ),
    Other("MCD43GF", "albedo with gaps filled, 30 arc seconds", "globe"),
    Other("MCD64CMQ", "burned area, monthly, 0.25 degrees", "globe"),
    Other("MCDWD_L3", "flood, daily, 250 m", "geographic tile"),
    Other("VCDWD_L3", "flood (VIIRS), daily, 375 m", "hdf5 geographic tile"),
    Other(_viirs("09CMG"), "surface reflectance (VIIRS), 0.05 degrees", "hdf5 globe"),
    Other(_viirs("10"), "snow cover (VIIRS), 6 minutes", "netcdf swath"),
    Other(_viirs("10C1"), "snow cover (VIIRS), 0.05 degrees", "hdf5 globe"),
    Other(_viirs("13C1", "13C2"), "vegetation indices (VIIRS), 0.05 degrees", "hdf5 globe"),
    Other(
        "VNP16A2 VNP16A3GF VJ116A3GF VJ216A2 VJ216A2GF VJ216A3GF",
        "evapotranspiration (VIIRS), 8 days and yearly, 500 m",
        "hdf5 tile",
    ),
    Other(
        _viirs("17A3GF"),
        "primary production (VIIRS), yearly, 500 m",
        "hdf5 tile",
    ),
    Other("VNP18A1 VNP18A2", "downward radiation (VIIRS), daily every 3 hours, 1 km", "hdf5 tile"),
    Other(
        _viirs("19A1"),
        "MAIAC surface reflectance (VIIRS), every orbit of a day",
        "hdf5 rotated tile",
    ),
    Other("VCD19A2CMG", "MAIAC optical depth (VIIRS), 0.05 degrees", "hdf5 globe"),
    Other(
        _viirs("21C1", "21C2", "21C3"),
        "land surface temperature (VIIRS), 0.05 degrees",
        "hdf5 globe",
    ),
    Other("VNP22C2", "phenology (VIIRS), 0.05 degrees", "hdf5 globe"),
    Other(_viirs("29"), "sea ice (VIIRS), 6 minutes", "netcdf swath"),
    Other(_viirs("29P1D"), "sea ice (VIIRS), daily, polar grids", "hdf5 polar grid"),
    Other(_viirs("30"), "ice surface temperature (VIIRS), 6 minutes", "netcdf swath"),
    Other(
        _viirs("30P1D", "30P1N"),
        "ice surface temperature (VIIRS), daily, polar grids",
        "hdf5 polar grid",
    ),
    Other(_viirs("43IA2", "43MA2"), "BRDF quality (VIIRS)", "hdf5 tile"),
    Other(
        _viirs("43DNBA1", "43DNBA2", "43DNBA3", "43DNBA4"),
        "BRDF, albedo and NBAR of the day/night band (VIIRS), 1 km",
        "hdf5 tile",
    ),
    Other(
        _viirs("43C1", "43C2", "43C3", "43C4"),
        "BRDF and albedo (VIIRS), 0.05 degrees",
        "hdf5 globe",
    ),
    Other(
        "VNP43D01 VNP43D31 VNP43D51 VNP43D62",
        "BRDF and albedo (VIIRS), 30 arc seconds (four of D01 to D68, which are alike)",
        "hdf5 globe",
    ),
    Other(
        "AERDB_L2_VIIRS_SNPP AERDB_L2_VIIRS_NOAA20",
        "aerosol (VIIRS), 6 minutes",
        "netcdf swath",
    ),
    Other(
        "CLDMSK_L2_VIIRS_SNPP CLDPROP_L2_VIIRS_SNPP CLDMSK_L2_VIIRS_NOAA20 CLDPROP_L2_VIIRS_NOAA20 "
        "CLDMSK_L2_VIIRS_NOAA21 CLDCR_L2_VIIRS_SNPP",
        "clouds (VIIRS), 6 minutes",
        "netcdf swath",
    ),
    Other(
        "CLDMSK_L2_MODIS_Aqua CLDPROP_L2_MODIS_Aqua",
        "clouds (continuity), 5 minutes",
        "netcdf swath",
    ),
    Other("WATVP_L2_VIIRS_SNPP", "water vapour (VIIRS), 6 minutes", "netcdf swath"),
    Other("WATVP_D3_VIIRS_SNPP WATVP_M3_VIIRS_SNPP", "water vapour, 0.5 degrees", "netcdf grid"),
    Other(
        "FSNRAD_L2_VIIRS_CRIS_SNPP FSNRAD_L2_VIIRS_CRIS_NOAA20",
        "radiances of VIIRS and CrIS together, 6 minutes",
        "netcdf swath",
    ),
    Other(
        "AERDB_D3_VIIRS_SNPP AERDB_M3_VIIRS_SNPP AERDB_D3_VIIRS_NOAA20 AERDB_M3_VIIRS_NOAA20 "
        "AERDT_D3_VIIRS_SNPP AERDT_M3_VIIRS_SNPP AERDT_D3_VIIRS_NOAA20 AERDT_M3_VIIRS_NOAA20",
        "aerosol (VIIRS), 1 degree",
        "netcdf northward grid",
    ),
    Other(
        " ".join(
            f"{name}_{period}3_{sensor}"
            for name in ("CLDPROP", "CLDPROPCOSP")
            for sensor in ("VIIRS_SNPP", "VIIRS_NOAA20", "MODIS_Aqua")
            for period in "DM"
        ),
        "clouds (continuity), 1 degree",
        "netcdf grid of groups",
    ),
    Other(
        _ocean("L2", "OC IOP SST SST4", "OC IOP SST SST3"),
        "ocean colour and sea surface temperature, 5 or 6 minutes",
        "netcdf swath",
    ),
    Other(
        _ocean("L3m", "FLH SST4", "SST3", _SUITES),
        "ocean colour and sea surface temperature, mapped",
        "netcdf grid",
    ),
    Other("MODISA_L4m_PP", "ocean productivity, mapped", "netcdf grid"),
    Other(
        _ocean("L3b", "FLH SST4", "SST3", _SUITES),
        "ocean colour and sea surface temperature, in bins",
        "netcdf bins",
    ),
)


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield name, title, state, evidence and source of each product; the catalogue's first."""
    headers = with_headers()
    newest: dict[str, tuple[tuple[int, int], catalogue.Product]] = {}
    for product in catalogue.products():
        age = max(Collection(one).age for one in product.collections)
        if product.name not in newest or newest[product.name][0] < age:
            newest[product.name] = age, product
    for _, product in newest.values():
        made = "generated granule of its layout" if product.name in layouts() else made_of(product)
        real = product.name in REAL
        by_header = product.name in headers
        state = "read" if real else "by header" if by_header else "by specification"
        evidence = f"real granule, {made}" if real else made
        evidence = f"header of a real granule, {made}" if by_header else evidence
        yield product.name, product.title, f"{state}, in the catalogue", evidence, product.source
    for other in OTHERS:
        for name in (one for one in other.names.split() if one not in newest):
            if other.why:
                yield name, other.title, f"not read: {other.why}", "", ""
            else:
                by_header = name in headers
                evidence = "header of a real granule, " if by_header else ""
                evidence += f"generated {other.form}{_SHOWN.get(other.form, '')}"
                state = "by header" if by_header else "by specification"
                yield name, other.title, f"{state}, from attributes", evidence, ""


def made_of(product: catalogue.Product) -> str:
    """Say what is generated of a product without a layout: that of others of its form, if any."""
    form = next((one.form for one in OTHERS if product.name in one.names.split()), "")
    return f"generated {form}{_SHOWN.get(form, '')}" if form else "generated granule"


def shares() -> tuple[float, float, float]:
    """Return the shares of products that are read, by a real header, and by specification."""
    states = [state for _, _, state, *_ in rows()]
    read, header, specified = (
        sum(state.startswith(word) for state in states)
        for word in ("read", "by header", "by specification")
    )
    return read / len(states), header / len(states), specified / len(states)


_HEAD = """# Products

Every NASA MODIS and VIIRS product from level 1B to level 4, and what is known of how Swathmill
reads it. Of {count} products, {real} ({read:.1%}) are **read**: real granules of them have shown
it, compared with independent readers. {headers} ({header:.1%}) are read **by header**: the
structure and attributes of a real granule are known (`tests/headers`, with their sources), and a
granule with these, and values that are made up, is read as the header says
(`tests/reprojection/catalogue/test_headers.py`). {specified:.1%} are read **by specification**:
files generated in the form that user guides and file specifications describe
(`tests/generated/products.py`) are read; a real file may differ. If one does,
`swathmill inspect` says what it does not understand; please report it. The rest is not read, with
the reason.

A product of the catalogue has its codes, bits and conventions; one from attributes has what its
file says. `tests/worker/test_every_layer.py` requests every layer of every product of the
catalogue, and `tests/reprojection/test_products_page.py` reads each of the others. There are no
real granules of global grids (CMG), MAIAC, level 1B, VIIRS swaths or ocean colour of MODIS and
VIIRS. Of sea surface temperature (GHRSST L2P) the real granule is a cut-out of two layers. A
product is described by its newest collection. Near-real-time editions (names in `_NRT`)
are not counted again. `python -m tools.products_table` makes this page.

| product | is | state | evidence | described by |
|---|---|---|---|---|
"""


_VIIRS = re.compile(r"V(?:NP|J[12])(\d\d)|(VIIRS|AERD|XAERDT|CLD|WATVP|FSNRAD|VCDWD)")
_SUBJECTS = {
    "02": "level 1B, radiances",
    "03": "level 1B, geolocation",
    "09": "surface reflectance",
    "10": "snow",
    "13": "vegetation indices",
    "14": "fire",
    "15": "leaf area",
    "16": "evapotranspiration",
    "17": "primary production",
    "18": "radiation at the ground",
    "19": "MAIAC, rotated tiles",
    "21": "land surface temperature",
    "22": "phenology",
    "28": "reservoirs",
    "29": "sea ice",
    "30": "ice surface temperature",
    "43": "BRDF, albedo, NBAR",
    "46": "Black Marble, night lights",
    "64": "burned area",
    "L2P": "sea surface temperature (GHRSST)",
    "AER": "aerosol (Deep Blue, Dark Target)",
    "CLD": "clouds (continuity)",
    "WAT": "water vapour",
    "FSN": "radiances with CrIS",
    "OC": "ocean colour and temperature",
    "FLOOD": "flood",
}
_CHECKED = {
    "13": "VNP13A2, a tile: 16 layers, 23,040,000 values",
    "46": "VNP46A2 of collection 1, a tile: 7 layers, 40,320,000 values (once, by hand)",
    "L2P": "VIIRS_NPP-NAVO-L2P, a cut-out: 16 layers, 16,220,160 values (once, by hand)",
}
"""Values of real granules of VIIRS that other libraries have read alike, by family."""


def viirs() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield family, products, states, layers of the catalogue and values checked, for VIIRS."""
    layers = {one.name: one.layer_names for one in catalogue.products()}
    families: dict[str, list[tuple[str, str]]] = {}
    for name, _, state, *_ in rows():
        found = _VIIRS.match(name)
        if found is not None and "MODIS" not in name:
            families.setdefault(_family(name, found), []).append((name, state.split(",")[0]))
    for family, found_in in sorted(families.items(), key=lambda one: list(_SUBJECTS).index(one[0])):
        states = [state.split(":")[0] for _, state in found_in]
        counts = ", ".join(f"{state} {states.count(state)}" for state in sorted({*states}))
        known = {layer for name, _ in found_in for layer in layers.get(name, ())}
        yield (
            f"{family}: {_SUBJECTS[family]}" if family.isdigit() else _SUBJECTS[family],
            str(len(found_in)),
            counts,
            str(len(known) or "as files have them"),
            _CHECKED.get(family, ""),
        )


def _family(name: str, found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    if "L2P" in name:
        return "L2P"
    if re.match(r"VIIRS[NJ]", name):
        return "OC"
    return "FLOOD" if name.startswith("VCDWD") else name.removeprefix("X")[:3]


_VIIRS_HEAD = """
## VIIRS by family

What the evidence of each family is: how many of its products are read, read by header or by
specification, and not read. The sources of an entry stand above; each of VIIRS names two, or says
that it has one. Values of real granules were compared with h5py and netCDF4, stored values, masks
and units: 0 differences (`tests/reprojection/read/test_real_values.py`; of MODIS 951,058,500 values
of 1,326 layers in 59 files with pyhdf: 0). Swaths are held to a kd-tree and rotated tiles to pyproj
on generated scans and tiles (`tests/reprojection/test_viirs_swaths.py`, `test_rotated_grids.py`).

| family | products | evidence | layers in the catalogue | values checked |
|---|--:|---|--:|---|
"""


def page() -> str:
    """Return the page as Markdown."""
    every = [*rows()]
    table = "".join(f"| {' | '.join(row)} |\n" for row in every)
    read, header, specified = shares()
    head = _HEAD.format(
        count=len(every),
        real=len(REAL),
        read=read,
        headers=sum(state.startswith("by header") for _, _, state, *_ in every),
        header=header,
        specified=specified,
    )
    families = "".join(f"| {' | '.join(row)} |\n" for row in viirs())
    return head + table + _VIIRS_HEAD + families


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
