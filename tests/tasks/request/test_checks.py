"""What is refused of a request before any archive is asked, and what is let through."""

from typing import Any

import pytest

from reprojection.write.sizes import MEAN_BYTES, STRIPES
from tasks.errors import RequestRefusedError
from tasks.request import memory
from tasks.request.checks import check_request
from tasks.request.document import Request, parse_request
from tasks.request.notes import request_notes
from tasks.request.resolved import resolve
from tasks.settings import Settings

LIMITS = Settings(max_pixels=10_000_000)
PLAIN: dict[str, Any] = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "FparLai_QC"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}
LEAF = {"record": "leaf-area-8day", "layers": ["Lai"]}


def document(**changes: Any) -> Request:
    return parse_request({**PLAIN, **changes})


def product(name: str, *layers: str, collection: str = "5") -> list[dict[str, Any]]:
    return [{"name": name, "collection": collection, "layers": list(layers)}]


def polygon(*points: tuple[float, float]) -> dict[str, Any]:
    return {"geojson": {"type": "Polygon", "coordinates": [[*points, points[0]]]}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"grid": {"crs": "EPSG:27700", "resolution": 1000}},
        {"grid": {"modis": 1000}},
        {"grid": {"modis": 1000}, "region": {"tiles": ["h17v03", "h18v03"]}},
        {"region": {"bbox": [170, -20, -170, -10]}},
        {"region": {"bbox": [0, 60, 30, 90]}, "grid": {"crs": "EPSG:3995", "resolution": 5000}},
        {"region": {"bbox": [-180, -90, 180, 90]}, "grid": {"crs": "EPSG:6933", "resolution": 9e3}},
        {"region": polygon((0, 50), (5, 50), (5, 55))},
        {
            "region": polygon((-180, -60), (180, -60), (180, 60), (-180, 60)),
            "grid": {"crs": "EPSG:4326", "resolution": 0.5},
        },
        {"products": product("NEWPROD", "whatever")},
        {"products": product("MCD15A2", "Lai_1km", collection="7")},
        {"resampling": "bilinear"},
        {"resampling": {"FparLai_QC": "mode", "Lai_1km": "cubic"}},
        {"qa": "best"},
        {"qa": "best", "products": product("MCD15A2", "Lai_1km", "FparExtra_QC")},
        {"qa": "best", "products": product("MOD10A1", "NDSI_Snow_Cover", collection="6")},
        {"qa": {"FparLai_QC": {"MODLAND": [0], "SCF_QC": [0, 1]}}},
        {"qa": {"FparLai_QC": {"value": [0, 32]}}},
        {"qa": {"FparLai_QC": {"modland": [0], "5-7": [0, 1]}}},
    ],
)
def test_let_through(changes: dict[str, Any]) -> None:
    check_request(resolve(document(**changes)), LIMITS)


