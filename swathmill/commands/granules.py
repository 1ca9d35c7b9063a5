"""Commands that make files of granules without a stack: sample, reproject."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from modis.box import LonLatBox
from reprojection.isolation import Rights, run_in_fork
from reprojection.read.raster import Raster
from reprojection.reproject import Options, reproject
from reprojection.sample.sample import write_sample_archive
from reprojection.sample.towers import FOLDER as TOWERS
from reprojection.sample.towers import tower_files
from reprojection.write.meanings import attribute_table
from reprojection.write.picture import write_png
from reprojection.write.write import write_cog
from swathmill.commands.shared.options import (
    JsonOption,
    granules_text,
    print_json,
)
from swathmill.commands.shared.paths import input_files, output_folder
from swathmill.commands.shared.target import refused, target_grid
from swathmill.console import PlainConsole
from tasks.errors import SwathmillError


class MergeRule(StrEnum):
    """Which granule a pixel is taken from if several have a value."""

    NADIR = "nadir"
    LATEST = "latest"
    MEAN = "mean"
    FIRST = "first"


class Extra(StrEnum):
    """A band beside the values."""

    COUNT = "count"
    SOURCE = "source"
    REASON = "reason"


class Codes(StrEnum):
    """How codes such as water or cloud are treated."""

    MASK = "mask"
    KEEP = "keep"


class Search(StrEnum):
    """Which source pixels a pixel may take."""

    FOOTPRINT = "footprint"
    VALID = "valid"


class Compress(StrEnum):
    """How pixels are compressed."""

    DEFLATE = "deflate"
    ZSTD = "zstd"
    NONE = "none"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(sample)
    app.command("reproject")(reproject_files)


def sample(
    folder: Annotated[Path, typer.Argument(help="Folder to write the granules into.")],
    evapotranspiration: Annotated[
        bool,
        typer.Option("--evapotranspiration", help="Write the granules of the worked example."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a small archive of granules with synthetic values in the real HDF4-EOS format."""
    with _writing(output_folder(folder, "FOLDER")):
        parts = ("evapotranspiration",) if evapotranspiration else ("tiles", "swaths")
        paths = write_sample_archive(folder, parts)
        towers = [*tower_files()] if evapotranspiration else []
        for name, text in towers:
            path = folder / TOWERS / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    size = sum(path.stat().st_size for path in paths)
    if as_json:
        print_json({"folder": folder, "granules": [path.name for path in paths], "bytes": size})
        return
    PlainConsole().print(
        f"{len(paths)} synthetic granules, {size / 1e6:.1f} MB, in {folder}", markup=False
    )
    if towers:
        PlainConsole().print(f"{len(towers)} made-up towers in {folder / TOWERS}", markup=False)


