"""The linter over records: shipped ones have no fault, and each kind of fault is seen."""

from typing import Any

import pytest

from reprojection.records import Record, records
from reprojection.records.linting import faults


@pytest.mark.parametrize("name", sorted(records()))
def test_shipped_records_have_no_fault(name: str) -> None:
    assert [*faults(records()[name])] == []


def made(members: list[dict[str, Any]], layers: dict[str, Any], every: int = 8) -> Record:
    return Record.model_validate(
        {
            "name": "made",
            "title": "Made",
            "every": every,
            "layers": layers,
            "members": members,
            "evidence": "Made up for a test, and so on no evidence at all.",
            "differs": "Nothing that anybody knows.",
        }
    )


MODIS = {"product": "MOD13A2", "collection": "61"}
VIIRS = {"product": "VNP13A2", "collection": "2"}
INDEX = {"NDVI": {"name": "1 km 16 days NDVI"}}
LEAF = {"product": "MOD15A2H", "collection": "61"}


@pytest.mark.parametrize(
    ("members", "layers", "every", "told"),
    [
        ([MODIS, {**MODIS, "collection": "6"}], INDEX, 8, "one collection of a product only"),
        ([MODIS, {**VIIRS, "collection": "9"}], INDEX, 8, "the catalogue does not have VNP13A2"),
        ([MODIS, {**VIIRS, "names": {"EVI": "x"}}], INDEX, 8, "names the layer EVI"),
        ([MODIS, VIIRS], {"N": {"name": "1 km 16 days DVI"}}, 8, "has no layer"),
        ([MODIS, VIIRS], INDEX, 16, "not on the record's calendar of 16"),
        ([MODIS, LEAF], INDEX, 8, "days covered: MOD15A2H.061 has 8, MOD13A2.061 16"),
        (
            [MODIS, {**VIIRS, "names": {"NDVI": "1 km 16 days EVI"}}],
            INDEX,
            8,
            "quantity of NDVI: VNP13A2.002 has ''",
        ),
        (
            [MODIS, {**VIIRS, "names": {"NDVI": "1 km 16 days composite day of the year"}}],
            INDEX,
            8,
            "kind of NDVI",
        ),
        ([MODIS, VIIRS], {"Q": {"name": "1 km 16 days VI Quality"}}, 8, "quality layer"),
        (
            [LEAF, {"product": "VNP15A2H", "collection": "2"}],
            {"Fpar": {"name": "Fpar", "units": "%"}},
            8,
            "VNP15A2H.002 Fpar is in '1', the record's Fpar in '%'",
        ),
        (
            [LEAF, {"product": "MOD13C1", "collection": "61"}],
            {"Lai": {"name": "Lai_500m"}},
            8,
            "geometry: MOD13C1.061 has 'globe'",
        ),
        (
            [
                {"product": "MOD14A1", "collection": "61"},
                {"product": "MYD14A1", "collection": "61"},
            ],
            {"Fire": {"name": "FireMask"}},
            8,
            "has several bands",
        ),
    ],
)
def test_each_kind_of_fault_is_told(
    members: list[dict[str, Any]], layers: dict[str, Any], every: int, told: str
) -> None:
    found = [*faults(made(members, layers, every))]
    assert any(told in one for one in found), found
