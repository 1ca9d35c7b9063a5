"""The development kit of packages: skeletons that run, and runs on this machine without a stack."""

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from enum import StrEnum
from pathlib import Path

import numpy as np
import rasterio

from reprojection.read.window_time import WindowTime
from swathmill.errors import ArgumentError
from tasks.bag.spec import GridSpec, Input, ReduceSpec
from tasks.packages.package_uploads import Upload, repack
from tasks.packages.packages import (
    Package,
    PackageError,
    load_package,
    pack,
    unpack,
    unpack_environment,
)
from tasks.packages.parameters import with_defaults
from tasks.packages.python_environments import resolve
from tasks.request.checks import parameter_problems
from tasks.settings import Settings
from worker.phases.context import Surroundings
from worker.phases.group import MANIFEST, Manifest, ManifestBand
from worker.phases.reduce import (
    PARAMETERS,
    Output,
    give_inputs,
    give_parameters,
    run_package,
)
from worker.sandbox.accounts import state_files
from worker.sandbox.sandbox import Places, report

SKELETONS = Path(__file__).with_name("skeletons")
_NAME = "NAME"  # stands for the package's in a skeleton
_SIZE = 40, 60  # rows and columns of the made-up group
_DAYS = tuple(date(2012, 1, day) for day in (1, 9, 17, 25))


class Language(StrEnum):
    """The languages that there is a skeleton for."""

    PYTHON = "python"
    C = "c"
    R = "r"
    JULIA = "julia"
    FORTRAN = "fortran"
    MATLAB = "matlab"
    SHELL = "shell"


def write_skeleton(folder: Path, language: Language) -> None:
    """Write a package that runs into a new folder, whose name is the package's.

    Raises:
        ArgumentError: the folder is there, or its name cannot be a package's.
    """
    if folder.exists():
        raise ArgumentError(f"{folder} is there already.", "Name a folder that is not there.")
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
        draft = Path(name) / folder.name
        shutil.copytree(SKELETONS / language.value, draft)
        manifest = draft / "package.yaml"
        manifest.write_text(manifest.read_text("utf-8").replace(_NAME, folder.name), "utf-8")
        try:
            load_package(draft)
        except PackageError as error:
            said = str(error).replace(f"{manifest}: ", "")
            raise ArgumentError(
                f"{folder.name!r} cannot be a package's name: {said}",
                "Write lower-case letters, digits and dashes, such as my-mean.",
            ) from None
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(draft, folder)


def _wanted(own: Mapping[str, str], given: Mapping[str, str], package: Package) -> dict[str, str]:
    """Return a run's parameters: those given, those that lie with the inputs, the defaults.

    Raises ArgumentError for what a request is refused for.
    """
    known = package.parameters
    fitting = {name: text for name, text in own.items() if known is None or name in known}
    wanted = {**fitting, **given}
    for _, problem, remedy in parameter_problems(package, wanted, leave_out="leave -p out"):
        raise ArgumentError(f"{problem[0].upper()}{problem[1:]}", remedy)
    return with_defaults(wanted, known)


def checked(package: Path) -> Upload:
    """Return what an upload of a package would store; raise PackageError as the upload would."""
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
        folder = Path(name)
        archive = package
        if package.is_dir():
            archive = folder / "packed"
            archive.write_bytes(pack(package).data)
        (folder / "files").mkdir()
        upload = repack(archive, folder / "files", folder / "archive.tar")
        if upload.needs is None:
            return upload
        made = folder / "archive.tar"
        return resolve(upload, made, folder / "environment", Settings(), _wheels())[0]


