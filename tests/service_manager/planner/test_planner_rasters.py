"""Users' rasters among products: which runs, files and gaps a person counts."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from reprojection.catalogue.layers import LayerKind
from reprojection.catalogue.user_raster import RasterLayer, UserRaster
from tasks.bag.spec import CollectSpec, GroupSpec, MosaicSpec, ReduceSpec, ReprojectSpec
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages
from tasks.packages.rasters import ExactRaster
from tasks.request.document import Request, parse_request
from tasks.request.resolved import resolve
from tasks.requests.plan import Plan
from tests.service_manager.shelf import LIMITS, Shelf, plan, specs, tile_granule

SNOW = {"name": "MOD10A1", "collection": "6", "layers": ["NDSI_Snow_Cover"]}
HILLS = {"name": "raster:hills", "layers": ["metres"], "use": "static"}
RING = ((0.0, 50.0), (15.0, 50.0), (15.0, 60.0), (0.0, 60.0))
FAR = ((100.0, 10.0), (110.0, 10.0), (110.0, 20.0), (100.0, 20.0))
JANUARY = [dt.date(2012, 1, day) for day in (2, 3, 4)]


def raster(*days: dt.date, outline: Any = RING, period: int = 1) -> ExactRaster:
    layers = tuple(
        RasterLayer(name=name, dtype="int16", kind=kind)
        for name, kind in (("metres", LayerKind.CONTINUOUS), ("zone", LayerKind.CLASS))
    )
    said = UserRaster(
        name="hills",
        crs="EPSG:4326",
        transform=(0.01, 0.0, 0.0, 0.0, -0.01, 60.0),
        width=1500,
        height=1000,
        resolution=1113.0,
        outline=(outline,),
        layers=layers,
        days=days,
        period=period,
    )
    return ExactRaster(raster=said, digest="ab" * 32, size=1000, owner="ada", version="1")


def document(*products: dict[str, Any], exact: ExactRaster | None = None, **more: Any) -> Request:
    request = parse_request(
        {
            "products": [*products],
            "region": {"tiles": ["h18v03"]},
            "time": {"start": "2012-01-02", "end": "2012-01-04"},
            "grid": {"modis": 1000},
            **more,
        }
    )
    chosen = tuple(
        one.exact_as(exact or raster()) if one.name.startswith("raster:") else one
        for one in request.products
    )
    return request.model_copy(update={"products": chosen})


def reduced(tmp_path: Path, *products: dict[str, Any], **more: Any) -> Plan:
    own = tmp_path / "own"
    own.mkdir(exist_ok=True)
    own.joinpath("package.yaml").write_text(
        "name: own\ncommand: [sh, own.sh]\noutputs: [et.tif]\nrequires: all\n"
        "takes: [continuous, class]\n"
    )
    own.joinpath("own.sh").write_text("exit 0\n")
    reduction = {"package": "own", "group_by": ["cell", "date"]}
    request = document(*products, **{"reduction": reduction, "deliver": "results", **more})
    shelf = Shelf(records=[tile_granule(day, 18, 3, "MOD10A1", "6") for day in JANUARY])
    return plan(request, shelf, Packages([tmp_path]), LIMITS)


def test_a_static_raster_with_a_daily_product(tmp_path: Path) -> None:
    """Of the ten requests: three days, each a run with the one raster; three files; no gap."""
    found = reduced(tmp_path, SNOW, HILLS)
    assert len(specs(found, ReduceSpec)) == len(specs(found, MosaicSpec)) == 3
    assert found.gaps == ()
    mine = [one for one in specs(found, ReprojectSpec) if one.product == "raster:hills"]
    (collected,) = [one for one in specs(found, CollectSpec) if one.source == "raster"]
    (cell,) = mine
    assert [given.key for given in cell.inputs] == [collected.key]
    assert (cell.day, cell.layer) == (dt.date.min, "metres")
    for group in specs(found, GroupSpec):
        assert [band.product for band in group.bands] == ["MOD10A1", "raster:hills"]
        assert cell.key in {given.key for given in group.inputs}


def test_which_dates_of_a_raster_are_taken(tmp_path: Path) -> None:
    dates = raster(dt.date(2011, 12, 30), dt.date(2012, 1, 3))
    for use, taken in (
        ("previous", ["2011-12-30", "2012-01-03", "2012-01-03"]),
        ("nearest", ["2012-01-03", "2012-01-03", "2012-01-03"]),
        ("static", ["2011-12-30"] * 3),
    ):
        hills = {**HILLS, "use": use, "look_back": 8}
        found = reduced(tmp_path, SNOW, hills, exact=dates)
        bands = [
            str(band.day)
            for group in sorted(specs(found, GroupSpec), key=lambda one: one.window)
            for band in group.bands
            if band.product == "raster:hills"
        ]
        assert bands == taken, use
        layers = {one.layer for one in specs(found, ReprojectSpec) if "hills" in one.product}
        numbers = {"2011-12-30": "metres[0]", "2012-01-03": "metres[1]"}
        assert layers == {numbers[day] for day in taken}


def test_a_raster_that_covers_several_days(tmp_path: Path) -> None:
    dates = raster(dt.date(2012, 1, 1), dt.date(2012, 1, 4), period=3)
    found = reduced(tmp_path, SNOW, {**HILLS, "use": "covering"}, exact=dates)
    bands = {
        group.window: [str(band.day) for band in group.bands if "hills" in band.product]
        for group in specs(found, GroupSpec)
    }
    assert bands == {
        "2012-01-02": ["2012-01-01"],
        "2012-01-03": ["2012-01-01"],
        "2012-01-04": ["2012-01-04"],
    }


def test_a_raster_elsewhere_is_a_gap_and_no_run(tmp_path: Path) -> None:
    far = raster(outline=FAR)
    found = reduced(tmp_path, SNOW, HILLS, exact=far, deliver="both")
    assert specs(found, ReduceSpec) == []
    assert "raster.hills" in {gap.what for gap in found.gaps}
    with pytest.raises(RequestRefusedError, match="raster:hills has no date") as refused:
        reduced(tmp_path, SNOW, HILLS, exact=far)
    assert refused.value.field == "products.1"


def test_a_raster_alone_is_put_onto_the_grid_once() -> None:
    request = document({**HILLS, "use": "same-day", "layers": ["metres", "zone"]})
    found = plan(request, Shelf(records=[]), Packages.of(LIMITS), LIMITS)
    assert sorted(one.name for one in specs(found, MosaicSpec)) == [
        "raster.hills.metres.2012-01-02",
        "raster.hills.zone.2012-01-02",
    ]
    assert found.gaps == ()
    methods = {one.layer: one.resampling for one in specs(found, ReprojectSpec)}
    assert methods == {"metres": "bilinear", "zone": "nearest"}


def test_a_raster_alone_elsewhere_is_refused() -> None:
    request = document({**HILLS, "use": "same-day"}, exact=raster(outline=FAR))
    with pytest.raises(RequestRefusedError, match="does not touch the region"):
        plan(request, Shelf(records=[]), Packages.of(LIMITS), LIMITS)


def test_a_request_of_other_days_shares_the_cell_of_a_raster_of_no_date(tmp_path: Path) -> None:
    cells = [
        one.key
        for span in (
            {"start": "2012-01-02", "end": "2012-01-03"},
            {"start": "2012-01-03", "end": "2012-01-04"},
        )
        for one in specs(reduced(tmp_path, SNOW, HILLS, time=span), ReprojectSpec)
        if one.product == "raster:hills"
    ]
    assert len(cells) == 2
    assert len({*cells}) == 1


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"layers": ["feet"]}, "products.1.layers.0", "has no layer 'feet'"),
        ({"use": "nearest"}, "products.1.use", "is of no date"),
        ({"day_night": "day"}, "products.1", "neither of day or night"),
        ({"overpasses": "all"}, "products.1", "nor of an overpass"),
    ],
)
def test_what_has_no_meaning_for_a_raster_is_refused(
    change: dict[str, Any], field: str, words: str
) -> None:
    reduction = {"package": "mean", "group_by": ["cell", "date"]}
    with pytest.raises(RequestRefusedError, match=words) as refused:
        resolve(document(SNOW, {**HILLS, **change}, reduction=reduction))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("product", "words"),
    [
        ({**HILLS, "collection": "6"}, "which has no collection"),
        ({"name": "MOD10A1", "layers": ["x"]}, "is missing"),
        ({**HILLS, "name": "raster:Hills!"}, "name"),
    ],
)
def test_a_raster_has_a_name_and_no_collection(product: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestRefusedError, match=words):
        document(product)


def test_a_raster_that_was_not_looked_up_is_refused() -> None:
    request = parse_request(
        document(SNOW).model_dump(mode="json")
        | {"products": [HILLS], "reduction": {"package": "mean"}}
    )
    with pytest.raises(RequestRefusedError, match="raster:hills is not known here"):
        resolve(request)
