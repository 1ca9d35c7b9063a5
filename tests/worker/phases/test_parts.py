"""Sites and small regions are read from parts of granules: less is fetched, the values are the
same, holes heal."""

import io
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet
import pytest

from archives.errors import AnswerBrokenError, ArchiveError, DownloadFailedError
from archives.fetch.files import LocalFiles
from archives.fetch.parts import WholeOnlyError
from archives.kinds.folder import FolderArchive
from archives.model import Ring
from archives.sources import Sources
from modis.box import LonLatBox
from modis.formats import is_granule_file
from modis.tile import TILE_SIZE
from portal.results.explanations import granules_of
from reprojection import catalogue
from reprojection.formats.held import PACKED
from reprojection.read.outline import read_outlines
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    GridToWrite,
    write_granule,
)
from reprojection.warp.sites import touch_sites
from service_manager.planner import parts as choice
from service_manager.planner.cells import places
from service_manager.planner.draft import Draft
from service_manager.planner.plan_stream import PlanStream
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.site_specs import ExtractSpec, SitesSpec, TableSpec
from tasks.bag.spec import CollectSpec, LayerSpec, PartsSpec
from tasks.holdings import parts as holding
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.request.resolved import resolve
from tasks.requests.plan import Plan
from tasks.storage.blobs import GRANULES
from tasks.storage.schema import PARTS_AND_RECORDS
from tests.generated.hdf5_write import write_hdf5_granule
from tests.generated.products import write_product
from tests.reprojection.reading_samples import small_tile, wrap_up
from tests.reprojection.test_polar_grids import PIXEL
from tests.service_manager.shelf import specs, tile_granule
from tests.worker.mill import Mill
from worker.phases import parts as phase
from worker.phases import reproject as cells
from worker.phases.sites import extract
from worker.sandbox.messages import Failed, Succeeded

LAYERS = ("Lai", "Fpar", "FparLai_QC", "LaiStdDev", "FparStdDev")
SITES = "id,latitude,longitude\n" + "".join(
    f"s{n},{lat},{lon}\n"
    for n, (lat, lon) in enumerate(
        [
            (51.5, -2.2),
            (56.6, -6.7),
            (58.1, 3.4),
            *((lat, 0.001) for lat in (50.4, 52.7, 55.2, 59.3)),
        ]
    )
)


def noisy(tile: tuple[int, int], side: int) -> GranuleToWrite:
    noise = np.random.default_rng(tile)
    fields = [
        FieldToWrite(
            name=name,
            values=noise.integers(0, 100, (side, side)).astype(np.uint8),
            dims=("YDim", "XDim"),
            typed={"valid_range": (0, 100), "_FillValue": 255},
        )
        for name in LAYERS
    ]
    made = small_tile(tile, side, "VNP15A2H", 2, fields=fields)
    return replace(made, local_name=made.local_name.replace(".hdf", ".h5"))


