"""Records as files: each is read, is called as its file is, and says on what it rests."""

from datetime import date

import pytest

from reprojection.errors import CatalogueError
from reprojection.records import read_record, record, records, sensor_of

LEAVES = """
title: Leaf area
every: 8
layers: {Lai: {name: Lai, units: "1"}}
members:
  - {product: MOD15A2H, collection: "61", names: {Lai: Lai_500m}}
  - {product: VNP15A2H, collection: "2"}
evidence: One algorithm and one grid, by the user guides of both products.
differs: The bands are not the same.
"""


def test_a_record_names_the_layer_of_each_product() -> None:
    found = read_record("leaves.yaml", LEAVES)
    assert found.name == "leaves"
    assert [found.layer_of(one, "Lai") for one in found.members] == ["Lai_500m", "Lai"]
    assert [one.text for one in found.members] == ["MOD15A2H.061", "VNP15A2H.002"]
    assert found.sensors == ("Terra MODIS", "Suomi NPP VIIRS")
    assert found.since == date(2000, 2, 18)


def test_a_rule_in_words_goes_for_all_sensors_or_for_none() -> None:
    index = record("record:ndvi-16day")
    assert index is not None
    assert index.rules("NDVI") == ("best", "good")
    modis = index.entry_of(index.members[0], "NDVI")
    viirs = index.entry_of(index.members[2], "NDVI")
    assert modis is not None
    assert viirs is not None
    bits = [
        entry.layer(quality).presets["good"]  # type: ignore[union-attr, arg-type]
        for entry, quality in (
            (index.members[0].entry, modis.qa),
            (index.members[2].entry, viirs.qa),
        )
    ]
    assert bits == [{"value": [0, 1]}, {"value": [0, 1, 2, 3]}]


def test_a_rule_that_one_sensor_lacks_is_none_of_the_record() -> None:
    """The view angle of VIIRS stands in for a layer without a quality layer."""
    index = record("ndvi-16day")
    assert index is not None
    angle = {"NDVI": "1 km 16 days view zenith angle"}
    modis, viirs = index.members[0], index.members[2].model_copy(update={"names": angle})
    assert index.model_copy(update={"members": (modis, viirs)}).rules("NDVI") == ()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("leaves.yaml", LEAVES.replace("every: 8", ""), "every"),
        ("leaves.yaml", LEAVES + "weights: 3\n", "weights"),
        ("leaves.yaml", LEAVES + "name: trees\n", "holds trees"),
        ("leaves.yaml", "- 1\n", "leaves.yaml"),
    ],
)
def test_a_file_that_is_no_record_is_refused(name: str, text: str, told: str) -> None:
    with pytest.raises(CatalogueError, match=told):
        read_record(name, text)


def test_each_record_says_on_what_it_rests_and_what_changes() -> None:
    assert "ndvi-16day" in records()
    for one in records().values():
        assert len(one.evidence.split()) > 15, one.name
        assert len(one.differs.split()) > 10, one.name


def test_names_of_products_tell_the_sensor() -> None:
    for name, told in (
        ("VJ113A2", "NOAA-20 VIIRS"),
        ("MODIS_A-JPL-L2P", "Aqua MODIS"),
        ("XAERDT_L2_MODIS_Terra", "Terra MODIS"),
        ("AERDT_L2_VIIRS_SNPP", "Suomi NPP VIIRS"),
        ("AERDT_L2_VIIRS_NOAA21", "NOAA-21 VIIRS"),
        ("MODIST_L3m_CHL", "Terra MODIS"),
        ("VIIRSN_L3m_CHL", "Suomi NPP VIIRS"),
        ("XYZ", None),
    ):
        found = sensor_of(name)
        assert (found and found.text) == told, name
