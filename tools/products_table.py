"""Make docs/products.md: every NASA MODIS and VIIRS product from L1B to L4, and whether it is read.

Products of the catalogue are listed by themselves; the others stand in `OTHERS`, with the form of
their files and why they are read from attributes alone, or not at all. Lists of products: LAADS,
LP DAAC, NSIDC and OB.DAAC. Run `python -m tools.products_table` after a change of the catalogue.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from reprojection import catalogue
from reprojection.sample.products import layouts

PAGE = Path(__file__).parent.parent / "docs" / "products.md"

Form = Literal[
    "tile",
    "globe",
    "swath",
    "netcdf swath",
    "netcdf grid",
    "netcdf northward grid",
    "netcdf grid of groups",
    "hdf5 tile",
    "hdf5 globe",
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
)
"""Products of which the tests read real granules."""


class Other(NamedTuple):
    """Products outside the catalogue; `why` they are not read, "" if they are."""

    names: str
    title: str
    form: Form
    why: str = ""


OTHERS = (
    Other("MOD02SSH MYD02SSH", "L1B subsampled, 5 km", "swath"),
    Other("MOD09 MYD09", "surface reflectance, 5 minutes", "swath"),
    Other("MODOCGA MYDOCGA", "ocean bands, daily, 1 km", "tile"),
    Other("MODTBGA MYDTBGA", "thermal bands, daily, 1 km", "tile"),
    Other("MODATML2 MYDATML2", "atmosphere joint product", "swath"),
    Other("MOD14CM1 MYD14CM1", "fire, monthly, 0.5 degrees", "globe"),
    Other("MCD14ML MCD14DL", "fire locations", "", "lists of points in text files"),
    Other("MCD19A2CMG", "MAIAC optical depth, daily, 0.05 degrees", "globe"),
    Other("MOD28C2 MYD28C2 MOD28C3 MYD28C3", "reservoirs", "", "tables of reservoirs, no raster"),
    Other("MOD29E1D MYD29E1D", "sea ice, daily, 4 km polar grids", "tile"),
    Other("MCD43C2", "BRDF snow-free parameters, 0.05 degrees", "globe"),
    Other(
        "MCD43D01 MCD43D31 MCD43D51 MCD43D62",
        "BRDF and albedo, 30 arc seconds (D01 to D68)",
        "globe",
    ),
    Other("MCD43GF", "albedo with gaps filled, 30 arc seconds", "globe"),
    Other("MCD64CMQ", "burned area, monthly, 0.25 degrees", "globe"),
    Other(
        "VNP02DNB VJ102DNB",
        "day/night band, L1B",
        "",
        "its geolocation VNP03DNB names its fields otherwise; not tried",
    ),
    Other("VNP09 VJ109", "surface reflectance (VIIRS), 6 minutes", "netcdf swath"),
    Other("VNP09CMG VJ109CMG", "surface reflectance (VIIRS), 0.05 degrees", "hdf5 globe"),
    Other("VNP10 VJ110", "snow cover (VIIRS), 6 minutes", "netcdf swath"),
    Other("VNP10C1 VJ110C1", "snow cover (VIIRS), 0.05 degrees", "hdf5 globe"),
    Other(
        "VNP13C1 VJ113C1 VNP13C2 VJ113C2", "vegetation indices (VIIRS), 0.05 degrees", "hdf5 globe"
    ),
    Other("VNP21 VJ121", "land surface temperature (VIIRS), 6 minutes", "netcdf swath"),
    Other(
        "VNP21C1 VJ121C1 VNP21C2 VJ121C2",
        "land surface temperature (VIIRS), 0.05 degrees",
        "hdf5 globe",
    ),
    Other("VNP22C2", "phenology (VIIRS), 0.05 degrees", "hdf5 globe"),
    Other("VNP29 VJ129", "sea ice (VIIRS), 6 minutes", "netcdf swath"),
    Other("VNP30 VJ130", "ice surface temperature (VIIRS), 6 minutes", "netcdf swath"),
    Other("VNP43IA2 VJ143IA2 VNP43MA2 VJ143MA2", "BRDF quality (VIIRS)", "hdf5 tile"),
    Other("VNP43C1 VNP43C2 VNP43C3 VNP43C4", "BRDF and albedo (VIIRS), 0.05 degrees", "hdf5 globe"),
    Other("VNP46A3 VNP46A4 VJ146A3 VJ146A4", "night lights, monthly and yearly", "hdf5 tile"),
    Other(
        "AERDB_L2_VIIRS_SNPP AERDT_L2_VIIRS_SNPP AERDB_L2_VIIRS_NOAA20 AERDT_L2_VIIRS_NOAA20",
        "aerosol (VIIRS), 6 minutes",
        "netcdf swath",
    ),
    Other(
        "CLDMSK_L2_VIIRS_SNPP CLDPROP_L2_VIIRS_SNPP CLDMSK_L2_VIIRS_NOAA20 CLDPROP_L2_VIIRS_NOAA20",
        "clouds (VIIRS), 6 minutes",
        "netcdf swath",
    ),
    Other(
        "CLDMSK_L2_MODIS_Aqua CLDPROP_L2_MODIS_Aqua",
        "clouds (continuity), 5 minutes",
        "netcdf swath",
    ),
    Other("WATVP_L2_VIIRS_SNPP", "water vapour (VIIRS), 6 minutes", "netcdf swath"),
    Other(
        "AERDB_D3_VIIRS_SNPP AERDB_M3_VIIRS_SNPP AERDB_D3_VIIRS_NOAA20 AERDB_M3_VIIRS_NOAA20",
        "aerosol (VIIRS), 1 degree",
        "netcdf northward grid",
    ),
    Other(
        "CLDPROP_D3_VIIRS_SNPP CLDPROP_M3_VIIRS_SNPP CLDPROP_D3_VIIRS_NOAA20 "
        "CLDPROP_M3_VIIRS_NOAA20 CLDPROP_D3_MODIS_Aqua CLDPROP_M3_MODIS_Aqua",
        "clouds (continuity), 1 degree",
        "netcdf grid of groups",
    ),
    Other(
        "MODISA_L2_OC MODIST_L2_OC VIIRSN_L2_OC VIIRSJ1_L2_OC",
        "ocean colour, 5 or 6 minutes",
        "netcdf swath",
    ),
    Other(
        "MODISA_L2_SST MODIST_L2_SST VIIRSN_L2_SST",
        "sea surface temperature, 5 or 6 minutes",
        "netcdf swath",
    ),
    Other("MODISA_L3m_CHL MODIST_L3m_CHL VIIRSN_L3m_CHL", "ocean colour, mapped", "netcdf grid"),
    Other(
        "MODISA_L3m_SST MODIST_L3m_SST VIIRSN_L3m_SST",
        "sea surface temperature, mapped",
        "netcdf grid",
    ),
    Other("MODISA_L4m_PP", "ocean productivity, mapped", "netcdf grid"),
    Other(
        "MODISA_L3b_CHL VIIRSN_L3b_CHL",
        "ocean colour, binned",
        "",
        "bins on rings of the sphere, no raster; the mapped product holds the same",
    ),
)


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield name, title, state, evidence and source of each product; the catalogue's first."""
    seen = set()
    for product in catalogue.products():
        if product.name not in seen:
            seen.add(product.name)
            real = product.name in REAL
            form = layouts().get(product.name)
            made = "generated granule of its layout" if form else "generated granule"
            evidence = f"real granule, {made}" if real else made
            yield product.name, product.title, "read, in the catalogue", evidence, product.source
    for other in OTHERS:
        for name in other.names.split():
            if other.why:
                yield name, other.title, f"not read: {other.why}", "", ""
            else:
                yield name, other.title, "read from attributes", f"generated {other.form}", ""


def share_read() -> float:
    """Return the share of products that are read."""
    every = [*rows()]
    return sum(not state.startswith("not") for _, _, state, *_ in every) / len(every)


_HEAD = """# Products

Every NASA MODIS and VIIRS product from level 1B to level 4, and whether Swathmill reads it. Of
{count} products, {share:.1%} are read. A product of the catalogue has its codes, bits and
conventions; one that is read from attributes has what its file says. Evidence is a real granule, or
one that is generated in the form of the product's files (`reprojection/sample/products.py`):
`tests/worker/test_every_layer.py` requests every layer of every product of the catalogue, and
`tests/reprojection/test_products_page.py` reads each of the others.
`python -m tools.products_table` makes this page.

| product | is | state | evidence | described by |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the page as Markdown."""
    every = [*rows()]
    table = "".join(f"| {' | '.join(row)} |\n" for row in every)
    return _HEAD.format(count=len(every), share=share_read()) + table


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
