"""Names of granules, as the data centres form them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modis.granule_name import (
    is_near_real_time,
    near_editions,
    parse_granule_name,
    standard_product,
)
from modis.tile import Tile


def test_near_real_time_granules_are_known_by_their_names() -> None:
    for name, near in (
        ("MOD09GA.A2022246.h00v08.061.2022247021401.NRT.hdf", True),
        ("VNP09GA_NRT.A2026042.h29v13.002.2026043041729.h5", True),
        ("MCD19A2N.A2019140.h18v04.006.hdf", True),
        ("MCD19A2.A2019140.h18v04.061.2023123123456.hdf", False),
        ("AQUA_MODIS.20200101T103000.L2.OC.NRT.nc", True),
        ("AERDT_L2_VIIRS_SNPP.A2021050.1218.011.nrt.nc", True),
        ("MOD09GA.A2022246.h00v08.061.2022248021401.hdf", False),
    ):
        assert is_near_real_time(name) is near
    assert near_editions("VNP46A1", "2") == ("VNP46A1_NRT", "2")
    aerosol = near_editions("AERDT_L2_VIIRS_SNPP", "2")
    assert aerosol == ("AERDT_L2_VIIRS_SNPP_NRT", "2")
    assert near_editions("MYD01", "61") == ("MYD01", "61NRT")
    assert near_editions("MCD19A2", "61") == ("MCD19A2N", "61NRT")
    for name in ("MCD19A2N", "MCD19A2", "VNP46A1_NRT", "MCD19A2CMG", "MYD01"):
        assert standard_product(name) == name.removesuffix("N").removesuffix("_NRT")


def test_the_name_of_a_swath() -> None:
    found = parse_granule_name("MYD04_L2.A2007103.0250.006.2014051174308.hdf")
    assert found is not None
    assert found.is_swath
    assert (found.product, found.collection, found.tile) == ("MYD04_L2", "6", None)
    assert found.production_time == "2014051174308"
    assert found.start.isoformat() == "2007-04-13T02:50:00+00:00"


def test_the_name_of_a_tile() -> None:
    found = parse_granule_name("VNP13A1.A2020001.h08v05.002.2020010101010.h5")
    assert found is not None
    assert not found.is_swath
    assert (found.tile, found.collection) == (Tile(8, 5), "2")
    assert found.start.isoformat() == "2020-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    "name",
    [
        "notes.hdf",
        "BROWSE.MOD10A1.A2018010.h17v03.jpg",
        "MOD09GA.A2008999.h14v17.006.hdf",
        "MOD09GA.A2008296.2561.006.hdf",
        "MOD09GA.A0000001.h14v17.006.hdf",
        "MOD09GA.A9999366.h14v17.006.hdf",  # its day is beyond the last that Python can tell
    ],
)
def test_other_names_are_no_granules(name: str) -> None:
    assert parse_granule_name(name) is None


@given(st.text(max_size=60))
def test_any_name_is_split_or_left(name: str) -> None:
    found = parse_granule_name(name)
    assert found is None or found.product


@given(st.from_regex(r"[A-Z]{3}\d\d\.A\d{7}\.\d{4}\.\d{3}\.hdf", fullmatch=True))
def test_any_date_and_time_are_split_or_left(name: str) -> None:
    found = parse_granule_name(name)
    assert found is None or found.product == name[:5]


def test_albedo_with_gaps_filled_has_its_day_and_year_behind_its_kind() -> None:
    found = parse_granule_name("MCD43GF_bsa_Band1_365_2021_V061.hdf")
    assert found is not None
    assert (found.product, found.collection) == ("MCD43GF_bsa_Band1", "61")
    assert (found.start.date().isoformat(), found.tile) == ("2021-12-31", None)
    assert parse_granule_name("MCD43GF_wsa_shortwave_001_2000_V006.hdf") is not None
    assert parse_granule_name("MCD43GF_bsa_Band1_367_2021_V061.hdf") is None
