"""The pipeline on the sample archive: options, refusals, provenance."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from reprojection.errors import ChoiceRefusedError, UnknownLayerError
from reprojection.explain.explain import explain
from reprojection.explain.made_with import options_of
from reprojection.grid.grids import Lattice
from reprojection.read.qa import Reason
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import Attribute, FieldToWrite, write_granule
from reprojection.sample.sample import swath_granules
from reprojection.write.cube import write_cube
from reprojection.write.stac import stac_item
from reprojection.write.write import read_grid, read_raster, write_cog
from tests.reprojection.reading_samples import small_tile

LAND = Lattice(crs="EPSG:4326", resolution=0.05).snap((-4.0, 51.0, 4.0, 56.0))
SEA = Lattice(crs="EPSG:4326", resolution=0.1).snap((-10.0, 45.0, 10.0, 60.0))
AEROSOL = "Optical_Depth_Land_And_Ocean"


@pytest.fixture(scope="module")
def archive(sample_archive: Path) -> Path:
    return sample_archive


def tiles(archive: Path, number: int = 0) -> list[Path]:
    """The two tiles of one date."""
    found = sorted(archive.rglob("MCD15A2*.hdf")) or sorted(archive.rglob("*.h1*v*.hdf"))
    dates = sorted({path.name.split(".")[1] for path in found})
    return [path for path in found if dates[number] in path.name]


def swaths(archive: Path) -> list[Path]:
    """The granules of one day."""
    found = sorted(archive.rglob("MYD04_L2*.hdf"))
    day = found[0].name.split(".")[1]
    return [path for path in found if day in path.name]


def misspelt(**words: object) -> Options:
    """Options as a program without a type checker may write them."""
    return replace(Options(), **words)  # type: ignore[arg-type]


@pytest.mark.parametrize("mask", [True, False])
def test_copied_pixels_in_physical_units_are_the_stored_ones(archive: Path, *, mask: bool) -> None:
    """They are held as stored until then; empty ones are NaN."""
    options = Options(resampling="nearest", mask=mask)
    stored = reproject(tiles(archive), "Lai_1km", LAND, options)
    found = reproject(tiles(archive), "Lai_1km", LAND, replace(options, units="physical"))
    wanted = (stored.data.astype(np.float64) * stored.scale + stored.offset).astype(np.float32)
    wanted[stored.data == stored.nodata] = np.nan
    assert found.data.tobytes() == wanted.tobytes()
    assert np.isnan(found.data).any()
    assert np.isnan(found.nodata or 0.0)


def test_two_tiles_one_raster(archive: Path) -> None:
    found = reproject(tiles(archive), "Lai_1km", LAND, Options(resampling="nearest"))
    assert (found.data.dtype, found.nodata, found.kind) == (
        np.dtype(np.uint8),
        255,
        "continuous",
    )
    assert found.data.shape == (1, *LAND.shape)
    assert found.valid().mean() > 0.05
    assert found.data[found.valid()[None]].max() <= 100
    left = reproject(tiles(archive)[:1], "Lai_1km", LAND, Options(resampling="nearest"))
    right = reproject(tiles(archive)[1:], "Lai_1km", LAND, Options(resampling="nearest"))
    joined = np.where(left.valid(), left.data[0], right.data[0])
    assert np.array_equal(found.data[0], joined)


def test_the_order_of_granules_does_not_matter(archive: Path) -> None:
    for paths, layer, grid in (
        (tiles(archive), "Lai_1km", LAND),
        (swaths(archive), AEROSOL, SEA),
    ):
        one = reproject(paths, layer, grid, Options())
        other = reproject(paths[::-1], layer, grid, Options(), threads=2)
        assert np.array_equal(one.data, other.data)
        assert one.description() == other.description()


def test_tiles_of_two_dates_are_refused(archive: Path) -> None:
    days = sorted({path.name.split(".")[1] for path in archive.rglob("MCD15A2.*.hdf")})
    both = [next(archive.rglob(f"MCD15A2.{day}.*.hdf")) for day in days[:2]]
    with pytest.raises(ChoiceRefusedError, match="of two dates"):
        reproject(both, "Lai_1km", LAND, Options())


def test_physical_units_are_scaled_floats(archive: Path) -> None:
    stored = reproject(swaths(archive), AEROSOL, SEA, Options())
    physical = reproject(swaths(archive), AEROSOL, SEA, Options(units="physical"))
    assert physical.data.dtype == np.float32
    assert np.isnan(physical.nodata or 0.0)
    assert np.array_equal(physical.valid(), stored.valid())
    assert np.allclose(physical.values(), stored.values(), atol=1e-6, equal_nan=True)


def test_extra_bands_say_how_many_which_and_why(archive: Path) -> None:
    options = Options(extra_bands=("count", "source", "reason"))
    wide = Lattice(crs="EPSG:4326", resolution=0.25).snap((-60.0, 30.0, 40.0, 75.0))
    found = reproject(swaths(archive), AEROSOL, wide, options)
    assert [band.role for band in found.bands] == ["data", *options.extra_bands]
    value, count, source, reason = found.data
    some = found.valid()
    assert np.array_equal(count > 0, some)
    assert np.array_equal(source > 0, some)
    assert np.array_equal(reason == Reason.VALID, some)
    assert count.max() >= 2
    assert set(np.unique(source)) <= set(range(len(swaths(archive)) + 1))
    assert {Reason.FILL, Reason.NO_GRANULE} <= set(np.unique(reason[value == found.nodata]))


def test_each_merge_takes_its_granule(archive: Path) -> None:
    paths = swaths(archive)
    found = {
        rule: reproject(paths, AEROSOL, SEA, Options(merge=rule, extra_bands=("source",)))
        for rule in ("nadir", "latest", "first", "mean")
    }
    alone = [reproject([path], AEROSOL, SEA, Options()) for path in paths]
    values = np.stack([one.values() for one in alone])
    known = np.isfinite(values)
    some = known.any(axis=0)
    for rule, raster in found.items():
        assert np.array_equal(raster.valid(), some), rule
    first = np.argmax(known, axis=0)
    last = len(paths) - 1 - np.argmax(known[::-1], axis=0)
    assert np.array_equal(found["first"].data[1][some], first[some] + 1)
    assert np.array_equal(found["latest"].data[1][some], last[some] + 1)
    assert (first != last)[some].any()
    mean = np.nanmean(np.where(some, values, 0.0), axis=0)
    assert np.abs(found["mean"].values() - mean)[some].max() <= 0.00051


def test_a_swath_given_twice_counts_once(archive: Path, tmp_path: Path) -> None:
    paths = swaths(archive)
    options = Options(merge="mean", extra_bands=("count",))
    once = reproject(paths, AEROSOL, SEA, options)
    again = [Path(shutil.copy(path, tmp_path)) for path in paths]
    twice = reproject(paths + again, AEROSOL, SEA, options)
    assert np.array_equal(twice.data, once.data)
    assert twice.description() == once.description()


def test_of_two_editions_of_a_swath_the_newest_counts(tmp_path: Path) -> None:
    written = next(iter(swath_granules()))
    stem, produced = written.local_name.removesuffix(".hdf").rsplit(".", 1)
    newer = replace(
        written,
        local_name=f"{stem}.{int(produced) + 1}.hdf",
        produced=written.produced + timedelta(seconds=1),
    )
    paths = [tmp_path / one.local_name for one in (newer, written)]
    for path, one in zip(paths, (newer, written), strict=True):
        write_granule(path, one)
    wide = Lattice(crs="EPSG:4326", resolution=0.25).snap((-60.0, 30.0, 40.0, 75.0))
    for given in (paths, paths[::-1]):
        found = reproject(given, AEROSOL, wide, Options(extra_bands=("count",)))
        assert [source.name for source in found.provenance.granules] == [newer.local_name]
        assert found.data[1].max() == 1


def test_codes_are_masked_or_kept_in_a_band(archive: Path) -> None:
    masked = reproject(tiles(archive), "Lai_1km", LAND, Options(resampling="nearest"))
    kept = reproject(tiles(archive), "Lai_1km", LAND, Options(resampling="nearest", codes="keep"))
    assert [band.role for band in kept.bands] == ["data", "class"]
    assert np.array_equal(kept.valid(), masked.valid())
    codes = kept.data[1][kept.data[1] != kept.nodata]
    assert codes.size
    assert set(np.unique(codes).tolist()) <= set(kept.codes)
    assert not (kept.valid(1) & kept.valid(0)).any()


def test_a_quality_rule_removes_pixels_and_says_so(archive: Path) -> None:
    rule = {"FparLai_QC": {"MODLAND": [0]}}
    options = Options(resampling="nearest", extra_bands=("reason",))
    plain = reproject(tiles(archive), "Lai_1km", LAND, options)
    strict = reproject(
        tiles(archive),
        "Lai_1km",
        LAND,
        Options(resampling="nearest", extra_bands=("reason",), qa=rule),
    )
    lost = plain.valid() & ~strict.valid()
    assert lost.any()
    assert (strict.data[1][lost] == Reason.QA).all()
    assert not (strict.valid() & ~plain.valid()).any()


def test_the_average_of_swaths_lies_between_what_it_averages(archive: Path) -> None:
    coarse = Lattice(crs="EPSG:4326", resolution=0.5).snap((-5.0, 50.0, 5.0, 55.0))
    fine = Lattice(crs="EPSG:4326", resolution=0.5 / 11).window(-110, -1210, 220, 110)
    for path in swaths(archive):
        near = reproject([path], AEROSOL, fine, Options(units="physical")).values()
        blocks = near.reshape(10, 11, 20, 11).transpose(0, 2, 1, 3).reshape(10, 20, 121)
        full = np.isfinite(blocks).all(axis=2)
        if full.any():
            break
    options = Options(resampling="average", units="physical")
    average = reproject([path], AEROSOL, coarse, options)
    assert full.any()
    assert average.valid()[full].all()
    found = average.values()
    assert np.abs(found - blocks.mean(axis=2))[full].max() < 0.02
    assert (found <= blocks.max(axis=2) + 1e-6)[full].all()
    assert (found >= blocks.min(axis=2) - 1e-6)[full].all()


def test_searching_for_values_fills_gaps_within_the_footprint(archive: Path) -> None:
    footprint = reproject(swaths(archive), AEROSOL, SEA, Options())
    valid = reproject(swaths(archive), AEROSOL, SEA, Options(search="valid"))
    assert not (footprint.valid() & ~valid.valid()).any()
    assert valid.valid().sum() > footprint.valid().sum()


@pytest.mark.parametrize(
    ("layer", "options", "says"),
    [
        ("FparLai_QC", Options(resampling="bilinear"), "would blend"),
        ("FparLai_QC", Options(resampling="average"), "nearest or mode"),
        ("Lai_1km", Options(resampling="magic"), "not known"),
        ("Lai_1km", Options(merge="best"), "nadir, latest"),  # type: ignore[arg-type]
        ("Lai_1km", Options(mask=False, qa="best"), "mask=False keeps all but fill"),
        ("Lai_1km", misspelt(merge="newest"), "merge 'newest' is not known; choose nadir"),
        ("Lai_1km", misspelt(units="phys"), "units 'phys' is not known; choose stored"),
        ("Lai_1km", misspelt(codes="keeps"), "codes 'keeps' is not known; choose mask or keep"),
        ("Lai_1km", misspelt(search="all"), "search 'all' is not known; choose footprint"),
        ("Lai_1km", misspelt(extra_bands=("counts",)), "extra_bands 'counts' is not known"),
    ],
)
def test_choices_that_would_give_wrong_values_are_refused(
    archive: Path, layer: str, options: Options, says: str
) -> None:
    with pytest.raises(ChoiceRefusedError, match=says):
        reproject(tiles(archive), layer, LAND, options)


def test_swaths_refuse_what_needs_a_grid_and_blends_of_flags(archive: Path) -> None:
    with pytest.raises(ChoiceRefusedError, match="of a swath"):
        reproject(swaths(archive), AEROSOL, SEA, Options(resampling="cubic"))
    with pytest.raises(ChoiceRefusedError, match="'mean' would blend"):
        reproject(swaths(archive), "Land_Ocean_Quality_Flag", SEA, Options(merge="mean"))
    with pytest.raises(UnknownLayerError):
        reproject(swaths(archive), "Nonsense", SEA, Options())
    with pytest.raises(ChoiceRefusedError, match="at least one"):
        reproject([], AEROSOL, SEA, Options())


def test_files_are_named_by_text_or_path_one_or_several(archive: Path, tmp_path: Path) -> None:
    whole = reproject(tiles(archive)[:1], "Lai_1km", LAND, Options())
    one = reproject(str(tiles(archive)[0]), "Lai_1km", LAND, Options())
    assert one.description() == whole.description()
    named = str(tmp_path / "lai.tif")
    write_cog(one, named)
    assert read_raster(named).description() == whole.description()
    assert read_grid(named) == LAND
    lon, lat = LAND.bounds[0] + 0.5, LAND.bounds[1] + 0.5
    assert explain(named, lon, lat, granules=str(archive)).origin is not None


def test_a_reduction_that_does_not_say_of_what_is_not_explained(
    archive: Path, tmp_path: Path
) -> None:
    raster = reproject(tiles(archive), "Lai_1km", LAND, Options())
    made = replace(raster.provenance, parameters=(("package", "monthly-mean"),))
    write_cog(replace(raster, provenance=made), tmp_path / "mean.tif")
    with pytest.raises(ChoiceRefusedError, match=r"mean\.tif was made by the package monthly-mean"):
        explain(
            tmp_path / "mean.tif", LAND.bounds[0] + 0.01, LAND.bounds[3] - 0.01, granules=archive
        )


def test_a_grid_that_no_granule_reaches_is_nodata(archive: Path) -> None:
    far = Lattice(crs="EPSG:4326", resolution=0.5).snap((100.0, -40.0, 110.0, -30.0))
    for paths, layer in ((tiles(archive), "Lai_1km"), (swaths(archive), AEROSOL)):
        found = reproject(paths, layer, far, Options(extra_bands=("reason",)))
        assert not found.valid().any()
        assert (found.data[1] == Reason.NO_GRANULE).all()


def test_provenance_holds_what_determined_the_pixels(archive: Path) -> None:
    options = Options(resampling="nearest", qa={"FparLai_QC": {"MODLAND": [0]}})
    found = reproject(tiles(archive), "Lai_1km", LAND, options)
    said = found.provenance
    assert [source.name for source in said.granules] == [path.name for path in tiles(archive)]
    assert all(len(source.produced) == 13 for source in said.granules)
    assert said.start.endswith("T00:00:00Z")
    assert options_of(found.description()) == options
    assert str(archive) not in found.description().model_dump_json()


def test_explain_finds_the_source_pixel(archive: Path, tmp_path: Path) -> None:
    found = reproject(tiles(archive), "Lai_1km", LAND, Options(resampling="nearest"))
    write_cog(found, tmp_path / "lai.tif")
    row, column = (int(index[0]) for index in np.nonzero(found.valid()))
    lon, lat = -4.0 + (column + 0.3) * 0.05, 56.0 - (row + 0.6) * 0.05
    answer = explain(tmp_path / "lai.tif", lon, lat, granules=[archive])
    assert (answer.row, answer.column) == (row, column)
    assert answer.origin is not None
    assert answer.origin.stored == answer.stored == found.data[0, row, column]
    assert answer.origin.quality[0].layer == "FparLai_QC"
    assert "MODLAND" in [field.name for field in answer.origin.quality[0].fields]
    assert answer.gdalwarp.startswith("gdalwarp ")
    without = explain(tmp_path / "lai.tif", lon, lat)
    assert without.origin is None
    assert tiles(archive)[0].name in without.note
    with pytest.raises(ChoiceRefusedError, match="outside the raster"):
        explain(tmp_path / "lai.tif", 100.0, 0.0)


def test_explain_finds_the_footprint(archive: Path, tmp_path: Path) -> None:
    found = reproject(swaths(archive), AEROSOL, SEA, Options(extra_bands=("source",)))
    write_cog(found, tmp_path / "aod.tif")
    for row, column in np.argwhere(found.valid())[::4000]:
        lon, lat = -10.0 + (column + 0.5) * 0.1, 60.0 - (row + 0.5) * 0.1
        answer = explain(tmp_path / "aod.tif", lon, lat, granules=[archive])
        assert answer.origin is not None
        number = int(found.data[1, row, column])
        assert answer.origin.granule == found.provenance.granules[number - 1].name
        assert answer.origin.stored == found.data[0, row, column]
        assert answer.origin.sensor_zenith is not None


@pytest.mark.parametrize("method", ["bilinear", "average"])
def test_explain_traces_every_value_of_a_blend(archive: Path, tmp_path: Path, method: str) -> None:
    found = reproject(tiles(archive), "Lai_1km", LAND, Options(resampling=method))
    plain = reproject(tiles(archive), "Lai_1km", LAND, Options(resampling="nearest"))
    write_cog(found, tmp_path / "lai.tif")
    blended = found.valid() & ~plain.valid()
    chosen = np.argwhere(blended if blended.any() else found.valid())
    assert blended.any() == (method == "average")
    for row, column in chosen[:: len(chosen) // 5]:
        lon, lat = -4.0 + (column + 0.5) * 0.05, 56.0 - (row + 0.5) * 0.05
        answer = explain(tmp_path / "lai.tif", lon, lat, granules=[archive])
        assert answer.note == ""
        assert answer.origin is not None
        assert answer.origin.reason == "it has a value"


def test_explain_traces_a_mean_of_footprints(archive: Path, tmp_path: Path) -> None:
    found = reproject(swaths(archive), AEROSOL, SEA, Options(resampling="average"))
    plain = reproject(swaths(archive), AEROSOL, SEA, Options())
    write_cog(found, tmp_path / "aod.tif")
    row, column = np.argwhere(found.valid() & ~plain.valid())[40]
    lon, lat = -10.0 + (column + 0.5) * 0.1, 60.0 - (row + 0.5) * 0.1
    answer = explain(tmp_path / "aod.tif", lon, lat, granules=[archive])
    assert answer.origin is not None
    assert answer.origin.reason == "it has a value"


def test_a_stac_item_says_where_when_and_how_to_read(archive: Path, tmp_path: Path) -> None:
    found = reproject(tiles(archive), "Lai_1km", LAND, Options(resampling="nearest"))
    write_cog(found, tmp_path / "lai.tif")
    item = stac_item(tmp_path / "lai.tif")
    assert item["bbox"] == [-4.0, 51.0, 4.0, 56.0]
    assert item["stac_version"] == "1.1.0"
    properties = item["properties"]
    assert isinstance(properties, dict)
    assert properties["proj:code"] == "EPSG:4326"
    assert properties["proj:shape"] == list(LAND.shape)
    assert properties["start_datetime"] == found.provenance.start


def test_a_footprint_across_the_antimeridian_is_cut(tmp_path: Path, archive: Path) -> None:
    grid = Lattice(crs="EPSG:4326", resolution=0.5).snap((170.0, -10.0, 200.0, 10.0))
    write_cog(reproject(tiles(archive), "Lai_1km", grid, Options()), tmp_path / "x.tif")
    item = stac_item(tmp_path / "x.tif")
    assert item["bbox"] == [170.0, -10.0, -160.0, 10.0]
    geometry = item["geometry"]
    assert isinstance(geometry, dict)
    assert geometry["type"] == "MultiPolygon"


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_a_cube_opens_in_xarray(archive: Path, tmp_path: Path, kind: str) -> None:
    xarray = pytest.importorskip("xarray")
    paths = []
    for number in (1, 0, 2):
        raster = reproject(tiles(archive, number), "Lai_1km", LAND, Options(resampling="nearest"))
        paths.append(tmp_path / f"{number}.tif")
        write_cog(raster, paths[-1])
    out = tmp_path / "cube"
    write_cube(paths, out, kind="zarr" if kind == "zarr" else "netcdf")
    opened = xarray.open_dataset(out, engine="zarr" if kind == "zarr" else "netcdf4", chunks=None)
    with opened as cube:
        assert cube.sizes == {"time": 3, "y": LAND.height, "x": LAND.width, "bnds": 2}
        assert (np.diff(cube.time.values.astype("datetime64[D]").astype(int)) == 8).all()
        expected = read_raster(paths[1]).values()
        assert np.allclose(cube["Lai_1km"].values[0], expected, equal_nan=True, atol=1e-6)
        assert cube["x"].values[0] == pytest.approx(-3.975)
        assert cube["crs"].attrs["grid_mapping_name"] == "latitude_longitude"


def test_a_cube_refuses_one_date_twice(archive: Path, tmp_path: Path) -> None:
    raster = reproject(tiles(archive), "Lai_1km", LAND, Options())
    for name in ("a.tif", "b.tif"):
        write_cog(raster, tmp_path / name)
    with pytest.raises(ChoiceRefusedError, match="several rasters of 2012"):
        write_cube([tmp_path / "a.tif", tmp_path / "b.tif"], tmp_path / "cube.nc")


def test_a_grid_made_a_few_rows_at_a_time_is_the_same(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(extra_bands=("count", "source", "reason"))
    whole = reproject(swaths(archive), AEROSOL, SEA, options)
    monkeypatch.setattr("reprojection.warp.from_swaths._PIXELS_AT_ONCE", 7 * SEA.width)
    parts = reproject(swaths(archive), AEROSOL, SEA, options)
    assert SEA.height > 7
    assert np.array_equal(parts.data, whole.data, equal_nan=True)


def temperature_tile(path: Path, attributes: dict[str, Attribute], fill: int | None) -> Path:
    """A tile of a product outside the catalogue, 24 x 24 pixels that hold 42000."""
    values = np.full((24, 24), 42000, np.uint16)
    values[0] = 7
    field = FieldToWrite(
        name="Temperature",
        values=values,
        dims=("YDim", "XDim"),
        typed={} if fill is None else {"_FillValue": fill},
        attributes={**attributes, "units": "K"},
    )
    write_granule(path, small_tile(product="XYZ99A1", collection=6, fields=[field]))
    return path


def test_physical_units_by_an_unknown_convention_are_refused(tmp_path: Path) -> None:
    path = temperature_tile(tmp_path / "a.hdf", {"scale_factor": 0.01, "add_offset": -15000.0}, 7)
    with pytest.raises(ChoiceRefusedError, match=r"add_offset -15000\.0.*units: stored"):
        reproject([path], "Temperature", LAND, Options(units="physical"))
    stored = reproject([path], "Temperature", LAND, Options(resampling="nearest"))
    assert (stored.scale, stored.offset, stored.units) == (1.0, 0.0, "")
    assert stored.provenance.scaling.startswith("unknown: its scale_factor is 0.01")
    assert np.nanmax(stored.values()) == 42000


def test_granules_of_two_unknown_scales_do_not_belong_together(tmp_path: Path) -> None:
    one = temperature_tile(tmp_path / "a.hdf", {"scale_factor": 0.01, "add_offset": -15000.0}, 7)
    two = temperature_tile(tmp_path / "b.hdf", {"scale_factor": 0.02, "add_offset": -15000.0}, 7)
    with pytest.raises(ChoiceRefusedError, match="do not belong in one raster"):
        reproject([one, two], "Temperature", LAND, Options())


def test_scale_offset_and_fill_written_as_text_are_applied(tmp_path: Path) -> None:
    attributes: dict[str, Attribute] = {
        "scale_factor": "0.01",
        "add_offset": "n/a",
        "_FillValue": "7",
    }
    path = temperature_tile(tmp_path / "a.hdf", attributes, None)
    found = reproject([path], "Temperature", LAND, Options(units="physical", resampling="nearest"))
    assert set(np.unique(found.values()[found.valid()])) == {np.float32(420.0)}
    assert found.provenance.scaling == (
        "stored * scale_factor + add_offset, assumed: nothing states it"
    )


def test_a_band_of_an_axis_of_days_has_the_date_of_its_day(tmp_path: Path) -> None:
    days = np.arange(8, dtype=np.uint8)[:, None, None] + np.zeros((8, 24, 24), np.uint8)
    field = FieldToWrite(name="FireMask", values=days, dims=("Number_of_Days", "YDim", "XDim"))
    path = tmp_path / "a.hdf"
    write_granule(path, small_tile(product="MOD14A1", collection=61, fields=[field]))
    found = reproject([path], "FireMask[3]", LAND, Options())
    assert (found.provenance.start, found.provenance.end) == (
        "2012-03-08T00:00:00Z",
        "2012-03-08T23:59:59Z",
    )
    assert np.unique(found.values()[found.valid()]) == [3]


def test_land_is_no_snow_in_collection_5(tmp_path: Path) -> None:
    """Each file's Key lists 225 = land; its valid range ends at 254."""
    snow = np.full((24, 24), 225, np.uint8)
    snow[:, ::3] = 60
    quality = np.zeros((24, 24), np.uint8)
    quality[:12] = 1
    dims = ("YDim", "XDim")
    fields = [
        FieldToWrite(
            name="Fractional_Snow_Cover",
            values=snow,
            dims=dims,
            typed={"valid_range": (0, 254), "_FillValue": 255},
        ),
        FieldToWrite(name="Snow_Spatial_QA", values=quality, dims=dims, typed={"_FillValue": 255}),
    ]
    path = tmp_path / "a.hdf"
    write_granule(path, small_tile(product="MYD10A1", collection=5, fields=fields))
    found = reproject([path], "Fractional_Snow_Cover", LAND, Options(resampling="average"))
    assert np.nanmax(found.values()) == 60
    best = reproject(
        [path], "Fractional_Snow_Cover", LAND, Options(resampling="nearest", qa="best")
    )
    assert 0 < best.valid().sum() < found.valid().sum()
    codes = reproject([path], "Fractional_Snow_Cover", LAND, Options(codes="keep")).codes
    assert codes[225] == "land"