def reproject_files(
    files: Annotated[list[Path], typer.Argument(help="Granules of one product and date.")],
    layer: Annotated[str, typer.Option(help="Layer; `Name[2]` names one of several bands.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="GeoTIFF to write.")],
    crs: Annotated[str | None, typer.Option(help="Target CRS; default EPSG:4326.")] = None,
    resolution: Annotated[float | None, typer.Option(help="Pixel side in the CRS's units.")] = None,
    box: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(
            help="West, south, east, north in degrees; by default the granules' own, with "
            "--modis whole tiles."
        ),
    ] = None,
    modis: Annotated[
        int | None, typer.Option(help="The sinusoidal tile grid at 250, 500 or 1000 m instead.")
    ] = None,
    like: Annotated[Path | None, typer.Option(help="The grid of this raster instead.")] = None,
    resampling: Annotated[
        str | None, typer.Option(help="Method; by default the layer's own.")
    ] = None,
    merge: Annotated[MergeRule, typer.Option(help="Where swaths overlap.")] = MergeRule.NADIR,
    qa: Annotated[
        list[str] | None,
        typer.Option(
            help="best, good, or a rule such as FparLai_QC.MODLAND=0,1; may be repeated: pixels "
            "must pass the rules of all fields, and have any of the values given for one field."
        ),
    ] = None,
    physical: Annotated[bool, typer.Option("--physical", help="float32 in units.")] = False,
    brightness: Annotated[
        bool,
        typer.Option("--brightness", help="float32: kelvin for thermal bands of level 1B."),
    ] = False,
    no_mask: Annotated[
        bool, typer.Option("--no-mask", help="Keep all but fill values; not with --qa.")
    ] = False,
    clamp: Annotated[
        bool, typer.Option("--clamp", help="Hold cubic values to the layer's valid range.")
    ] = False,
    codes: Annotated[
        Codes, typer.Option(help="Codes become nodata, or also a band of their own.")
    ] = Codes.MASK,
    search: Annotated[
        Search, typer.Option(help="The nearest source pixel, or the nearest with a value.")
    ] = Search.FOOTPRINT,
    extra: Annotated[list[Extra] | None, typer.Option(help="Extra band; may be repeated.")] = None,
    compress: Annotated[
        Compress, typer.Option(help="How pixels are compressed.")
    ] = Compress.DEFLATE,
    threads: Annotated[int, typer.Option(min=1, help="Threads for kernels and compression.")] = 1,
    picture: Annotated[Path | None, typer.Option(help="Write a PNG of the result too.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Reproject one layer of granules of one date onto one grid, as a Cloud Optimized GeoTIFF."""
    if no_mask and qa:
        raise refused(
            "no-mask",
            "keeps all but fill values, and --qa removes pixels.",
            "Give one of the two.",
        )
    input_files(files if like is None else [*files, like], "FILE")
    options = Options(
        resampling=resampling,
        merge=merge.value,
        qa=quality_rule(qa or []),
        mask=not no_mask,
        units="brightness" if brightness else "physical" if physical else "stored",
        codes=codes.value,
        search=search.value,
        extra_bands=tuple(band.value for band in extra or ()),
        clamp=clamp,
    )

    def make() -> _Made:
        grid = target_grid(
            files,
            like=like,
            modis=modis,
            crs=crs,
            resolution=resolution,
            bounds=LonLatBox(*box) if box else None,
        )
        raster = reproject(files, layer, grid, options, threads=threads)
        _write(raster, out, made_in / out.name, compress, threads)
        return _about(raster)

    # A damaged file can crash the HDF4 library; that must end in a message, not in a core dump.
    with _beside(out) as made_in:
        opened = tuple(files if like is None else [*files, like])
        made = run_in_fork(Rights(opened, (made_in,)), make)
        _move(made_in, out)
    if picture is not None:
        with _writing(picture):
            write_png(out, picture)
    if as_json:
        print_json({"file": out, "picture": picture, **asdict(made)})
        return
    PlainConsole().print(f"{out}: {made.text}", markup=False)
    for one in made.without:
        PlainConsole(stderr=True).print(f"Left out: {one}", markup=False)
    if not made.valid_share:
        PlainConsole(stderr=True).print(
            "No pixel has a value. Look whether the grid and the granules meet (--box is west, "
            "south, east, north), and what --qa leaves out."
        )
    if picture is not None:
        PlainConsole().print(f"Picture  {picture}", markup=False)


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """Have a folder beside a file, which the process that reads granules may write."""
    with ExitStack() as kept:
        with _writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            folder = TemporaryDirectory(prefix=".swathmill-", dir=out.parent)
            made_in = Path(kept.enter_context(folder))
        yield made_in


def _write(raster: Raster, out: Path, made: Path, compress: Compress, threads: int) -> None:
    """Write a raster that is to be `out`, and the names of its classes in the file beside it.

    Other programs read the names from there only (GDAL's PAM).
    """
    with _writing(out):
        write_cog(raster, made, compress=compress.value, threads=threads)
        if raster.kind == "class" and raster.codes:
            table = attribute_table(raster.codes, raster.colours)
            made.with_name(f"{made.name}.aux.xml").write_text(table, "utf-8")


def _move(made_in: Path, out: Path) -> None:
    """Put a raster and the file beside it in the place of those that are there."""
    with _writing(out):
        (made_in / out.name).replace(out)
        beside = out.with_name(f"{out.name}.aux.xml")
        beside.unlink(missing_ok=True)
        if (made_in / beside.name).exists():
            (made_in / beside.name).replace(beside)


def quality_rule(words: list[str]) -> str | dict[str, dict[str, tuple[int, ...]]] | None:
    """Parse words such as `FparLai_QC.MODLAND=0,1` into rules by QA layer and field, or a preset.

    If several words name one field, their values are joined.

    Raises:
        RefusedError: a word is neither a rule nor a preset, or a preset comes with rules.
    """
    if not words:
        return None
    if len(words) == 1 and words[0].strip() and "=" not in words[0]:
        return words[0]
    rules: dict[str, dict[str, tuple[int, ...]]] = {}
    for word in words:
        place, _, values = word.partition("=")
        layer, _, name = place.rpartition(".")
        codes = values.split(",")
        if not layer or not name or not all(code.strip().isdecimal() for code in codes):
            raise refused(
                "qa",
                f"{word!r} is not a rule.",
                "Write LAYER.FIELD=0,1, or one preset: best, good.",
            )
        fields = rules.setdefault(layer, {})
        # The names of fields are not case-sensitive.
        known = next((one for one in fields if one.upper() == name.upper()), name)
        fields[known] = (*fields.get(known, ()), *map(int, codes))
    return rules


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Report in one line what keeps a file or folder from being written."""
    try:
        yield
    except OSError as problem:
        raise SwathmillError(
            f"{path} cannot be written: {problem.strerror or problem}. Name another place."
        ) from problem


@dataclass(frozen=True, kw_only=True)
class _Made:
    """What a raster that was written holds; `valid_share` is of its first band."""

    width: int
    height: int
    data_type: str
    valid_share: float
    granules: tuple[str, ...]
    without: tuple[str, ...]

    @property
    def text(self) -> str:
        return (
            f"{self.width} x {self.height} pixels, {self.data_type}, {self.valid_share:.1%} with "
            f"a value, from {granules_text(len(self.granules))}"
        )


def _about(raster: Raster) -> _Made:
    height, width = raster.grid.shape
    return _Made(
        width=width,
        height=height,
        data_type=str(raster.data.dtype),
        valid_share=float(raster.valid(0).mean()),
        granules=tuple(one.name for one in raster.provenance.granules),
        without=tuple(f"{one.what}: {one.why}" for one in raster.completeness.missing),
    )
