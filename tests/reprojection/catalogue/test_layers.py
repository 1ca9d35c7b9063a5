"""What attributes mean: scaling, unsigned readings, kinds, names."""

import numpy as np
import pytest

from reprojection.catalogue.attributes import parse_number
from reprojection.catalogue.layers import (
    LayerKind,
    Scale,
    Scaling,
    guess_kind,
    guess_scaling,
    normal_scaling,
    read_scale,
    split_index,
)
from reprojection.formats.container import AttributeValue


@pytest.mark.parametrize(
    ("factor", "offset", "scaling", "expected"),
    [
        (0.02, 0.0, Scaling.ADD, (0.02, 0.0)),
        (0.002, 0.49, Scaling.ADD, (0.002, 0.49)),
        (0.01, -15000.0, Scaling.SUBTRACT, (0.01, 150.0)),
        (0.0010000000474974513, 0.0, Scaling.SUBTRACT, (0.001, 0.0)),
        (10000.0, 0.0, Scaling.DIVIDE, (0.0001, 0.0)),
        (None, None, Scaling.ADD, (1.0, 0.0)),
    ],
)
def test_scaling_is_normalised_to_stored_times_scale_plus_offset(
    factor: float | None, offset: float | None, scaling: Scaling, expected: tuple[float, float]
) -> None:
    assert normal_scaling(factor, offset, scaling) == pytest.approx(expected, rel=1e-12)


def test_unknown_products_divide_only_where_multiplying_cannot_be_meant() -> None:
    assert guess_scaling(10000.0, "sur_refl_b01", "reflectance") is Scaling.DIVIDE
    assert guess_scaling(10000.0, "LE_500m", "J/m^2/day") is Scaling.ADD
    assert guess_scaling(25.0, "Range_1", "meters") is Scaling.ADD


def scale_of(
    attributes: dict[str, AttributeValue], catalogued: Scaling | None = None, note: bool = False
) -> Scale:
    return read_scale(
        attributes, "Temperature", "K", catalogued=catalogued, file_has_atmosphere_note=note
    )


def test_numbers_written_as_text_are_read() -> None:
    found = scale_of({"scale_factor": " 0.1", "add_offset": "3"}, Scaling.ADD)
    assert (found.scale, found.offset) == (0.1, 3.0)
    assert scale_of({"scale_factor": "1e-2", "add_offset": "n/a"}).scale == 0.01
    assert scale_of({"scale_factor": (0.5,)}).scale == 0.5
    assert scale_of({"scale_factor": "n/a"}) == scale_of({}) == Scale()
    assert [parse_number(text) for text in ("255", "-1.5", ".5", "1e3", "x", "1 2")] == [
        255,
        -1.5,
        0.5,
        1000.0,
        None,
        None,
    ]


def test_an_offset_needs_a_stated_convention() -> None:
    profile: dict[str, AttributeValue] = {"scale_factor": 0.01, "add_offset": -15000.0}
    by_note, by_catalogue = scale_of(profile, note=True), scale_of(profile, Scaling.SUBTRACT)
    assert (by_note.scale, by_note.offset) == (by_catalogue.scale, by_catalogue.offset)
    assert by_note.offset == pytest.approx(150.0)
    assert by_note.convention == ("scale_factor * (stored - add_offset), by the file's own note")
    assert by_catalogue.convention.endswith("by the catalogue")
    unknown = scale_of(profile)
    assert (unknown.scale, unknown.offset, unknown.convention) == (1.0, 0.0, "")
    assert "-15000" in unknown.problem
    assert scale_of({"scale_factor": 0.01}).convention.endswith("assumed: nothing states it")