def _wheels() -> Path:
    """Return the folder that keeps wheels between tries on this machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swathmill/wheels"


def try_package(
    package: Path,
    inputs: Path | None,
    parameters: Mapping[str, str],
    out: Path,
    checkpoint: Path | None = None,
) -> tuple[Output, ...]:
    """Run a package over a group's inputs as a worker does, and put its outputs into a folder.

    `inputs` is a folder or a zip as `swathmill inputs` writes it; None takes a made-up group. What
    the program prints goes to standard output. A package with a checkpoint goes on from the folder
    `checkpoint`, and leaves there what it has reached, however it ends.

    Raises:
        PackageError: the package cannot be uploaded either.
        ArgumentError: the inputs are none of a group, or the package has no such parameter.
        AttemptError: the run failed, as it would on a worker.
    """
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
        here = Surroundings(
            scratch=Path(name).resolve(),
            settings=Settings(data_dir=Path(name).resolve()),  # which no other run shares
            tell=lambda _fraction, _note: None,  # the program's own output is shown
            sandbox=report(Settings()).tier,
        )
        upload, environment = _taken(package, here)
        places = Places(
            package=here.scratch / "package",
            environment=environment,
            inputs=here.folder("input"),
            outputs=here.folder("output"),
            temporary=here.folder("temporary"),
        )
        if upload.package.checkpoint:
            places = replace(places, checkpoint=here.folder("checkpoint"))
        with _group(inputs) as group:
            given = {path.name: path for path in group.iterdir() if path.is_file()}
            own = json.loads(given[PARAMETERS].read_text("utf-8")) if PARAMETERS in given else {}
            wanted = _wanted(own, parameters, upload.package)
            give_parameters(wanted, places.inputs)
            give_inputs(upload.package, given, places.inputs, copied=True)
            manifest = Manifest.model_validate_json(given[MANIFEST].read_text("utf-8"))
        labels = dict.fromkeys(Path(band.file).stem for band in manifest.bands)
        spec = ReduceSpec(
            inputs=(Input(key="0" * 64, name=manifest.group),),
            package=upload.package.name,
            digest=upload.digest,
            outputs=upload.package.expand(labels),
            parameters=wanted,
        )
        with _kept(checkpoint, places.checkpoint):
            made = run_package(spec, upload.package, places, here)
        out.mkdir(parents=True, exist_ok=True)
        return tuple(
            Output(path=Path(shutil.copy(one.path, out)), valid_share=one.valid_share)
            for one in made
        )


@contextmanager
def _kept(own: Path | None, seen: Path | None) -> Iterator[None]:
    """Copy the user's folder of a checkpoint to where the program has it, and back at the end."""
    if own is None or seen is None:
        yield
        return
    own.mkdir(parents=True, exist_ok=True)
    for name in state_files(own):
        shutil.copyfile(own / name, seen / name)
    try:
        yield
    finally:
        for name in state_files(seen):
            shutil.copyfile(seen / name, own / name, follow_symlinks=False)


def _taken(package: Path, here: Surroundings) -> tuple[Upload, Path | None]:
    """Unpack a package as a worker would have it, with its Python dependencies."""
    archive = package
    if package.is_dir():
        archive = here.scratch / "packed"
        archive.write_bytes(pack(package).data)
    made = here.scratch / "archive.tar"
    upload, environment = repack(archive, here.folder("files"), made), None
    if upload.needs is not None:
        upload, packed = resolve(upload, made, here.scratch / "resolved", here.settings, _wheels())
        environment = here.folder("environment")
        unpack_environment(packed, environment)
    unpack(made, here.folder("package"))
    return upload, environment


@contextmanager
def _group(inputs: Path | None) -> Iterator[Path]:
    """Yield a folder with a group's files."""
    if inputs is not None and inputs.is_dir():
        _check_group(inputs)
        yield inputs
        return
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
        folder = Path(name)
        if inputs is None:
            write_group(folder)
        else:
            try:
                with zipfile.ZipFile(inputs) as archive:
                    archive.extractall(folder)
            except zipfile.BadZipFile:
                raise _no_group(inputs) from None
        _check_group(inputs or folder, folder)
        yield folder


def _check_group(said: Path, folder: Path | None = None) -> None:
    if not ((folder or said) / MANIFEST).is_file():
        raise _no_group(said)


def _no_group(inputs: Path) -> ArgumentError:
    return ArgumentError(
        f"{inputs} holds no inputs of a group: there is no {MANIFEST}.",
        "Fetch some with `swathmill inputs TASK`, or leave --on out for a made-up group.",
    )


def write_group(folder: Path) -> None:
    """Write a small made-up group: leaf area on four days, with a lake and a cloud."""
    rows, columns = _SIZE
    transform = rasterio.Affine(0.01, 0, 10.0, 0, -0.01, 50.0)
    y, x = np.mgrid[0:rows, 0:columns]
    name = "Lai_1km.tif"
    profile = {
        "driver": "GTiff",
        "dtype": "uint8",
        "count": len(_DAYS),
        "height": rows,
        "width": columns,
        "crs": "EPSG:4326",
        "transform": transform,
        "nodata": 255,
        "photometric": "MINISBLACK",
    }
    with rasterio.open(folder / name, "w", **profile) as out:
        for number, day in enumerate(_DAYS, 1):
            values = (20 + 10 * number + 10 * np.sin(x / 9) * np.cos(y / 7)).astype(np.uint8)
            values[(y - 20) ** 2 + (x - 15) ** 2 < 40] = 255  # a lake, on all days
            values[:, 10 * number : 10 * number + 5] = 255  # a cloud that moves
            out.write(values, number)
            out.set_band_description(number, day.isoformat())
        out.scales, out.offsets = [0.1] * len(_DAYS), [0.0] * len(_DAYS)
        out.units = ["m2 m-2"] * len(_DAYS)
    manifest = Manifest(
        group="made-up 2012-01",
        cell="made-up",
        window="2012-01",
        time=WindowTime(days=((date(2012, 1, 1), date(2012, 1, 31)),)),
        grid=GridSpec(crs="EPSG:4326", transform=tuple(transform)[:6], width=columns, height=rows),
        bands=tuple(
            ManifestBand(
                file=name,
                band=number,
                product="MCD15A2",
                collection="5",
                layer="Lai_1km",
                date=day.isoformat(),
                weight=1.0,
                days=8,
                units="m2 m-2",
            )
            for number, day in enumerate(_DAYS, 1)
        ),
    )
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", "utf-8")
