"""Which folders of results hold data, and which what judges its pixels."""

import pytest

from tasks.requests.data_results import is_data


@pytest.mark.parametrize(
    ("folder", "data"),
    [
        ("MCD15A2.005/Lai_1km", True),
        ("MCD15A2.005/FparLai_QC", False),
        ("MCD15A2.005/LaiStdDev_1km", False),
        ("MYD11_L2.006.night/QC", False),
        ("ndvi-16day.MOD13A2.061/1_km_16_days_VI_Quality", False),
        ("monthly-mean/FparLai_QC_mean", True),
        ("NEWPROD.001/QC", True),  # of which nothing is known
    ],
)
def test_a_layer_is_data_unless_the_catalogue_says_that_it_judges(folder: str, data: bool) -> None:
    assert is_data(folder) is data
