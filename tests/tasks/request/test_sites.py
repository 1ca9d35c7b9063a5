"""Sites of a request: what is read, what is refused, and that they survive being stored."""

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import RequestRefusedError
from tasks.request import sites
from tasks.request.document import dump_request, parse_request
from tasks.request.region.kinds import region_tiles
from tasks.request.request_file import load_request
from tasks.request.sites import MOST_SITES, load_sites, parse_sites, sites_text

TABLE = "id,latitude,longitude,cover\nMoor,56.6,-6.7,shrubs\nDunes,51.8,4.7,\n"
SQUARE = {"type": "Polygon", "coordinates": [[[4, 51], [5, 51], [5, 52], [4, 52], [4, 51]]]}
LAKE: dict[str, Any] = {
    "type": "FeatureCollection",
    "features": [{"type": "Feature", "id": "Lake", "properties": {"deep": 3}, "geometry": SQUARE}],
}
REQUEST: dict[str, Any] = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"sites": TABLE},
    "time": {"start": "2012-04-13", "end": "2012-04-15"},
}


def test_a_table_keeps_its_further_columns() -> None:
    moor, dunes = parse_sites(TABLE)
    assert (moor.name, moor.lat, moor.lon, moor.columns) == (
        "Moor",
        56.6,
        -6.7,
        (("cover", "shrubs"),),
    )
    assert dunes.columns == (("cover", ""),)


@pytest.mark.parametrize("text", [TABLE.replace(",", ";"), "\ufeff" + TABLE, TABLE.upper()])
def test_tables_as_programs_write_them(text: str) -> None:
    assert [site.lat for site in parse_sites(text)] == [56.6, 51.8]


def test_polygons_have_a_point_inside_and_come_back_from_a_specification() -> None:
    (lake,) = parse_sites(LAKE)
    assert (lake.name, lake.columns) == ("Lake", (("deep", "3"),))
    assert lake.area is not None
    assert lake.area.contains(lake.area.representative_point())
    assert load_sites(sites_text([lake])) == (lake,)
    assert parse_sites(json.dumps(LAKE)) == (lake,)


@pytest.mark.parametrize(
    ("sites", "problem"),
    [
        ('id,latitude,longitude\nA\rB,1,2\n"', "not a CSV table"),
        ("", "no column 'id'"),
        ("id,latitude,longitude", "there is no site"),
        ("id,lat,lon_deg\nA,1,2", "no column 'longitude', its first line is id, lat, lon_deg"),
        ("id,lat,lon\nA,91,1", "line 2 has the latitude '91'"),
        ('id,lat,lon\nA,"56,6",1', "with a decimal point"),
        ("id,lat,lon\nA,nan,1", "line 2 has the latitude 'nan'"),
        ("id,lat,lon\nA,1,1\nA,2,2", "'A' is given twice"),
        ("id,lat,lon\n,1,1", "has no id"),
        ("id,lat,lon\nA,1", "line 2 has 2 cells"),
        ("id,lat,lon,value\nA,1,1,5", "the column 'value'"),
        ({"type": "Polygon"}, "not a GeoJSON FeatureCollection"),
    ],
)
def test_what_is_no_list_of_sites(sites: object, problem: str) -> None:
    with pytest.raises(RequestRefusedError, match=problem) as refused:
        parse_request({**REQUEST, "region": {"sites": sites}})
    assert refused.value.field == "region.sites"


@pytest.mark.parametrize(
    "more", [{"grid": {"modis": 500}}, {"cube": "netcdf"}, {"resampling": "nearest"}]
)
def test_what_concerns_rasters_alone_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(RequestRefusedError, match="has no meaning for sites"):
        parse_request({**REQUEST, **more})


def test_overpasses_of_sites_are_always_rows_of_their_own() -> None:
    products = [{**REQUEST["products"][0], "overpasses": "all"}]
    with pytest.raises(RequestRefusedError, match="`overpasses` has no meaning for sites"):
        parse_request({**REQUEST, "products": products})


def test_a_request_without_sites_still_needs_a_grid() -> None:
    with pytest.raises(RequestRefusedError, match="grid"):
        parse_request({**REQUEST, "region": {"bbox": [0, 50, 1, 51]}})


def test_a_request_comes_back_as_it_was_stored() -> None:
    request = parse_request(REQUEST)
    assert parse_request(json.loads(dump_request(request))) == request
    assert {tile.name for tile in region_tiles(request.region)} == {"h17v03", "h18v03"}


def test_a_file_is_read_from_the_folder_of_the_request(tmp_path: Path) -> None:
    (tmp_path / "towers.csv").write_text(TABLE)
    document = tmp_path / "request.json"
    document.write_text(json.dumps({**REQUEST, "region": {"sites": "towers.csv"}}))
    assert load_request(document).region.sites == TABLE.strip()
    (tmp_path / "towers.csv").unlink()
    with pytest.raises(RequestRefusedError, match=r"towers\.csv cannot be read"):
        load_request(document)


def test_so_many_sites_are_taken_and_no_more() -> None:
    lines = [f"s{number},1,2" for number in range(MOST_SITES)]
    assert len(parse_sites("\n".join(["id,lat,lon", *lines]))) == 5_000
    with pytest.raises(ValueError, match=r"are 5,001 sites, and 5,000 are allowed; ask in several"):
        parse_sites("\n".join(["id,lat,lon", *lines, "more,1,2"]))


def test_the_vertices_of_all_polygons_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sites.MOST_VERTICES == 50_000
    monkeypatch.setattr(sites, "MOST_VERTICES", 10)
    features = [{**LAKE["features"][0], "id": name} for name in ("Lake", "Pond")]
    two = {"type": "FeatureCollection", "features": features}
    assert len(parse_sites(two)) == 2
    monkeypatch.setattr(sites, "MOST_VERTICES", 9)
    with pytest.raises(ValueError, match="have 10 vertices, and 9 are allowed; simplify them"):
        parse_sites(two)