def test_clamp_holds_cubic_to_the_valid_range(tmp_path: Path) -> None:
    steps = np.zeros((240, 240), np.uint8)
    steps[:, 120:] = 90
    steps[100:140, 100:140] = 255  # fill
    field = FieldToWrite(
        name="Lai_1km",
        values=steps,
        dims=("YDim", "XDim"),
        typed={"valid_range": (0, 90), "_FillValue": 255},
        attributes={"scale_factor": 0.1, "add_offset": 0.0},
    )
    tile = small_tile(fields=[field])
    write_granule(tmp_path / tile.local_name, tile)
    grid = Lattice(crs="EPSG:4326", resolution=0.03).snap((-9.0, 52.0, -6.0, 58.0))
    paths = [tmp_path / tile.local_name]
    choices: tuple[tuple[Literal["stored", "physical"], float], ...]
    choices = ("stored", 90), ("physical", 9.0)
    for units, most in choices:
        plain, held = (
            reproject(paths, "Lai_1km", grid, Options(resampling="cubic", units=units, clamp=clamp))
            for clamp in (False, True)
        )
        there = plain.valid()
        assert np.array_equal(held.valid(), there)
        assert plain.data[0][there].max() > most
        expected = np.where(there, plain.data[0].clip(0, most), plain.data[0])
        assert np.array_equal(held.data[0], expected, equal_nan=True)
    assert options_of(held.description()).clamp
    assert not options_of(plain.description()).clamp
