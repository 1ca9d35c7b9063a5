"""Reduction: the scientist's own package over one group, in the sandbox."""

import json
import shutil
from pathlib import Path

import rasterio
from pydantic import BaseModel, ConfigDict
from rasterio.errors import RasterioIOError

from tasks.blobs import PACKAGES
from tasks.categories import Category
from tasks.classify import AttemptError
from tasks.errors import CorruptBlobError
from tasks.model import ArtifactFile
from tasks.packages import Package, unpack
from tasks.spec import ReduceSpec
from worker.cache import sha256
from worker.confined import run_confined
from worker.context import Context
from worker.group import MANIFEST
from worker.sandbox import Bounds, Places

PARAMETERS = "parameters.json"
_GB = 10**9


class _Band(BaseModel):
    model_config = ConfigDict(extra="ignore")

    file: str


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    bands: tuple[_Band, ...]


def reduce(spec: ReduceSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Run the package and store the outputs it declares."""
    fetched = context.fetch_inputs(until=0.1)
    places = Places(
        package=context.folder("package"),
        inputs=context.folder("input"),
        outputs=context.folder("output"),
        temporary=context.folder("temporary"),
    )
    for files in fetched.values():
        for path in files:
            shutil.move(path, places.inputs / path.name)
    parameters = json.dumps(spec.parameters, indent=1, sort_keys=True)
    (places.inputs / PARAMETERS).write_text(parameters + "\n", "utf-8")
    package = _package(spec, context, places.package)
    context.tell(0.1, f"running {package.name}")
    run_confined(context.sandbox, package.command, places, _bounds(package, context))
    context.tell(0.9, "checking and storing outputs")
    outputs = check_outputs(spec, package, places)
    return tuple(context.upload(path) for path in outputs)


def check_outputs(spec: ReduceSpec, package: Package, places: Places) -> tuple[Path, ...]:
    """The declared outputs, which are plain files; rasters open and have pixels.

    Raises:
        AttemptError: user code failed, naming the output and what was written instead.
    """
    text = (places.inputs / MANIFEST).read_text("utf-8")
    files = (Path(band.file).stem for band in _Manifest.model_validate_json(text).bands)
    # A group over fewer layers than were planned (their granules were lacking) has fewer outputs.
    present = dict(package.expand_outputs(dict.fromkeys(files)))
    paths = []
    for name in spec.outputs:
        path = places.outputs / name
        if name not in present and not path.exists():
            continue
        if path.is_symlink() or not path.is_file():
            written = sorted(p.name for p in places.outputs.iterdir())[:20]
            raise AttemptError(
                Category.USER_CODE_FAILED,
                f"the package declares the output {name} and did not write it; it wrote: "
                f"{', '.join(written) or 'nothing'}",
            )
        if name in present and present[name].kind == "raster":
            _check_raster(path)
        paths.append(path)
    return tuple(paths)


def _check_raster(path: Path) -> None:
    try:
        with rasterio.open(path) as dataset:
            # The last block is what a program that was cut short did not write.
            rows, cols = dataset.block_shapes[-1]
            row, col = (dataset.height - 1) // rows, (dataset.width - 1) // cols
            dataset.read(dataset.count, window=dataset.block_window(dataset.count, row, col))
    except RasterioIOError as error:
        raise AttemptError(
            Category.USER_CODE_FAILED,
            f"the package's output {path.name} is not a raster that opens: {error}",
        ) from error


def _package(spec: ReduceSpec, context: Context, to: Path) -> Package:
    blob = f"{spec.digest}.tar"
    archive = context.scratch / blob
    context.blobs.get_file(PACKAGES, blob, archive)
    found = sha256(archive)
    if found != spec.digest:
        raise CorruptBlobError(f"{PACKAGES}/{blob}", spec.digest, found)
    package = unpack(archive.read_bytes(), to)
    archive.unlink()
    return package


def _bounds(package: Package, context: Context) -> Bounds:
    """The package's own limits, within those of an attempt."""
    wanted = package.resources
    return Bounds(
        memory=int(min(wanted.memory_gb, context.settings.attempt_memory_gb) * _GB),
        seconds=wanted.timeout_seconds,
        processes=wanted.processes,
        output=int(wanted.output_gb * _GB),
    )