@pytest.fixture(scope="module")
def granules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("granules")
    for tile in ((17, 3), (18, 3)):
        granule = noisy(tile, 500)
        write_hdf5_granule(folder / granule.local_name, granule, eos=True)
    return folder


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have granules of a megabyte count as large ones."""
    for module in (choice, holding):
        monkeypatch.setattr(module, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(choice, "_STRUCTURE", 100_000)


TILES = {"name": "VNP15A2H", "collection": "2", "layers": ["Lai"]}, "2012-03-05"
FIELD = {
    "region": {"bbox": [-0.06, 55.1, 0.05, 55.2]},  # on the edge of both tiles
    "grid": {"crs": "EPSG:3035", "resolution": 400},
    "resampling": "cubic",
    "qa": {"FparLai_QC": {"0": [0]}},
    "extra_bands": ["reason", "source"],
}
SWATHS = (
    {"name": "MYD04_L2", "collection": "61", "layers": ["Optical_Depth_Land_And_Ocean"]},
    "2012-04-14",
)


def planned(
    mill: Mill,
    what: tuple[dict[str, Any], str] = TILES,
    *,
    divides: bool = True,
    sites: str = SITES,
    rasters: dict[str, Any] | None = None,
    there: Callable[[str], bool] = lambda _: False,
) -> Plan:
    request = parse_request(
        {
            "products": [what[0]],
            "time": {"start": what[1], "end": what[1]},
            **(rasters or {"region": {"sites": sites}}),
        }
    )
    folder = FolderArchive(mill.archive, mill.folder / "index.sqlite", read_outlines)
    source: Any = Sources([folder]) if divides else folder
    course = PlanStream(request, source, Packages.of(mill.settings), mill.settings, there)
    tasks = {task.key: task for stretch in course.stretches() for task in stretch.tasks()}
    return Plan(tasks=tuple(tasks.values()), gaps=tuple(course.gaps()), notes=course.notes)


def rows(mill: Mill, found: Plan) -> list[dict[str, Any]]:
    """Make a plan but for its table; what its extraction read."""
    made = {
        task.key: mill.make(task.spec) for task in found if not isinstance(task.spec, TableSpec)
    }
    (extraction,) = specs(found, ExtractSpec)
    data = mill.fetch(made[extraction.key][0]).read_bytes()
    return cast("list[dict[str, Any]]", pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist())


def collected(mill: Mill, key: str) -> tuple[ArtifactFile, ...]:
    return mill.world.task(key).files


def test_sites_take_a_part_of_the_granules_and_have_the_same_values(
    granules: Path, tmp_path: Path
) -> None:
    """Some sites lie at the edge of both tiles: each is read as if the other were there."""
    mill, other = Mill(tmp_path / "parts", granules), Mill(tmp_path / "whole", granules)
    found, whole = planned(mill), planned(other, divides=False)
    assert [len(specs(found, kind)) for kind in (PartsSpec, CollectSpec)] == [2, 0]
    assert [len(specs(whole, kind)) for kind in (PartsSpec, CollectSpec)] == [0, 2]
    read = rows(mill, found)
    assert read == rows(other, whole)
    assert len([one for one in read if one["pixels"] == one["valid"] == 9]) == 7
    assert len([*mill.world.runtime.blobs.names(GRANULES, "structures/")]) == 2
    stored = [collected(mill, one.key) for one in specs(found, PartsSpec)]
    assert all(len(one) == 1 and one[0].name.endswith(PACKED) for one in stored)
    assert sum(file.size for one in stored for file in one) < 0.5 * sum(
        one.size for one in specs(found, PartsSpec)
    )


def test_beside_the_version_before_granules_are_fetched_whole(
    granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers cannot read such a task."""
    monkeypatch.setattr(choice, "written", lambda: PARTS_AND_RECORDS - 1)
    found = planned(Mill(tmp_path, granules))
    assert [len(specs(found, kind)) for kind in (PartsSpec, CollectSpec)] == [0, 2]
    assert "until an upgrade of this service is ended" in " ".join(found.notes)


