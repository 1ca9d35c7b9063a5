"""Names of sea surface temperature and ocean colour, as the data centres form them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modis.ocean_name import is_l2p, parse_ocean_name, product_of, product_of_map


@pytest.mark.parametrize(
    ("name", "granule", "start", "half", "period"),
    [
        (
            "20000227202006-JPL-L2P_GHRSST-SSTskin-MODIS_T-D-v02.0-fv01.0.nc",
            "20000227202006-JPL-L2P_GHRSST-SSTskin-MODIS_T-D-v02.0",
            "2000-02-27T20:20:06",
            "day",
            "",
        ),
        (
            "20180705093001-JPL-L2P_GHRSST-SSTskin-VIIRS_NPP-N-v02.0-fv01.0.nc",
            "20180705093001-JPL-L2P_GHRSST-SSTskin-VIIRS_NPP-N-v02.0",
            "2018-07-05T09:30:01",
            "night",
            "",
        ),
        (
            "20160409062000-OSPO-L2P_GHRSST-SSTsubskin-VIIRS_NPP-ACSPO_V2.61-v02.0-fv01.0.nc",
            "20160409062000-OSPO-L2P_GHRSST-SSTsubskin-VIIRS_NPP-ACSPO_V2.61-v02.0",
            "2016-04-09T06:20:00",
            "",
            "",
        ),
        (
            "20200331041254-NAVO-L2P_GHRSST-SST1m-VIIRS_NPP-v02.0-fv03.0.nc",
            "20200331041254-NAVO-L2P_GHRSST-SST1m-VIIRS_NPP-v02.0",
            "2020-03-31T04:12:54",
            "",
            "",
        ),
        (
            "AQUA_MODIS.20200101T103000.L2.OC.NRT.nc",
            "AQUA_MODIS.20200101T103000.L2.OC",
            "2020-01-01T10:30:00",
            "",
            "",
        ),
        (
            "SNPP_VIIRS.20200101_20200131.L3m.MO.CHL.chlor_a.4km.nc",
            "SNPP_VIIRS.20200101_20200131.L3m.MO.CHL.chlor_a.4km",
            "2020-01-01T00:00:00",
            "",
            "MO",
        ),
        (
            "S2008001.L3m_DAY_CHL_chlor_a_9km.nc",
            "S2008001.L3m_DAY_CHL_chlor_a_9km",
            "2008-01-01T00:00:00",
            "",
            "DAY",
        ),
    ],
)
def test_names(name: str, granule: str, start: str, half: str, period: str) -> None:
    found = parse_ocean_name(name)
    assert found is not None
    assert (found.granule, found.day_night, found.period) == (granule, half, period)
    assert found.start.isoformat() == f"{start}+00:00"


@pytest.mark.parametrize(
    "name",
    [
        "MYD04_L2.A2007103.0250.006.2014051174308.hdf",
        "20000227202006-JPL-L4_GHRSST-SSTfnd-MUR-GLOB-v02.0-fv04.1.nc",
        "20001327202006-JPL-L2P_GHRSST-SSTskin-MODIS_T-D-v02.0-fv01.0.nc",
        "20000227202006-JPL-L2P_GHRSST-SSTskin-MODIS_T-D-v02.0-fv01.0.nc.md5",
        "AQUA_MODIS.20200199.L3m.DAY.CHL.chlor_a.4km.nc",
    ],
)
def test_other_names(name: str) -> None:
    assert parse_ocean_name(name) is None


@given(st.text(max_size=60))
def test_any_name_is_split_or_left(name: str) -> None:
    found = parse_ocean_name(name)
    assert found is None or name.startswith(found.granule)


def test_short_names() -> None:
    assert product_of("MODIS_A-JPL-L2P-v2019.0") == ("MODIS_A-JPL-L2P", "2019.0")
    assert product_of("VIIRS_NPP-OSPO-L2P-v2.61") == ("VIIRS_NPP-OSPO-L2P", "2.61")
    assert product_of("VIIRS_NPP-NAVO-L2P-v3.0") == ("VIIRS_NPP-NAVO-L2P", "3.0")
    assert product_of("MOD11_L2") is None
    assert [is_l2p(name) for name in ("MODIS_A-JPL-L2P", "MOD11_L2")] == [True, False]


def test_of_maps_those_of_a_day_in_the_finest_pixels_name_a_product() -> None:
    daily = "JPSS1_VIIRS.20200101.L3m.DAY.CHL.chlor_a.4km.nc"
    assert product_of_map(daily) == "VIIRSJ1_L3m_CHL"
    assert product_of_map(daily.replace("JPSS1_VIIRS", "AQUA_MODIS")) == "MODISA_L3m_CHL"
    for other in (
        daily.replace("4km", "9km"),
        daily.replace("4km", "4km.NRT"),
        daily.replace(".L3m.DAY.", "_20200131.L3m.MO."),
        daily.replace("L3m.DAY", "L3b.DAY"),
        daily.replace("JPSS1_VIIRS", "SEASTAR_SEAWIFS"),
    ):
        assert product_of_map(other) == "", other
