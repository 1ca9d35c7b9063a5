"""Commands on granules alone: what they refuse, and what they write."""

import json
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
from rasterio.errors import NotGeoreferencedWarning
from typer.testing import CliRunner

from reprojection.errors import BadFormatError, GridError, UnreadableGranuleError
from reprojection.grid.covering import project_bounds
from reprojection.grid.grids import modis_lattice, modis_tile_grid
from reprojection.read.outline import read_outline
from reprojection.write.write import read_grid
from swathmill.cli import COMMANDS, application, main
from swathmill.commands.granules import quality_rule
from swathmill.commands.shared.target import box_around, target_grid
from swathmill.errors import RefusedError
from tasks.errors import SwathmillError
from tests.swathmill.command_names import command_names

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sample(sample_archive: Path) -> list[Path]:
    return sorted(sample_archive.rglob("*.hdf"))


@pytest.fixture(scope="module")
def tiles(sample: list[Path]) -> list[Path]:
    return [path for path in sample if path.name.startswith("MCD15A2.A2012105.")]


def run(*arguments: object) -> str:
    result = CliRunner().invoke(
        application(), [str(one) for one in arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_reproject_writes_the_grid_that_was_asked_for(tiles: list[Path], tmp_path: Path) -> None:
    out, picture = tmp_path / "new" / "lai.tif", tmp_path / "lai.png"
    bounds = ("--box", -8, 50.5, 6, 58.5)
    said = run(
        *("reproject", *tiles, "--layer", "Lai_1km", "--resolution", 0.05, *bounds),
        *("-o", out, "--picture", picture),
    )
    assert "280 x 160 pixels, uint8" in said
    assert "from 2 granules" in said
    with rasterio.open(out) as dataset:
        assert dataset.shape == (160, 280)
        assert tuple(dataset.bounds) == pytest.approx((-8, 50.5, 6, 58.5))
    assert picture.read_bytes().startswith(b"\x89PNG")
    again = tmp_path / "again.tif"
    run("reproject", *tiles, "--layer", "Lai_1km", "--like", out, "-o", again)
    assert again.read_bytes() == out.read_bytes()


def test_a_crash_of_the_reader_is_an_error_that_names_the_granules(
    tiles: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "lai.tif"
    command = ["reproject", *map(str, tiles), "--layer", "Lai_1km", "--resolution", "0.1"]
    monkeypatch.setattr(
        "reprojection.formats.hdf4.SD", lambda *_: signal.raise_signal(signal.SIGKILL)
    )
    with pytest.raises(UnreadableGranuleError, match=rf"{tiles[0].name}.* crashed \(signal 9\)"):
        CliRunner().invoke(application(), [*command, "-o", str(out)], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    run(*command, "-o", out)
    monkeypatch.setattr(
        "reprojection.formats.hdf4.SD", lambda *_: signal.raise_signal(signal.SIGKILL)
    )
    asked = ["explain", str(out), "-3.0", "55.0", "--granules", str(tiles[0].parent)]
    with pytest.raises(UnreadableGranuleError, match="crashed"):
        CliRunner().invoke(application(), asked, catch_exceptions=False)


def test_what_cannot_be_written_is_told_in_one_line(tiles: list[Path], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    command = ["reproject", str(tiles[0]), "--layer", "Lai_1km", "--resolution", "0.1"]
    out, picture = tmp_path / "lai.tif", tmp_path / "absent" / "lai.png"
    for words, named in (
        ([*command, "-o", tmp_path / "folder"], tmp_path / "folder"),
        ([*command, "-o", tmp_path / "file" / "lai.tif"], tmp_path / "file" / "lai.tif"),
        ([*command, "-o", out, "--picture", picture], picture),
    ):
        with pytest.raises(SwathmillError, match=f"^{named} cannot be written: [A-Z].*place.$"):
            CliRunner().invoke(application(), list(map(str, words)), catch_exceptions=False)
    with pytest.raises(SwathmillError, match=f"^FOLDER {tmp_path / 'file'} is a file. Name a"):
        CliRunner().invoke(
            application(), ["sample", str(tmp_path / "file")], catch_exceptions=False
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "lai.tif"]


def test_a_raster_without_a_value_is_told(tiles: list[Path], tmp_path: Path) -> None:
    asked = ["reproject", str(tiles[0]), "--layer", "Lai_1km", "--resolution", "0.1"]
    far = ["--box", "100", "50", "102", "52", "-o", str(tmp_path / "far.tif")]
    made = CliRunner().invoke(application(), [*asked, *far])
    assert made.exit_code == 0
    assert made.stderr.startswith("No pixel has a value.")
    near = CliRunner().invoke(application(), [*asked, "-o", str(tmp_path / "near.tif")])
    assert (near.exit_code, near.stderr) == (0, "")


def test_no_mask_and_a_quality_rule_are_refused_together(tmp_path: Path) -> None:
    words = ["reproject", "a.hdf", "--layer", "Lai_1km", "--resolution", "0.1", "--no-mask"]
    with pytest.raises(RefusedError, match="--qa removes pixels") as caught:
        CliRunner().invoke(
            application(),
            [*words, "--qa", "best", "-o", str(tmp_path / "x.tif")],
            catch_exceptions=False,
        )
    assert caught.value.field == "--no-mask"


def test_a_quality_rule_leaves_fewer_pixels(tiles: list[Path], tmp_path: Path) -> None:
    shares = []
    for number, rule in enumerate(((), ("--qa", "FparLai_QC.MODLAND=0"))):
        out = tmp_path / f"{number}.tif"
        run("reproject", *tiles, "--layer", "Lai_1km", "--resolution", 0.1, *rule, "-o", out)
        with rasterio.open(out) as dataset:
            shares.append((dataset.read(1) != dataset.nodata).mean())
    assert 0 < shares[1] < shares[0]


def test_the_grid_of_any_raster_may_be_asked_for(tiles: list[Path], tmp_path: Path) -> None:
    like, out = tmp_path / "like.tif", tmp_path / "out.tif"
    place = rasterio.Affine(0.2, 0.0, -8.05, 0.0, -0.2, 58.53)
    profile = {"count": 1, "dtype": "uint8", "crs": "EPSG:4258", "transform": place}
    with rasterio.open(like, "w", driver="GTiff", width=70, height=40, **profile) as dataset:
        dataset.write(np.zeros((1, 40, 70), np.uint8))
    run("reproject", *tiles, "--layer", "Lai_1km", "--like", like, "-o", out)
    with rasterio.open(out) as made:
        assert (made.transform, made.shape, made.crs.to_epsg()) == (place, (40, 70), 4258)
        assert (made.read(1) != made.nodata).any()
    again = tmp_path / "again.tif"
    run("reproject", *tiles, "--layer", "Lai_1km", "--like", out, "-o", again)
    assert again.read_bytes() == out.read_bytes()


def test_a_raster_without_a_place_has_no_grid(tmp_path: Path) -> None:
    bare = tmp_path / "bare.png"
    with (
        pytest.warns(NotGeoreferencedWarning),
        rasterio.open(bare, "w", driver="PNG", width=4, height=4, count=1, dtype="uint8") as made,
    ):
        made.write(np.zeros((1, 4, 4), np.uint8))
    with pytest.warns(NotGeoreferencedWarning), pytest.raises(GridError, match="where it lies"):
        read_grid(bare)
    with pytest.raises(BadFormatError, match="cannot be opened"):
        read_grid(tmp_path / "absent.tif")


def test_inspect_shows_every_layer(tiles: list[Path]) -> None:
    said = run("inspect", tiles[0])
    for layer in ("Lai_1km", "Fpar_1km", "FparLai_QC"):
        assert layer in said
    assert "tile h17v03" in said


def test_inspect_names_the_convention_of_scales(tiles: list[Path]) -> None:
    said = " ".join(run("inspect", tiles[0]).split())
    assert (
        "values are stored * scale_factor + add_offset, by the catalogue: Fpar_1km, Lai_1km" in said
    )


def test_inspect_says_how_much_is_codes(tiles: list[Path]) -> None:
    lines = run("inspect", tiles[0]).splitlines()
    (names,) = (line.split() for line in lines if line.split()[:1] == ["layer"])
    (lai,) = (line.split() for line in lines if line.split()[:1] == ["Lai_1km"])
    assert names[-3:] == ["valid", "fill", "codes"]
    assert sum(float(share.rstrip("%")) for share in lai[-3:]) == pytest.approx(100.0, abs=0.2)


def test_codes_are_kept_in_a_band_of_their_own(tiles: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "codes.tif"
    asked = ("--layer", "Lai_1km", "--resolution", 0.1, "--codes", "keep", "--search", "valid")
    run("reproject", *tiles, *asked, "-o", out)
    with rasterio.open(out) as dataset:
        assert dataset.descriptions == ("Lai_1km", "Lai_1km codes")
        assert dataset.read(2).max() > 248


def test_inspect_as_json_is_json(tiles: list[Path]) -> None:
    assert '"name":"Lai_1km"' in run("inspect", tiles[0], "--json").replace('": "', '":"')


def test_inspect_refuses_a_netcdf_that_is_no_granule_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weather.nc"
    with h5py.File(path, "w") as file:
        file["t2m"] = np.zeros((4, 5), np.float32)
    monkeypatch.setattr("sys.argv", ["swathmill", "inspect", str(path)])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == 2
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert "no HDF-EOS grid or swath" in said.err


def test_the_box_around_tiles_is_theirs(tiles: list[Path]) -> None:
    outlines = [read_outline(path) for path in tiles]
    west, south, east, north = box_around([one for one in outlines if one is not None])
    # h17v03 and h18v03 lie between 50 and 60 degrees north; at 60 they reach 20 degrees either way.
    assert (south, north) == pytest.approx((50.0, 60.0), abs=1e-6)
    assert (west, east) == pytest.approx((-20.0, 20.0), abs=1e-2)


def test_tiles_fill_their_own_grid(tiles: list[Path]) -> None:
    asked = {"like": None, "crs": None, "resolution": None, "bounds": None}
    west = next(path for path in tiles if "h17v03" in path.name)
    east = next(path for path in tiles if "h18v03" in path.name)
    assert target_grid([west], modis=500, **asked) == modis_tile_grid(17, 3, 500)
    both = target_grid([east, west], modis=1000, **asked)
    assert both.shape == (1200, 2400)
    assert both.transform == modis_tile_grid(17, 3, 1000).transform


def test_swaths_on_the_modis_grid_are_covered(sample: list[Path]) -> None:
    swath = next(path for path in sample if path.name.startswith("MYD04_L2"))
    asked = {"like": None, "crs": None, "resolution": None, "bounds": None}
    grid = target_grid([swath], modis=1000, **asked)
    outline = read_outline(swath)
    assert outline is not None
    assert grid == modis_lattice(1000).snap(project_bounds(box_around([outline]), grid.crs))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "--resolution"),
        ({"modis": 1000, "crs": "EPSG:4326"}, "--modis"),
        ({"like": Path("x.tif"), "resolution": 1.0}, "--like"),
    ],
)
def test_options_that_do_not_make_a_grid_are_refused(
    options: dict[str, object], field: str
) -> None:
    asked: dict[str, object] = dict.fromkeys(("like", "modis", "crs", "resolution", "bounds"))
    with pytest.raises(RefusedError) as caught:
        target_grid([], **(asked | options))  # type: ignore[arg-type]
    assert caught.value.field == field
    assert caught.value.remedy


def test_quality_rules_are_read_by_layer_and_field() -> None:
    assert quality_rule([]) is None
    assert quality_rule(["best"]) == "best"
    assert quality_rule(["A.x=0,1", "A.y=2", "B.z=3"]) == {
        "A": {"x": (0, 1), "y": (2,)},
        "B": {"z": (3,)},
    }


def test_values_of_a_field_named_again_are_joined() -> None:
    words = ["A.x=0", "A.y=4", "A.x=1", "A.X=3"]
    assert quality_rule(words) == {"A": {"x": (0, 1, 3), "y": (4,)}}


@pytest.mark.parametrize(
    "words", [["best", "A.x=0"], ["A=0"], ["A.x="], ["A.x=one"], ["A.x=²"], [""]]
)
def test_quality_rules_that_are_none_are_refused(words: list[str]) -> None:
    with pytest.raises(RefusedError, match="not a rule"):
        quality_rule(words)


def test_a_command_alone_knows_what_all_know() -> None:
    assert command_names() == {name for names in COMMANDS.values() for name in names}
    for names in COMMANDS.values():
        for name in names:
            help_of = [
                CliRunner().invoke(application(words), [name, "--help"]).output
                for words in ((), (name,))
            ]
            assert help_of[0] == help_of[1]
            assert "Usage" in help_of[0]


def test_what_was_made_is_printed_as_json(tmp_path: Path, tiles: list[Path]) -> None:
    out = tmp_path / "x.tif"
    words = ("--layer", "Lai_1km", "--resolution", "0.5", "--out", str(out), "--json")
    said = json.loads(run("reproject", tiles[0], *words))
    assert (said["file"], said["picture"], said["data_type"]) == (str(out), None, "uint8")
    with rasterio.open(out) as made:
        assert (said["width"], said["height"]) == (made.width, made.height)
    assert said["granules"] == [Path(tiles[0]).name]