def test_swaths_have_the_same_values(
    sample_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_LESS", 10.0)
    mill, other = Mill(tmp_path / "parts", sample_archive), Mill(tmp_path / "whole", sample_archive)
    found, whole = planned(mill, SWATHS), planned(other, SWATHS, divides=False)
    assert len(specs(found, PartsSpec)) == len(specs(whole, CollectSpec)) == 2
    read = rows(mill, found)
    assert read == rows(other, whole)
    assert read


SWATH_FIELD = {
    "region": {"bbox": [-2.0, 52.0, -0.5, 53.0]},
    "grid": {"crs": "EPSG:3035", "resolution": 1000},
    "extra_bands": ["reason", "source"],
}


def same_rasters(
    mill: Mill,
    other: Mill,
    what: tuple[dict[str, Any], str],
    rasters: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Plan:
    """Make rasters of parts of granules; they are those of whole ones but for their digests."""
    found = planned(mill, what, rasters=rasters)
    assert specs(found, PartsSpec)
    assert not specs(found, CollectSpec)
    lineage = cells.with_lineage
    monkeypatch.setattr(
        cells,
        "with_lineage",
        lambda raster, cell, paths, _, said: lineage(raster, cell, paths, {}, said),
    )
    made = [file for task in found for file in mill.make(task.spec)]
    whole = planned(other, what, rasters=rasters, divides=False)
    assert not specs(whole, PartsSpec)
    wanted = [file for task in whole for file in other.make(task.spec)]

    def told(files: list[ArtifactFile]) -> list[tuple[object, ...]]:
        return [
            (one.name, one.sha256, one.completeness, one.valid_share)
            for one in files
            if not is_granule_file(one.name.removesuffix(PACKED))
        ]

    assert told(made) == told(wanted)
    return found


def test_swaths_give_the_same_rasters(
    sample_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a layer all is read for any cell, so parts are fetched for one cell alone. The layer that
    a choice of its own follows comes with its parts."""
    monkeypatch.setattr(choice, "_LESS", 10.0)
    mill, other = Mill(tmp_path / "parts", sample_archive), Mill(tmp_path / "whole", sample_archive)
    layer, *_ = SWATHS[0]["layers"]
    follows = {**SWATHS[0], "layers": ["Sensor_Zenith"]}
    two = {**SWATH_FIELD, "products": [SWATHS[0], follows]}
    found = same_rasters(mill, other, SWATHS, two, monkeypatch)
    cell, *_ = specs(found, LayerSpec)
    assert {one.grids for one in specs(found, PartsSpec)} == {(cell.grid,)}
    assert {one.layers for one in specs(found, PartsSpec)} == {(layer,), ("Sensor_Zenith", layer)}
    assert all(
        file.name.endswith(PACKED)
        for one in specs(found, PartsSpec)
        for file in collected(mill, one.key)
    )
    assert any("reads up to about" in note for note in found.notes)
    large = {
        "region": {"bbox": [-8.0, 48.0, 6.0, 58.0]},
        "grid": {"crs": "EPSG:3035", "resolution": 4000},
    }
    assert not specs(planned(mill, SWATHS, rasters=large), PartsSpec)


@pytest.mark.proof
def test_a_swath_comes_with_what_says_where_its_pixels_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_LESS", 10.0)
    place = tmp_path / "archive"
    for name in ("VNP09", "VNP03MOD"):
        entry = catalogue.product(name, "2")
        assert entry is not None
        write_product(place, entry, "2", date(2012, 4, 14))
    layer = "750m Surface Reflectance Band M5"
    what = {"name": "VNP09", "collection": "2", "layers": [layer]}, "2012-04-14"
    sites = "id,latitude,longitude\na,46.5,9.5\nb,47.2,10.1\n"
    mill, other = Mill(tmp_path / "parts", place), Mill(tmp_path / "whole", place)
    found = planned(mill, what, sites=sites)
    (spec,) = specs(found, PartsSpec)
    assert [one.product for one in spec.granules] == ["VNP09", "VNP03MOD"]
    read = rows(mill, found)
    assert len(collected(mill, spec.key)) == 2
    assert read == rows(other, planned(other, what, divides=False, sites=sites))
    assert {one["n"] for one in read} == {0, 1}
    region = {"region": {"bbox": [9.4, 46.4, 10.2, 47.3]}}
    mills = Mill(tmp_path / "a", place), Mill(tmp_path / "b", place)
    same_rasters(*mills, what, {**SWATH_FIELD, **region}, monkeypatch)


def test_a_plan_says_what_is_read_and_why(granules: Path, tmp_path: Path) -> None:
    mill = Mill(tmp_path, granules)
    (note,) = planned(mill).notes
    assert re.fullmatch(
        r"VNP15A2H.002: reads up to about (0\.\d|1\.0) MB of 2\.2 MB: of 2 granules only the parts "
        r"that are needed\.",
        note,
    )
    assert planned(mill, divides=False).notes == (
        "VNP15A2H.002: 2 granules are fetched whole (2.2 MB): their source sends no parts.",
    )
    whole = specs(planned(mill, divides=False), CollectSpec)
    held = planned(mill, there=lambda key: key == whole[0].key)
    assert [len(specs(held, kind)) for kind in (PartsSpec, CollectSpec)] == [1, 1]
    assert "1 granule is already in storage, whole (1.1 MB)." in held.notes[0]


def test_what_the_parts_lack_is_fetched_and_never_read_as_zeros(
    granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = Mill(tmp_path / "parts", granules)
    found = planned(mill)
    with monkeypatch.context() as patched:
        patched.setattr(extract, "touch_sites", lambda *_, **__: None)
        for task in found:
            if not isinstance(task.spec, ExtractSpec | TableSpec):
                mill.make(task.spec)
    (extraction,) = specs(found, ExtractSpec)
    said = mill.attempt(extraction)
    assert isinstance(said, Failed)
    assert said.category is Category.UNREADABLE_INPUT_FILE
    assert "held in part" in said.message
    (lacking,) = (one for n, one in enumerate(extraction.inputs) if said.healing >> n & 1)
    (spec,) = (one for one in specs(found, PartsSpec) if one.key == lacking.key)
    made = mill.make_again(spec)
    assert isinstance(made, Succeeded)
    (file,) = made.files
    assert mill.fetch(file).read_bytes() == (granules / spec.granule).read_bytes()


def test_a_granule_that_is_replaced_meanwhile_is_fetched_as_it_is_now(
    granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "archive"
    shutil.copytree(granules, place)
    mill = Mill(tmp_path / "parts", place)
    found = planned(mill)
    (sites,) = specs(found, SitesSpec)
    mill.make(sites)
    spec = specs(found, PartsSpec)[0]
    path = place / spec.granules[0].url
    read, calls = touch_sites, 0

    def replaced(*given: Any, **more: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            new = bytearray(path.read_bytes())
            new[len(new) // 2] ^= 1
            path.write_bytes(new)  # of the same size
            os.utime(path, ns=(1, 1))
        read(*given, **more)

    monkeypatch.setattr(extract, "touch_sites", replaced)
    (file,) = mill.make(spec)
    assert file.name == path.name
    assert mill.fetch(file).read_bytes() == path.read_bytes()


def test_a_small_region_takes_a_part_of_the_granules_and_has_the_same_rasters(
    granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the digests of granules, which nobody has read whole, files are the same byte by
    byte; so are STAC items with their statistics."""
    mill, other = Mill(tmp_path / "parts", granules), Mill(tmp_path / "whole", granules)
    found = same_rasters(mill, other, TILES, FIELD, monkeypatch)
    assert len(specs(found, PartsSpec)) == 2
    (cell,) = specs(found, LayerSpec)
    file, _ = collected(mill, cell.key)
    assert 0.2 < (file.valid_share or 0.0) < 0.8  # half of the pixels fail the rule
    explained = {one.name: one.file for one in granules_of(mill.world.runtime, cell.key)}
    assert explained == {one.granule: None for one in specs(found, PartsSpec)}  # none is whole
    stored = sum(file.size for one in specs(found, PartsSpec) for file in collected(mill, one.key))
    assert stored < 0.3 * sum(one.size for one in specs(found, PartsSpec))


def test_for_another_region_values_alone_are_fetched(
    granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The structure of granules is known on this machine since the first."""
    calls: list[int] = []
    part = LocalFiles.part

    def counted(files: LocalFiles, name: str, begin: int, end: int) -> bytes:
        calls.append(end - begin)
        return part(files, name, begin, end)

    monkeypatch.setattr(LocalFiles, "part", counted)
    mill = Mill(tmp_path, granules)
    taken = []
    for south in (55.1, 57.3):
        region = {"bbox": [-0.06, south, 0.05, south + 0.1]}
        for spec in specs(planned(mill, rasters={**FIELD, "region": region}), PartsSpec):
            mill.make(spec)
        taken.append(calls.copy())
        calls.clear()
    assert 2 * len(taken[1]) < len(taken[0]), [len(one) for one in taken]
    assert sum(taken[1]) < 0.5 * sum(taken[0])


def test_of_large_regions_and_what_is_stored_other_granules_are_planned(
    granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = Mill(tmp_path, granules)
    large = {**FIELD, "region": {"bbox": [-15.0, 50.5, 15.0, 59.5]}}
    large["grid"] = {"crs": "EPSG:3035", "resolution": 4000}
    found = planned(mill, rasters=large)
    assert [len(specs(found, kind)) for kind in (PartsSpec, CollectSpec)] == [0, 2]
    assert not any("granule" in note for note in found.notes)
    parts = specs(planned(mill, rasters=FIELD), PartsSpec)
    stored = {parts[0].key, *parts[0].wholes, *parts[1].wholes}
    found = planned(mill, rasters=FIELD, there=stored.__contains__)
    assert [one.key for one in specs(found, PartsSpec)] == [parts[0].key]
    assert [one.key for one in specs(found, CollectSpec)] == [*parts[1].wholes]
    (note,) = found.notes
    assert note == (
        "VNP15A2H.002: 1 granule is already in storage, in part (of 1.1 MB); 1 granule is already "
        "in storage, whole (1.1 MB)."
    )
    other = planned(mill, rasters={**FIELD, "resampling": "nearest", "units": "physical"})
    assert [one.key for one in specs(other, PartsSpec)] == [one.key for one in parts]
    monkeypatch.setattr(choice, "_MOST_CELLS", 0)
    assert not specs(planned(mill, rasters=FIELD), PartsSpec)


def write_tile(name: str, grid: GridToWrite, product: str, collection: int, to: Path) -> None:
    """Write a tile in the format of its name."""
    if name.endswith(".hdf"):
        write_granule(to / name, wrap_up(grid, name, product, collection))
    else:
        write_hdf5_granule(to / name, wrap_up(grid, name, product, collection), eos=True)


def grid_of_noise(name: str, layers: tuple[str, str], side: int, **more: Any) -> GridToWrite:
    fields = [
        FieldToWrite(
            name=layer,
            values=np.random.default_rng(n).integers(0, 2**30, (side, side), np.int32),
            dims=("YDim", "XDim"),
        )
        for n, layer in enumerate(layers)
    ]
    return GridToWrite(name=name, fields=fields, **more)


OTHER_GRIDS: dict[str, tuple[str, GridToWrite, str, int, dict[str, Any]]] = {
    "geographic": (
        "VNP46A1.A2012065.h18v03.002.2012153130500.h5",
        grid_of_noise(
            "VNP_Grid_DNB", ("DNB_At_Sensor_Radiance", "Sensor_Zenith"), 600,
            upper_left=(0.0, 60.0), lower_right=(10.0, 50.0), corners="degrees",
        ),
        "VNP46A1", 2,
        {"region": {"bbox": [3.0, 55.1, 3.4, 55.4]},
         "grid": {"crs": "EPSG:4326", "resolution": 0.01}},
    ),
    "polar": (
        "MOD29P1D.A2012065.h09v07.061.2012153130500.hdf",
        grid_of_noise(
            "MOD_Grid_Seaice_1km", ("Sea_Ice_by_Reflectance", "Ice_Surface_Temperature"), 951,
            upper_left=(500 * PIXEL, -500 * PIXEL),
            lower_right=((500 + 951) * PIXEL, -(500 + 951) * PIXEL), pole=90,
        ),
        "MOD29P1D", 61,
        {"region": {"bbox": [40.0, 76.2, 42.0, 76.6]},
         "grid": {"crs": "EPSG:3413", "resolution": 1000}},
    ),
    "rotated": (
        "VNP19A2.A2012065.h25v05.002.2012153130500.h5",
        grid_of_noise(
            "grid1km", ("Optical_Depth_047", "Optical_Depth_055"), 600,
            upper_left=(2.5 * TILE_SIZE, 4.0 * TILE_SIZE),
            lower_right=(3.5 * TILE_SIZE, 3.0 * TILE_SIZE), meridian=-160,
        ),
        "VNP19A2", 2,
        {"region": {"bbox": [-123.0, 35.0, -122.6, 35.3]},
         "grid": {"crs": "EPSG:4326", "resolution": 0.01}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_GRIDS)
@pytest.mark.parametrize("resampling", ["nearest", "cubic"])
def test_tiles_on_other_grids_give_the_same_rasters(
    kind: str, resampling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_LESS", 2.0)  # the layers of some are most of their granule
    name, grid, product, collection, rasters = OTHER_GRIDS[kind]
    archive = tmp_path / "archive"
    archive.mkdir()
    write_tile(name, grid, product, collection, archive)
    mill, other = Mill(tmp_path / "parts", archive), Mill(tmp_path / "whole", archive)
    layer = grid.fields[0].name
    what = {"name": product, "collection": str(collection), "layers": [layer]}, "2012-03-05"
    asked = {**rasters, "resampling": resampling, "mask": False}
    found = same_rasters(mill, other, what, asked, monkeypatch)
    (parts,) = specs(found, PartsSpec)
    (file,) = collected(mill, parts.key)
    assert file.name.endswith(PACKED)
    # The layer of HDF4 lies in one piece: half of the granule.
    assert file.size < 0.55 * (archive / name).stat().st_size
    (cell,) = specs(found, LayerSpec)
    assert (collected(mill, cell.key)[0].valid_share or 0.0) > 0.3


@pytest.mark.parametrize(
    ("ring", "box"),
    [
        (((0.0, 50.0), (10.0, 50.0), (10.0, 60.0)), LonLatBox(0.0, 50.0, 10.0, 60.0)),
        (((-179.0, 50.0), (179.0, 50.0), (179.0, 60.0)), None),  # across 180 degrees
        (((-135.0, 85.0), (-45.0, 85.0), (45.0, 85.0), (135.0, 85.0)), None),  # around a pole
        (((0.0, 85.0), (40.0, 85.0), (40.0, 90.0)), None),
        ((), None),
    ],
)
def test_a_box_says_where_a_tile_on_another_grid_lies(ring: Ring, box: LonLatBox | None) -> None:
    record = replace(tile_granule(date(2012, 3, 5), 17, 3), tile=None, boundary=(ring,))
    assert choice._box_of(record) == box
    assert choice._box_of(replace(record, boundary=None)) is None
    for east, there in ((choice._MOST_DEGREES - 0.1, True), (choice._MOST_DEGREES, False)):
        wide = replace(record, boundary=(((0.0, 0.0), (east, 0.0), (east, 10.0)),))
        assert (choice._box_of(wide) is not None) is there


def test_a_tile_that_is_cut_out_is_fetched_whole(granules: Path, tmp_path: Path) -> None:
    """How much of it the cells take is not known."""
    when = {"start": TILES[1], "end": TILES[1]}
    resolved = resolve(parse_request({"products": [TILES[0]], "time": when, **FIELD}))
    folder = FolderArchive(granules, tmp_path / "index.sqlite", read_outlines)
    sources: Any = Sources([folder])
    (product,) = resolved.products
    record, *_ = sources.search("VNP15A2H", "2", date(2012, 3, 5), date(2012, 3, 5))
    cells = places(resolved.target, resolved.request.region)
    plan = choice.PartsPlan(sources, lambda _: False, True, cells)
    draft = Draft(limit=9)
    assert plan.plan_cells(product, record, 0, (0,), draft) is not None
    assert plan.plan_cells(product, replace(record, tile=None), 0, (0,), draft) is None


def test_a_cell_that_meets_a_hole_has_its_granule_fetched_whole(
    granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = Mill(tmp_path / "parts", granules)
    found = planned(mill, rasters=FIELD)
    with monkeypatch.context() as patched:
        patched.setattr(phase, "reproject", lambda *_, **__: None)
        for spec in specs(found, PartsSpec):
            mill.make(spec)
    (cell,) = specs(found, LayerSpec)
    said = mill.attempt(cell)
    assert isinstance(said, Failed)
    assert said.category is Category.UNREADABLE_INPUT_FILE
    (lacking,) = (one for n, one in enumerate(cell.inputs) if said.healing >> n & 1)
    (spec,) = (one for one in specs(found, PartsSpec) if one.key == lacking.key)
    made = mill.make_again(spec)
    assert isinstance(made, Succeeded)
    assert mill.fetch(made.files[0]).read_bytes() == (granules / spec.granule).read_bytes()


@pytest.mark.parametrize("error", [WholeOnlyError, AnswerBrokenError, DownloadFailedError])
def test_a_source_that_sends_no_parts_gives_the_granule(
    error: type[ArchiveError], granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole_only(*_: object) -> bytes:
        raise error("no parts")

    monkeypatch.setattr(LocalFiles, "part", whole_only)
    mill = Mill(tmp_path, granules)
    found = planned(mill)
    read = rows(mill, found)
    assert len(read) == 7
    assert {one["valid"] for one in read} == {9}
    assert all(
        is_granule_file(file.name)
        for one in specs(found, PartsSpec)
        for file in collected(mill, one.key)
    )


def test_after_a_crash_granules_are_fetched_whole(granules: Path, tmp_path: Path) -> None:
    mill = Mill(tmp_path, granules)
    found = planned(mill)
    for task in found:
        if not isinstance(task.spec, ExtractSpec | TableSpec):
            mill.make(task.spec)
    (extraction,) = specs(found, ExtractSpec)
    said = mill.attempt(extraction, after_crash=True)
    assert isinstance(said, Failed)
    assert (said.category, said.healing) == (Category.UNREADABLE_INPUT_FILE, 0b11)
