"""Names, types and scales of layers, as others have read them from granules of VIIRS.

The tables are of items that stactools-packages/viirs has made of the granules named here. Fills are
left out where that program has put others in their place.
"""

import pytest

from reprojection import catalogue
from reprojection.catalogue.layers import LayerKind
from tests.generated.products import Layout, layouts

FACTS: dict[str, dict[str, tuple[str, float | None]]] = {
    # VNP09A1.A2022145.h11v05.001
    "VNP09A1": {
        **{f"SurfReflect_M{n}": ("i2", 1e-4) for n in (1, 2, 3, 4, 5, 7, 8, 10, 11)},
        "SurfReflect_QC": ("u4", None),
        "SurfReflect_State": ("u2", None),
        "SurfReflect_Day_Of_Year": ("u2", None),
        **{f"S{name}Zenith": ("i2", 0.01) for name in ("olar", "ensor")},
        "RelativeAzimuth": ("i2", 0.01),
    },
    # VNP09H1.A2012017.h00v09.001
    "VNP09H1": {
        **{f"SurfReflect_I{n}": ("i2", 1e-4) for n in (1, 2, 3)},
        "SurfReflect_QC_500m": ("u2", None),
        "SurfReflect_State_500m": ("u2", None),
    },
    # VNP10A1.A2022097.h11v05.001
    "VNP10A1": {
        "NDSI_Snow_Cover": ("u1", None),
        "NDSI": ("i2", 0.001),
        "Basic_QA": ("u1", None),
        "Algorithm_bit_flags_QA": ("u1", None),
        "granule_pnt": ("u1", None),
    },
    # VNP14A1.A2019054.h11v05.001
    "VNP14A1": {
        "FireMask": ("u1", None),
        "QA": ("u1", None),
        "MaxFRP": ("i4", 0.1),
        "sample": ("i2", None),
    },
    # VNP15A2H.A2017137.h11v05.001
    "VNP15A2H": {
        "Fpar": ("u1", 0.01),
        "Lai": ("u1", 0.1),
        "FparStdDev": ("u1", 0.01),
        "LaiStdDev": ("u1", 0.1),
        "FparLai_QC": ("u1", None),
        "FparExtra_QC": ("u1", None),
    },
    # VNP21A2.A2021153.h11v05.001
    "VNP21A2": {
        **{f"LST_{time}_1KM": ("u2", 0.02) for time in ("Day", "Night")},
        **{f"QC_{time}": ("u1", None) for time in ("Day", "Night")},
        **{f"View_Angle_{time}": ("u1", None) for time in ("Day", "Night")},
        **{f"View_Time_{time}": ("u1", 0.1) for time in ("Day", "Night")},
        **{f"Emis_{n}": ("u1", 0.002) for n in (14, 15, 16)},
    },
    # VNP43IA4.A2012364.h11v05.001
    "VNP43IA4": {
        **{f"Nadir_Reflectance_I{n}": ("i2", 1e-4) for n in (1, 2, 3)},
        **{f"BRDF_Albedo_Band_Mandatory_Quality_I{n}": ("u1", None) for n in (1, 2, 3)},
    },
    # VNP43MA4.A2022140.h11v05.001
    "VNP43MA4": {
        **{f"Nadir_Reflectance_M{n}": ("i2", 1e-4) for n in (1, 2, 3, 4, 5, 7, 8, 10, 11)},
        **{
            f"BRDF_Albedo_Band_Mandatory_Quality_M{n}": ("u1", None)
            for n in (1, 2, 3, 4, 5, 7, 8, 10, 11)
        },
    },
    # VNP46A2.A2022097.h11v05.001
    "VNP46A2": {
        "DNB_BRDF-Corrected_NTL": ("u2", 0.1),
        "Gap_Filled_DNB_BRDF-Corrected_NTL": ("u2", 0.1),
        "DNB_Lunar_Irradiance": ("u2", 0.1),
        "Mandatory_Quality_Flag": ("u1", None),
        "QF_Cloud_Mask": ("u2", None),
        "Snow_Flag": ("u1", None),
        "Latest_High_Quality_Retrieval": ("u1", None),
    },
}


@pytest.mark.parametrize("name", FACTS)
def test_the_catalogue_offers_the_layers_of_a_real_granule_and_no_others(name: str) -> None:
    product = catalogue.product(name, "1")
    assert product is not None
    assert {*product.layer_names} == {*FACTS[name]}
    for layer, (_, scale) in FACTS[name].items():
        entry = product.layer(layer)
        assert entry is not None
        assert scale is None or entry.kind is LayerKind.CONTINUOUS, layer


@pytest.mark.parametrize("name", ["VNP10A1", "VNP14A1", "VNP15A2H", "VNP43IA4", "VNP43MA4"])
def test_generated_granules_store_layers_as_the_real_one(name: str) -> None:
    layout: Layout = layouts()[name]
    for layer, (kind, scale) in FACTS[name].items():
        stored = layout.fields.get(layer) or next(
            (
                one
                for at, one in layout.fields.items()
                if at.endswith("*") and at != "*" and layer.startswith(at[:-1])
            ),
            None,
        )
        if stored is not None:
            assert (stored.type, stored.scale) == (kind, scale), layer


def test_every_entry_of_viirs_has_two_sources_or_says_that_it_has_one() -> None:
    lacking = [
        product.name
        for product in catalogue.products()
        if product.name.startswith(("VNP", "VJ"))
        and not (";" in product.source or "one source" in product.source)
    ]
    assert lacking == []


def test_leaf_area_of_viirs_has_quality_in_words() -> None:
    product = catalogue.product("VNP15A2H", "2")
    assert product is not None
    for name in ("Lai", "Fpar"):
        entry = product.layer(name)
        assert entry is not None
        assert entry.qa == "FparLai_QC"
    quality = product.layer("FparLai_QC")
    assert quality is not None
    assert quality.presets == {"best": {"SCF_QC": [0]}, "good": {"SCF_QC": [0, 1]}}