@pytest.mark.parametrize(
    ("changes", "field", "problem", "remedy"),
    [
        ({"grid": {"crs": "EPSG:99999", "resolution": 1}}, "grid.crs", "EPSG:99999", "EPSG code"),
        ({"grid": {"crs": "EPSG:5773", "resolution": 1}}, "grid.crs", "Vertical", "two-dim"),
        ({"grid": {"crs": "EPSG:4979", "resolution": 1}}, "grid.crs", "3D", "two-dim"),
        ({"grid": {"crs": "EPSG:4978", "resolution": 1}}, "grid.crs", "Geocentric", "two-dim"),
        ({"grid": {"crs": "EPSG:4326", "resolution": 1000}}, "grid.resolution", "", "degree"),
        ({"grid": {"crs": "EPSG:4326", "resolution": 1e-4}}, "grid.resolution", "MAX_PIX", "coars"),
        (
            {"grid": {"modis": 250}, "region": {"bbox": [-60, 0, 60, 60]}},
            "grid.modis",
            "MAX_PIXELS",
            "coarser",
        ),
        (
            {"grid": {"crs": "EPSG:27700", "resolution": 1000}, "region": {"bbox": [9, 1, 99, 9]}},
            "region.bbox",
            "outside the domain",
            "Choose a CRS",
        ),
        (
            {"grid": {"crs": "EPSG:28992", "resolution": 1000}, "region": {"tiles": ["h31v11"]}},
            "region.tiles",
            "outside the domain",
            "Choose a CRS",
        ),
        (
            {
                "grid": {"crs": "EPSG:3413", "resolution": 1000},
                "region": {
                    "geojson": {
                        "type": "Polygon",
                        "coordinates": [[[0, -90], [60, -90], [60, 50], [0, 50], [0, -90]]],
                    }
                },
            },
            "region.geojson",
            "and latitude -90, lies outside the domain",
            "or narrow it",
        ),
        ({"region": {"tiles": ["h00v00"]}}, "region.tiles", "off the Earth", "Name tiles"),
        (
            {"products": product("MCD15A2", "LAI_1km")},
            "products.0.layers.0",
            "no layer 'LAI_1km'",
            "Did you mean Lai_1km",
        ),
        (
            {"products": product("MCD15A2", "Zzz"), "qa": "best"},
            "qa",
            "no layer asked for has a QA rule 'best': MCD15A2 Zzz",
            "Write the rule out",
        ),
        ({"products": product("MCD15A2", "Lai_1km", "Lai_1km")}, "products.0.layers", "", "once"),
        (
            {"products": product("MCD15A2", "Lai_1km") * 2},
            "products.1.layers",
            "asked for twice",
            "once",
        ),
        ({"resampling": {"Lai": "nearest"}}, "resampling.Lai", "no layer", "Did you mean Lai_1km?"),
        (
            {"resampling": {"FparLai_QC": "bilinear"}},
            "resampling.FparLai_QC",
            "blend the bit fields",
            "nearest or mode",
        ),
        ({"qa": {"FparLaiQC": {"MODLAND": [0]}}}, "qa.FparLaiQC", "no product", "FparLai_QC"),
        ({"qa": {"FparLai_QC": {"MODLND": [0]}}}, "qa.FparLai_QC.MODLND", "no QA field", "MODLAND"),
        ({"qa": {"FparLai_QC": {"MODLAND": [2]}}}, "qa.FparLai_QC.MODLAND", "2 does", "0 to 1"),
        ({"qa": {"FparLai_QC": {"5-7": [9]}}}, "qa.FparLai_QC.5-7", "9 does", "0 to 7"),
        ({"qa": {"FparLai_QC": {"7-5": [0]}}}, "qa.FparLai_QC.7-5", "no QA field", "MODLAND"),
        ({"qa": {"FparLai_QC": {"MODLAND": []}}}, "qa.FparLai_QC.MODLAND", "no value", "List"),
        ({"qa": {"FparLai_QC": {"value": []}}}, "qa.FparLai_QC.value", "no value", "List"),
        ({"qa": {"FparLai_QC": {}}}, "qa.FparLai_QC", "no field", "Name one"),
        (
            {
                "products": product("MCD12Q1", "LC_Type1", collection="6"),
                "qa": {"QC": {"value": [77]}},
            },
            "qa.QC.value",
            "no pixel has 77",
            "0 (classified land)",
        ),
        ({"qa": {}}, "qa", "is empty", "Leave it out"),
        ({"qa": "best", "mask": False}, "qa", "mask: false keeps", "one of the two"),
        ({"qa": "best", "products": product("NEWPROD", "a")}, "qa", "does not know", "Write"),
        ({"time": {"start": "1999-01-01", "end": "1999-02-01"}}, "time.end", "before the", "2000"),
        (
            {"region": polygon((0, 50), (5, 55), (5, 50), (0, 55))},
            "region.geojson",
            "Self-intersection",
            "Mend the ring",
        ),
        (
            {"region": polygon((175, -20), (-170, -20), (-170, -10), (175, -10))},
            "region.geojson",
            "an edge from longitude 175 to -170",
            "cut the polygon at 180",
        ),
        ({"region": polygon((50, 100), (55, 100), (55, 120))}, "region.geojson", "off the E", "lo"),
        (
            {"region": {"geojson": {"type": "Point", "coordinates": [0, 5]}}},
            "region.geo",
            "",
            "Pol",
        ),
        (
            {"region": {"geojson": {"type": "Polygon"}}},
            "region.geojson",
            "no coordinates, or",
            "Polygon",
        ),
        (
            {"region": {"geojson": {"type": "Feature"}}},
            "region.geojson",
            "without a geom",
            "Polygon",
        ),
        (
            {"region": {"geojson": {"type": "Polygon", "coordinates": "abc"}}},
            "region.geojson",
            "no coordinates, or",
            "Polygon",
        ),
    ],
)
def test_refused(changes: dict[str, Any], field: str, problem: str, remedy: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        check_request(resolve(document(**changes)), LIMITS)
    assert refused.value.field.startswith(field)
    assert problem in refused.value.problem
    assert remedy in refused.value.remedy


def test_a_blanket_choice_says_where_it_does_not_apply() -> None:
    notes = request_notes(resolve(document(resampling="bilinear")))
    assert len(notes) == 1
    assert "FparLai_QC" in notes[0]
    assert "Lai_1km" not in notes[0].split("instead:")[1].replace("FparLai", "")
    assert request_notes(resolve(document(resampling="nearest"))) == ()
    assert request_notes(resolve(document())) == ()


def test_geojson_features_are_joined() -> None:
    features = [
        {"type": "Feature", "properties": {}, "geometry": polygon(*points)["geojson"]}
        for points in (((0, 50), (2, 50), (2, 52)), ((2, 50), (4, 50), (2, 52)))
    ]
    collection = {"type": "FeatureCollection", "features": features}
    check_request(resolve(document(region={"geojson": collection})), LIMITS)


def test_a_blanket_choice_leaves_angles_alone() -> None:
    products = product("MOD09GA", "sur_refl_b01_1", "SolarAzimuth_1", collection="6")
    (note,) = request_notes(resolve(document(products=products, resampling="cubic")))
    assert "SolarAzimuth_1" in note
    assert "sur_refl_b01_1" not in note


def test_a_mean_of_classes_is_not_taken() -> None:
    products = product(
        "MYD04_L2", "Optical_Depth_Land_And_Ocean", "Land_Ocean_Quality_Flag", collection="6"
    )
    (note,) = request_notes(resolve(document(products=products, merge="mean")))
    assert "Land_Ocean_Quality_Flag" in note
    assert "Optical" not in note


def test_a_layer_the_catalogue_does_not_list_is_left_to_the_granules() -> None:
    resolved = resolve(document(products=product("MCD15A2", "Lai_2km")))
    check_request(resolved, LIMITS)
    (note,) = request_notes(resolved)
    assert "MCD15A2 Lai_2km (like Lai_1km" in note


@pytest.mark.parametrize(
    ("name", "layer", "count", "what"),
    [
        ("MYD04_L2", "Corrected_Optical_Depth_Land", 3, "wavelength"),
        ("MCD43A1", "BRDF_Albedo_Parameters_Band1", 3, "parameter"),
        ("MOD07_L2", "Retrieved_Temperature_Profile", 20, "pressure level"),
    ],
)
def test_a_layer_of_several_bands_is_refused_with_what_its_bands_are(
    name: str, layer: str, count: int, what: str
) -> None:
    request = parse_request(
        {**PLAIN, "products": [{"name": name, "collection": "61", "layers": [layer]}]}
    )
    with pytest.raises(RequestRefusedError) as refused:
        check_request(resolve(request), Settings())
    assert f"has {count} bands ({what})" in refused.value.problem
    assert f"all as {layer}[*]" in refused.value.remedy


def test_a_layer_without_a_preset_is_told_and_keeps_its_data() -> None:
    layers = ("Optical_Depth_Land_And_Ocean", "Solar_Zenith", "Land_Ocean_Quality_Flag")
    resolved = resolve(document(qa="best", products=product("MYD04_L2", *layers, collection="61")))
    check_request(resolved, LIMITS)
    assert [layer.qa for layer in resolved.products[0].layers] == ["best", "", ""]
    (note,) = request_notes(resolved)
    assert "'best' for these layers, so they keep all" in note
    assert note.endswith(": MYD04_L2 Solar_Zenith.")


@pytest.mark.parametrize(
    ("changes", "gigabytes"),
    [
        ({}, 1400 * 800 * 2 * (4 / 3) / 1e9),
        ({"extra_bands": ["count", "source"]}, 1400 * 800 * 2 * 4 / 1e9),
        ({"units": "physical"}, 1400 * 800 * 4 * 2 / 1e9),
        ({"units": "physical", "extra_bands": ["count"]}, 1400 * 800 * 4 * 3 / 1e9),
    ],
)
def test_a_raster_that_takes_more_memory_than_an_attempt_may_use_is_refused(
    changes: dict[str, Any], gigabytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a task is made: each would fail, one after another."""
    monkeypatch.setattr(memory, "WHOLE_BYTES", 1 << 40)  # all is in memory
    monkeypatch.setattr(memory, "OWN_BYTES", 0)
    request = document(**changes)
    check_request(resolve(request), Settings(attempt_memory_gb=1.001 * gigabytes))
    with pytest.raises(RequestRefusedError, match="SWATHMILL_ATTEMPT_MEMORY_GB") as refused:
        check_request(resolve(request), Settings(attempt_memory_gb=0.999 * gigabytes))
    assert refused.value.field == "grid.resolution"


def test_memory_is_told_before_it_is_exceeded() -> None:
    """From half of what an attempt may use on; beyond it the request is refused."""
    resolved = resolve(document(units="physical"))
    needed = memory.attempt_bytes(resolved) / 1e9
    assert needed == pytest.approx((250e6 + 1400 * 800 * 4 * 2) / 1e9)
    assert not [*memory.memory_notes(resolved, Settings(attempt_memory_gb=2.01 * needed))]
    (note,) = memory.memory_notes(resolved, Settings(attempt_memory_gb=1.99 * needed))
    assert f"up to {needed:.1f} GB" in note
    check_request(resolved, Settings(attempt_memory_gb=1.01 * needed))
    with pytest.raises(RequestRefusedError, match="SWATHMILL_ATTEMPT_MEMORY_GB"):
        check_request(resolved, Settings(attempt_memory_gb=0.99 * needed))


@pytest.mark.parametrize(
    ("changes", "pixel"),
    [
        ({"units": "stored"}, STRIPES * 2),
        ({"products": [LEAF]}, STRIPES * 4),
        ({"products": [{**LEAF, "overlap": "mean"}]}, STRIPES * 4 + MEAN_BYTES),
    ],
)
def test_a_large_raster_takes_the_memory_of_its_stripes(
    changes: dict[str, Any], pixel: int
) -> None:
    """Whatever its height, for it is written stripe by stripe; one of a record's, too."""
    large = document(grid={"crs": "EPSG:4326", "resolution": 0.0001}, **changes)
    stripes = (memory.OWN_BYTES + pixel * 512 * 140_000) / 1e9
    limits = Settings(max_pixels=10**11, attempt_memory_gb=1.001 * stripes)
    assert resolve(large).target.grid.pixels == 140_000 * 80_000
    check_request(resolve(large), limits)
    less = Settings(max_pixels=10**11, attempt_memory_gb=0.999 * stripes)
    with pytest.raises(RequestRefusedError, match="SWATHMILL_ATTEMPT_MEMORY_GB"):
        check_request(resolve(large), less)
