"""Pages, tables, explanations, STAC items and tags say of a raster what its file holds."""

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import rasterio
import rasterio.warp

from reprojection.explain.explain import explain
from reprojection.grid.grids import Grid
from reprojection.read.description import Band, Provenance, SourceGranule
from reprojection.read.raster import Raster
from reprojection.write.stac import stac_item
from reprojection.write.write import write_cog
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tests.portal.deliveries import LAI, LAYER
from tests.portal.scripted import LivePortal, put_result, set_row
from tests.portal.submissions import submitted

DAY = "2012-01-01"


@dataclass(frozen=True)
class Kind:
    """A kind of layer: stored type, scale, offset, CRS, size of a pixel, share of valid pixels."""

    dtype: str
    scale: float
    offset: float
    crs: str
    pixel: float
    valid: float


KINDS = (
    Kind("uint8", 0.1, 0.0, "EPSG:4326", 0.01, 0.9),
    Kind("int16", -0.02, 300.0, "EPSG:3035", 500.0, 0.5),
    Kind("float32", 1.0, 0.0, "EPSG:4326", 0.1, 0.02),
    Kind("float64", 1.0, 0.0, "EPSG:32631", 1000.0, 0.3),
    Kind("uint16", 0.0001, 0.0, "EPSG:4326", 0.05, 0.0005),
)


def made(kind: Kind, seed: int, path: Path) -> Raster:
    """Write a random raster: of float64 those are times in seconds, with many digits."""
    rng = np.random.default_rng(seed)
    height, width = int(rng.integers(40, 90)), int(rng.integers(40, 90))
    if kind.dtype == "float64":
        values = 6.1e8 + rng.uniform(0, 86_400, (height, width))
    elif kind.dtype == "float32":
        values = rng.normal(0, 3, (height, width))
    else:
        values = rng.integers(1, 200, (height, width)).astype(np.float64)
    nodata = float("nan") if kind.dtype.startswith("float") else 0
    values[rng.uniform(size=values.shape) >= kind.valid] = nodata
    left, top = (-8.0, 58.0) if kind.crs == "EPSG:4326" else (3_200_000.0, 3_400_000.0)
    if kind.crs == "EPSG:32631":
        left, top = 400_000.0, 6_400_000.0
    raster = Raster(
        data=values.astype(kind.dtype)[np.newaxis],
        grid=Grid(
            crs=kind.crs,
            transform=(kind.pixel, 0.0, left, 0.0, -kind.pixel, top),
            width=width,
            height=height,
        ),
        nodata=nodata,
        scale=kind.scale,
        offset=kind.offset,
        units="K",
        kind="continuous",
        bands=(Band(name="v"),),
        provenance=Provenance(
            product="P", collection="1", layer="L", granules=(SourceGranule(name="lost"),)
        ),
    )
    write_cog(raster, path)
    return raster


def places(raster: Raster, seed: int) -> list[tuple[float, float]]:
    """Places in degrees: anywhere, on corners, on edges, on pixels with a value, outside."""
    rng = np.random.default_rng(seed)
    a, _, c, _, e, f = raster.grid.transform
    rows, columns = raster.grid.shape
    known = np.argwhere(raster.valid())
    some = [*known[rng.integers(0, len(known), 3)].astype(float) + 0.5] if len(known) else []
    some += [rng.uniform((0, 0), (rows, columns)) for _ in range(2)]
    some += [rng.integers((0, 0), (rows + 1, columns + 1)).astype(float) for _ in range(2)]
    some += [np.array([0.0, columns / 2]), np.array([rows / 3, float(columns)])]
    some.append(np.array([-1.0, 3.0]))
    if raster.grid.crs != "EPSG:4326":  # degrees of a corner are rounded: they may name a neighbour
        some = [np.where(place == np.floor(place), place + 0.001, place) for place in some]
    x, y = [c + col * a for _, col in some], [f + row * e for row, _ in some]
    lons, lats = rasterio.warp.transform(raster.grid.crs, "EPSG:4326", x, y)
    return list(zip(lons, lats, strict=True))


def of_file(path: Path, lon: float, lat: float) -> float | None:
    """What rasterio reads at a place, scaled; None outside and without a value."""
    with rasterio.open(path) as dataset:
        (x,), (y,) = rasterio.warp.transform("EPSG:4326", dataset.crs, [lon], [lat])
        row, column = dataset.index(x, y)
        if not (0 <= row < dataset.height and 0 <= column < dataset.width):
            return None
        stored: Any = dataset.read(1, masked=True)[row, column]
        if np.ma.is_masked(stored):
            return None
        scale, offset = float(dataset.scales[0]), float(dataset.offsets[0])
        return float(stored) * scale + offset


