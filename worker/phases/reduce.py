"""Reduction: the scientist's own package over one group, in the sandbox."""

import json
import shutil
from pathlib import Path

from tasks.model.categories import Category
from tasks.model.model import ArtifactFile
from tasks.model.packages import Package, unpack
from tasks.model.spec import ReduceSpec
from tasks.run.classify import AttemptError
from tasks.storage.blobs import PACKAGES
from worker.phases.adopt import Origin, adopt
from worker.phases.context import Context
from worker.phases.group import MANIFEST, Manifest
from worker.sandbox.confined import run_confined
from worker.sandbox.sandbox import Bounds, Places

PARAMETERS = "parameters.json"
_GB = 10**9


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
    context.tell(0.8, "checking outputs")
    outputs = take_outputs(spec, package, places, context.folder("artifact"))
    context.tell(0.9, "storing outputs")
    return tuple(context.upload(path) for path in outputs)


def take_outputs(spec: ReduceSpec, package: Package, places: Places, to: Path) -> tuple[Path, ...]:
    """The declared outputs, in the folder `to`: rasters as rasters of ours, files as they are.

    Raises:
        AttemptError: user code failed, naming the output and what was written instead.
    """
    manifest = Manifest.model_validate_json((places.inputs / MANIFEST).read_text("utf-8"))
    labels = tuple(dict.fromkeys(Path(band.file).stem for band in manifest.bands))
    # A group over fewer layers than were planned (their granules were lacking) has fewer outputs.
    present = dict(package.expand_outputs(labels))
    taken = []
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
            own = tuple(b for b in manifest.bands if name in package.expand([Path(b.file).stem]))
            adopt(path, to / name, Origin(spec=spec, manifest=manifest, bands=own))
        else:
            shutil.copyfile(path, to / name)
        taken.append(to / name)
    return tuple(taken)


def _package(spec: ReduceSpec, context: Context, to: Path) -> Package:
    name = f"{spec.digest}.tar"
    archive = context.scratch / name
    context.blobs.get_file(PACKAGES, name, archive, spec.digest)
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