@pytest.mark.parametrize(
    "attributes",
    [
        {"scale_factor": 0.0},
        {"scale_factor": float("nan")},
        {"scale_factor": "0.1 per count"},
        {"scale_factor": (0.1, 0.2)},
        {"scale_factor": 0.1, "add_offset": float("inf")},
        {"radiance_scales": (0.02, 0.03), "radiance_offsets": (0.0, 0.0)},
    ],
)
def test_a_scale_that_is_no_factor_is_a_problem(attributes: dict[str, AttributeValue]) -> None:
    found = scale_of(attributes, Scaling.ADD)
    assert found.problem
    assert (found.scale, found.offset) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("name", "dtype", "units", "kind"),
    [
        ("QC_Day", "u1", "", LayerKind.BITFIELD),
        ("sur_refl_state_500m", "u2", "bit field", LayerKind.BITFIELD),
        ("Land_Cover_Type_1", "u1", "class number", LayerKind.CLASS),
        ("orbit_pnt", "i1", "none", LayerKind.CLASS),
        ("FireMask", "u1", "class", LayerKind.CLASS),
        ("Lai_1km", "u1", "m^2/m^2", LayerKind.CONTINUOUS),
        ("Quality", "f4", "", LayerKind.CONTINUOUS),
        ("SurfReflect_QF1_1", "u1", "", LayerKind.BITFIELD),
        ("SurfReflect_QF7_1", "u1", "", LayerKind.BITFIELD),
        ("SurfReflect_State", "u2", "", LayerKind.BITFIELD),
        ("BRDF_Albedo_Ancillary", "u2", "", LayerKind.BITFIELD),
        ("QCDay", "u1", "", LayerKind.BITFIELD),
        ("BRDF_Albedo_LandWaterType", "u1", "", LayerKind.CLASS),
        ("LandSeaMask", "u1", "", LayerKind.CLASS),
        ("Mandatory_Flag", "u1", "", LayerKind.CLASS),
        ("iobs_res", "u1", "", LayerKind.CLASS),
        ("iobs_res_1", "u1", "none", LayerKind.CLASS),
        ("num_observations_1km", "i1", "none", LayerKind.CLASS),
        ("Number of observations", "u1", "", LayerKind.CLASS),
        ("SurfReflect_Day_Of_Year", "u2", "Julian day", LayerKind.CLASS),
        ("500 m 16 days composite day of the year", "i2", "Julian day", LayerKind.CLASS),
        ("BurnDate", "i2", "", LayerKind.CLASS),
        ("Burn Date", "i2", "day", LayerKind.CLASS),
        ("Burn Date Uncertainty", "u1", "day", LayerKind.CONTINUOUS),
        ("LST_Day_1km", "u2", "K", LayerKind.CONTINUOUS),
        ("Day_view_time", "u1", "hrs", LayerKind.CONTINUOUS),
        ("Emis_14", "u1", "", LayerKind.CONTINUOUS),
        ("SurfReflect_I1_1", "i2", "", LayerKind.CONTINUOUS),
        ("500 m 16 days EVI2", "i2", "", LayerKind.CONTINUOUS),
        ("Albedo_WSA_shortwave", "i2", "", LayerKind.CONTINUOUS),
        ("Fpar", "u1", "", LayerKind.CONTINUOUS),
        ("NDSI_Snow_Cover", "u1", "", LayerKind.CONTINUOUS),
        ("obscov_500m_1", "i1", "percent", LayerKind.CONTINUOUS),
    ],
)
def test_kinds_are_guessed_from_name_type_and_units(
    name: str, dtype: str, units: str, kind: LayerKind
) -> None:
    assert guess_kind(name, np.dtype(dtype), units) is kind


def test_a_scale_says_that_a_number_is_measured_but_makes_no_bits_continuous() -> None:
    byte = np.dtype("u1")
    assert guess_kind("Vegetation_Index", byte, "", scaled=True) is LayerKind.CONTINUOUS
    assert guess_kind("Vegetation_Index", byte, "") is LayerKind.CLASS
    assert guess_kind("obs_cov_500m", byte, "percent", scaled=True) is LayerKind.CONTINUOUS
    assert guess_kind("QC_Day", byte, "", scaled=True) is LayerKind.BITFIELD


def test_a_layer_name_may_carry_an_index() -> None:
    assert split_index("Lai_1km") == ("Lai_1km", ())
    assert split_index("Depth[2]") == ("Depth", (2,))
    assert split_index("Depth[2, 0]") == ("Depth", (2, 0))
    assert split_index("Depth[x]") == ("Depth[x]", ())