def of_page(client: httpx.Client, base: str, at: dict[str, str | float]) -> tuple[str, str]:
    """The value on the page, and that of the table that the page leads to."""
    text = client.get(f"{base}/point", params=at).text
    shown = re.search(r"<b>([^<]+)</b>", text)
    table = client.get(f"{base}/series.csv", params={k: v for k, v in at.items() if k != "date"})
    (line,) = csv.DictReader(io.StringIO(table.text))
    return (shown[1].removesuffix(" K") if shown else ""), list(line.values())[-1]


def facts_of(page: str) -> dict[str, float]:
    found = re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", page)
    return {name: float(value) for name, value in found}


def delivered(runtime: Runtime, path: Path) -> str:
    name = submitted(runtime)
    put_result(runtime, name, LAI, f"MCD15A2.005.Lai_1km.{DAY}.tif", path.read_bytes())
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=1, delivered=1, ended=1e9)
    return f"/requests/{name}/map"


# In CI one raster of each of three kinds; as proofs all kinds, ten times.
CASES = [
    pytest.param(
        kind, seed, marks=[pytest.mark.proof] * (seed > 1 or kind.dtype in ("uint8", "float32"))
    )
    for kind in KINDS
    for seed in range(1, 11)
]


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_all_tell_the_pixels_of_the_file(
    portal: LivePortal, runtime: Runtime, tmp_path: Path, kind: Kind, seed: int
) -> None:
    path = tmp_path / "a.tif"
    raster = made(kind, seed, path)
    base = delivered(runtime, path)
    with portal.client() as client:
        for lon, lat in places(raster, seed):
            truth = of_file(path, lon, lat)
            shown, listed = of_page(
                client, base, {"layer": LAYER, "date": DAY, "lon": lon, "lat": lat}
            )
            if truth is None:
                assert (shown in ("", "no value"), listed) == (True, ""), (lon, lat)
                continue
            assert shown == listed
            assert np.dtype(kind.dtype).type(float(shown)) == np.dtype(kind.dtype).type(
                truth
            ) or float(shown) == pytest.approx(truth, rel=1e-14)
            assert explain(path, lon, lat).value == pytest.approx(truth, rel=1e-15)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.dtype} {kind.valid}")
def test_all_tell_the_statistics_of_the_file(
    portal: LivePortal, runtime: Runtime, tmp_path: Path, kind: Kind
) -> None:
    path = tmp_path / "a.tif"
    raster = made(kind, 7, path)
    base = delivered(runtime, path)
    values = raster.values(0)
    known = values[np.isfinite(values)]
    with portal.client() as client:
        page = client.get(f"{base}/statistics", params={"layer": LAYER, "date": DAY}).text
    said = facts_of(page)
    item: Any = stac_item(path)
    (band,) = item["assets"]["data"]["bands"]
    tags = rasterio.open(path).tags(1)
    share = 100 * known.size / values.size
    assert f"{share:.1f}% of pixels have a value" in page
    assert band["statistics"]["valid_percent"] == pytest.approx(share)
    for name, of_item, of_tag, truth in (
        ("least", "minimum", "MINIMUM", known.min()),
        ("greatest", "maximum", "MAXIMUM", known.max()),
        ("mean", "mean", "MEAN", known.mean()),
        ("standard deviation", "stddev", "STDDEV", known.std()),
    ):
        assert said[name] == pytest.approx(truth, rel=1e-4)
        assert band["statistics"][of_item] == pytest.approx(truth, rel=1e-7)
        stored = float(tags[f"STATISTICS_{of_tag}"])
        if kind.scale > 0 and of_tag != "STDDEV":
            assert stored * kind.scale + kind.offset == pytest.approx(truth, rel=1e-7)
    counts = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) pixels</title>", page)]
    assert sum(counts) == known.size
    assert "reduced" not in page


def test_bins_hold_equally_many_stored_values(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    """Each of 30 stored values occurs 100 times: bins of unequal width would make a comb."""
    plane = np.repeat(np.arange(1, 31, dtype=np.uint8), 100).reshape(60, 50)
    raster = made(KINDS[0], 1, tmp_path / "b.tif")
    path = tmp_path / "a.tif"
    grid = Grid(crs="EPSG:4326", transform=raster.grid.transform, width=50, height=60)
    write_cog(
        Raster(
            data=plane[np.newaxis],
            grid=grid,
            nodata=0,
            scale=0.1,
            offset=0.0,
            units="K",
            kind="continuous",
            bands=raster.bands,
            provenance=raster.provenance,
        ),
        path,
    )
    with portal.client() as client:
        page = client.get(
            f"{delivered(runtime, path)}/statistics", params={"layer": LAYER, "date": DAY}
        ).text
    counts = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) pixels</title>", page)]
    assert sum(counts) == 3000
    assert set(counts[1:-1]) == {200}
