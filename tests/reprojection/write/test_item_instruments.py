"""The instrument and platform of items, by the product's name."""

import pytest

from reprojection.write.stac import _instrument


@pytest.mark.parametrize(
    ("product", "instrument", "platform"),
    [
        ("MOD13A2", "modis", "terra"),
        ("MYD04_L2", "modis", "aqua"),
        ("MCD15A2H", "modis", None),
        ("MODISA_L3m_CHL", "modis", "aqua"),
        ("MODIST_L3m_CHL", "modis", "terra"),
        ("VNP13A2", "viirs", "suomi-npp"),
        ("VJ102DNB", "viirs", "noaa-20"),
        ("VJ246A2", "viirs", "noaa-21"),
        ("AERDB_L2_VIIRS_SNPP", "viirs", "suomi-npp"),
        ("CLDMSK_L2_VIIRS_NOAA20", "viirs", "noaa-20"),
        ("CLDMSK_L2_MODIS_Aqua", "modis", "aqua"),
    ],
)
def test_instruments(product: str, instrument: str, platform: str | None) -> None:
    found = _instrument(product)
    assert found["instruments"] == [instrument]
    assert found.get("platform") == platform


def test_other_rasters_name_none() -> None:
    assert _instrument("raster:elevation") == {}
