"""Values within polygons: those of exactextract on the delivered files, and what is refused."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import rasterio
import shapely
from exactextract import exact_extract
from exactextract.raster import NumPyRasterSource
from shapely import Polygon

from portal.polygons import polygons_api, zones
from portal.polygons.state import MOST_COMPUTING, Polygons
from reprojection.read.raster import Raster
from swathmill.client import Client
from tasks.accounts.token_table import Scope, make_token
from tasks.answers.polygons import PolygonValues
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.request.region.files import read_features
from tests.portal.deliveries import ADA, BEN, LAI, LAYER, header
from tests.portal.results.test_one_number import DAY, KINDS, Kind, made
from tests.portal.scripted import LivePortal, client_of, put_result, set_row, take_all
from tests.portal.submissions import submitted

GEOD = pyproj.Geod(ellps="WGS84")
SQUARE = shapely.box(-1.5, 54.5, -0.5, 55.5)


def feature(area: shapely.Geometry, name: str = "") -> dict[str, Any]:
    geometry = json.loads(shapely.to_geojson(area))
    return {"type": "Feature", "properties": {"name": name}, "geometry": geometry}


def collection(*areas: shapely.Geometry) -> bytes:
    features = [feature(area, f"f{number}") for number, area in enumerate(areas)]
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


def delivered(runtime: Runtime, path: Path) -> str:
    name = submitted(runtime)
    put_result(runtime, name, LAI, f"MCD15A2.005.Lai_1km.{DAY}.tif", path.read_bytes())
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=1, delivered=1, ended=1e9)
    return name


def asked(
    portal: LivePortal, name: str, data: bytes, owner: str = ADA, **parameters: str
) -> tuple[int, Any]:
    with portal.client(owner) as client:
        answer = client.post(f"/api/requests/{name}/polygons", content=data, params=parameters)
    is_json = "json" in answer.headers["content-type"]
    return answer.status_code, answer.json() if is_json else answer.text


def random_areas(raster: Raster, seed: int, count: int) -> list[Polygon]:
    """Polygons around places of a raster, of less than a pixel up to half of it; edges cut some."""
    rng = np.random.default_rng(seed)
    a, _, c, _, e, f = raster.grid.transform
    rows, columns = raster.grid.shape
    found: list[Polygon] = []
    while len(found) < count:
        angles = np.sort(rng.uniform(0, 2 * np.pi, int(rng.integers(3, 15))))
        radius = float(rng.choice([0.4, 4.0, 25.0])) * rng.uniform(0.2, 1.0, angles.size)
        column, row = rng.uniform((0, 0), (columns, rows))
        x = c + a * (column + radius * np.cos(angles))
        y = f + e * (row + radius * np.sin(angles))
        lon, lat = raster.grid.system.to_lonlat(x, y)
        area = Polygon(np.stack([lon, lat], axis=1))
        if area.is_valid and area.area > 0:
            found.append(area)
    return found


def oracle(path: Path, areas: Sequence[Polygon]) -> list[dict[str, float]]:
    """What exactextract says of the file as rasterio reads it, weighted by geodesic areas."""
    with rasterio.open(path) as dataset:
        stored = dataset.read(1, masked=True).astype(np.float64)
        values = (stored * dataset.scales[0] + dataset.offsets[0]).filled(np.nan)
        box, to_crs = dataset.bounds, pyproj.Transformer.from_crs(4326, dataset.crs, always_xy=True)
        weights = cell_areas(dataset, to_crs)
    dense = [shapely.segmentize(area, max(area.length / 4000, 1e-5)) for area in areas]

    def place(points: Any) -> Any:
        return np.stack(to_crs.transform(points[:, 0], points[:, 1]), axis=1)

    placed = [shapely.transform(one, place) for one in dense]
    found = exact_extract(
        NumPyRasterSource(values, *box, nodata=np.nan),
        [
            {"type": "Feature", "properties": {}, "geometry": shapely.geometry.mapping(one)}
            for one in placed
        ],
        ["mean=weighted_mean", "std=weighted_stdev", "count=count"],
        weights=NumPyRasterSource(weights, *box),
    )
    return [one["properties"] for one in found]


def cell_areas(dataset: Any, to_crs: pyproj.Transformer) -> Any:
    """The areas of cells between geodesics, of a geographic grid between parallels."""
    is_projected = dataset.crs.is_projected
    rows, columns = np.indices((dataset.height, dataset.width if is_projected else 1))
    shifts = ((0, 0), (0, 1), (1, 1), (1, 0))
    corners = [dataset.transform @ (columns + i, rows + j) for i, j in shifts]
    x, y = (np.stack([corner[n] for corner in corners], axis=-1) for n in (0, 1))
    lon, lat = to_crs.transform(x, y, direction="INVERSE")
    rings: Any = shapely.polygons(np.stack([lon, lat], axis=-1))
    if not is_projected:
        rings = shapely.segmentize(rings, abs(dataset.transform.a) / 8)
    areas = [abs(GEOD.geometry_area_perimeter(one)[0]) for one in rings.ravel()]
    return np.broadcast_to(np.reshape(areas, rings.shape), dataset.shape)


# In CI 50 polygons in degrees and 50 in metres; as proofs 1,000 on rasters of five kinds.
CASES = [
    pytest.param(
        kind, seed, marks=[pytest.mark.proof] * (seed > 1 or kind.dtype not in ("uint8", "int16"))
    )
    for kind in KINDS
    for seed in range(1, 5)
]


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_values_are_those_of_exactextract_on_the_file(
    portal: LivePortal, runtime: Runtime, tmp_path: Path, kind: Kind, seed: int
) -> None:
    path = tmp_path / "a.tif"
    raster = made(kind, seed, path)
    areas = random_areas(raster, seed, 50)
    status, said = asked(portal, delivered(runtime, path), collection(*areas))
    assert status == 200, said
    assert len(said["series"]) == len(areas)
    step = 1e-9 * abs(raster.scale) + 1e-6 * float(np.nanstd(raster.values(0)))
    for one, truth in zip(said["series"], oracle(path, areas), strict=True):
        if not one["values"]:
            assert "outside" in one["note"]
            continue
        (at,) = one["values"]
        if truth["count"] < 1e-5:
            assert at["count"] < 1e-4
            continue
        assert at["count"] == pytest.approx(truth["count"], rel=1e-5, abs=2e-5)
        assert at["mean"] == pytest.approx(truth["mean"], rel=1e-9, abs=20 * step)
        assert at["std"] == pytest.approx(truth["std"], rel=1e-4, abs=20 * step)
        assert 0 < at["valid_share"] <= 1 + 1e-12


def test_polygons_and_points_together_by_date_in_json_and_csv(
    portal: LivePortal, mapped: str
) -> None:
    """The point has the value that the map has, the polygon around one pixel the same."""
    place = (-1.02, 55.02)
    pixel = shapely.box(-1.05, 55.0, -1.0, 55.05)
    data = json.dumps(
        {
            "type": "FeatureCollection",
            "features": [
                feature(SQUARE, "=north"),
                feature(shapely.Point(place)),
                feature(shapely.Point(100, 0), "far"),
                feature(pixel),
            ],
        }
    ).encode()
    status, said = asked(portal, mapped, data, layer="Lai_1km")
    assert status == 200, said
    north, point, far, one = said["series"]
    assert [len(each["values"]) for each in said["series"]] == [2, 2, 0, 2]
    assert said["weights"] == "area on the WGS84 ellipsoid"
    assert (north["polygon"], point["polygon"], far["polygon"]) == ("=north", "point 2", "far")
    assert (point["kind"], point["values"][0]["std"], point["pixels"]) == ("point", None, 1.0)
    assert "outside" in far["note"]
    assert (one["pixels"], one["values"][0]["std"]) == (pytest.approx(1), pytest.approx(0))
    status, table = asked(portal, mapped, data, layer=LAYER, format="csv", end="2012-01-05")
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["date"] for row in rows] == ["2012-01-01", "2012-01-01", "", "2012-01-01"]
    assert rows[0]["polygon"] == "'=north"
    assert float(rows[0]["mean"]) == north["values"][0]["mean"]
    with portal.client() as client:
        at: dict[str, str | float] = {"layer": LAYER, "lon": place[0], "lat": place[1]}
        listed = client.get(f"/requests/{mapped}/map/series.csv", params=at).text.splitlines()
    assert float(listed[1].rpartition(",")[2]) == pytest.approx(point["values"][0]["mean"])


def test_a_polygon_that_reaches_beyond_counts_what_lies_within(
    portal: LivePortal, mapped: str
) -> None:
    status, said = asked(portal, mapped, collection(shapely.box(-30, 54, -7, 60)))
    assert status == 200
    assert "beyond the raster" in said["series"][0]["note"]
    assert said["series"][0]["values"][0]["valid_share"] <= 1


@pytest.mark.parametrize(
    ("data", "status", "why"),
    [
        (collection(shapely.box(100, 0, 101, 1)), 422, "outside the results' raster"),
        (collection(shapely.LineString([(0, 55), (1, 56)])), 422, "no polygon and no point"),
        (collection(shapely.box(-179, 0, 179, 1)), 422, "which way around the Earth"),
        (collection(shapely.box(-10, 50, 10, 95)), 422, "off the Earth"),
        (b"", 422, ""),
        (collection(*[SQUARE] * 51), 422, "51 polygons and points, and 50 are the most"),
    ],
)
def test_what_gives_no_values_is_refused_with_what_to_do(
    portal: LivePortal, mapped: str, data: bytes, status: int, why: str
) -> None:
    got, said = asked(portal, mapped, data)
    assert got == status, said
    assert why in said["detail"] + said["remedy"]
    assert said["remedy"]


def test_a_call_takes_no_more_pixels_than_it_may(
    portal: LivePortal, mapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = shapely.box(-1.5, 54.5, -0.5, 55.0)  # 20 x 10 pixels
    monkeypatch.setattr(zones, "MOST_PIXELS", 2 * 200)
    assert asked(portal, mapped, collection(box))[0] == 200
    monkeypatch.setattr(zones, "MOST_PIXELS", 2 * 200 - 1)
    status, said = asked(portal, mapped, collection(box))
    assert (status, "1 of 2 rasters were read" in said["detail"]) == (422, True)
    assert "Name fewer layers" in said["remedy"]


def test_a_call_takes_no_more_time_than_it_may(
    portal: LivePortal, mapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zones, "MOST_SECONDS", -1.0)
    status, said = asked(portal, mapped, collection(SQUARE))
    assert (status, "0 of 2 rasters were read" in said["detail"]) == (422, True)


def test_few_are_computed_at_once(portal: LivePortal, mapped: str) -> None:
    take_all(portal.inner.state(Polygons).computing, MOST_COMPUTING)
    assert asked(portal, mapped, collection(SQUARE))[0] == 503


def test_who_only_reads_may_ask(portal: LivePortal, runtime: Runtime, mapped: str) -> None:
    """A question in a body changes nothing: a token that only reads and a link are enough."""
    now = runtime.clock.now()
    token, _ = make_token(
        runtime.store, owner=ADA, role="scientist", scope=Scope.READ, name="x", now=now, days=2
    )
    address = f"/api/requests/{mapped}/polygons"
    with client_of(portal.url, {"Authorization": f"Bearer {token}"}) as client:
        assert client.post(address, content=collection(SQUARE)).status_code == 200
        assert client.post(f"/api/requests/{mapped}/cancel").status_code == 403
    with portal.client() as ada, portal.visitor() as shown:
        link = ada.post(f"/api/requests/{mapped}/links").json()["url"]
        shown.get(link[link.index("/open") :]).raise_for_status()
        assert shown.post(address, content=collection(SQUARE)).status_code == 200
        assert shown.post(f"/api/requests/{mapped}/cancel").status_code == 401
    assert asked(portal, mapped, collection(SQUARE), BEN)[0] == 404


def test_the_python_client_takes_a_file_a_mapping_and_a_geometry(
    portal: LivePortal, mapped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "field.wkt"
    path.write_text(SQUARE.wkt)
    token = header(ADA)["Authorization"].removeprefix("Bearer ")
    job = Client(url=portal.url, token=token).job(mapped)
    by_path = job.polygons(path, layers=["Lai_1km"], until="2012-01-05")
    (one,) = by_path.series
    assert [at.date for at in one.values] == ["2012-01-01"]
    monkeypatch.setattr(polygons_api, "features_apart", read_features)
    assert job.polygons(SQUARE, until="2012-01-05").series == by_path.series
    assert job.polygons(feature(SQUARE), until="2012-01-05").series[0].values == one.values


def test_shares_of_classes_add_up_by_area_the_greatest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values, shares = np.array([2.0, 0.0, 2.0, 7.0]), np.array([0.2, 0.4, 0.3, 0.1])
    found = zones._classes(values, shares, {0: "water", 2: "forest"})
    assert [(one.value, one.name) for one in found] == [(2, "forest"), (0, "water"), (7, "")]
    assert [one.share for one in found] == pytest.approx([0.5, 0.4, 0.1])
    at = PolygonValues(date="", mean=None, std=None, valid_share=1, count=4, classes=found)
    assert polygons_api.classes_text(at) == "2 forest 0.5; 0 water 0.4; 7 0.1"
    for most in (3, 2):
        monkeypatch.setattr(zones, "MOST_CLASSES", most)
        assert bool(zones._classes(values, shares, {})) == (most == 3)
