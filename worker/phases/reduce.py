"""Reduction: run a package over one group, the scientist's own in the sandbox."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tasks.model.categories import Category
from tasks.model.model import ArtifactFile
from tasks.model.packages import MANIFEST as PACKAGE_MANIFEST
from tasks.model.packages import SHIPPED, Package, pack, unpack
from tasks.model.spec import ReduceSpec
from tasks.request.taking import kinds_taken
from tasks.run.classify import AttemptError
from tasks.storage.blobs import PACKAGES
from worker.phases.adopt import OutputOrigin, adopt
from worker.phases.context import Context
from worker.phases.group import MANIFEST, Manifest
from worker.sandbox.confined import run_confined, run_shipped
from worker.sandbox.sandbox import Places, SandboxLimits

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
    given = {path.name: path for files in fetched.values() for path in files}
    parameters = json.dumps(spec.parameters, indent=1, sort_keys=True)
    (places.inputs / PARAMETERS).write_text(parameters + "\n", "utf-8")
    package = _package(spec, context, places.package)
    give_inputs(package, given, places.inputs, copied=context.sandbox != "bubblewrap")
    context.tell(0.1, f"running {package.name}")
    if spec.digest in shipped_packages():
        run_shipped(package.command, places, _bounds(package, context))
    else:
        run_confined(context.sandbox, package.command, places, _bounds(package, context))
    context.tell(0.8, "checking outputs")
    outputs = take_outputs(spec, package, places, context.folder("artifact"))
    context.tell(0.9, "storing outputs")
    said = read_manifest(places).said
    return tuple(
        context.upload(output.path, completeness=said, valid_share=output.valid_share)
        for output in outputs
    )


def give_inputs(package: Package, given: Mapping[str, Path], to: Path, *, copied: bool) -> None:
    """Move the files of a group that the package takes into its folder of inputs, or copy them.

    `given` holds the group's files by name. They may be links to stored files, so they have to be
    copied where the package does not get them on a read-only mount: even Landlock lets it change
    their permissions. The manifest is written for these files alone.

    Raises:
        AttemptError: choice refused, if the package takes none of the layers.
    """
    whole = Manifest.model_validate_json(given[MANIFEST].read_text("utf-8"))
    bands = tuple(band for band in whole.bands if band.kind in package.takes)
    if whole.bands and not bands:
        held = ", ".join(sorted({f"{band.layer} ({band.kind})" for band in whole.bands}))
        raise AttemptError(
            Category.CHOICE_REFUSED,
            f"{package.name} takes layers of {kinds_taken(package)}; the group has {held}",
        )
    text = whole.model_copy(update={"bands": bands}).model_dump_json(indent=1)
    (to / MANIFEST).write_text(text + "\n", "utf-8")
    place = shutil.copyfile if copied else shutil.move
    for name in {file for band in bands for file in band.files}:
        place(given[name], to / name)


@dataclass(frozen=True, kw_only=True)
class Output:
    """A file that the package made; `valid_share` is a raster's share of pixels with a value."""

    path: Path
    valid_share: float | None = None


def take_outputs(
    spec: ReduceSpec, package: Package, places: Places, to: Path
) -> tuple[Output, ...]:
    """Collect the declared outputs in the folder `to`: rasters are adopted, other files copied.

    Raises:
        AttemptError: user code failed; names the output and what was written instead.
    """
    manifest = read_manifest(places)
    labels = tuple(dict.fromkeys(Path(band.file).stem for band in manifest.bands))
    # A group over fewer layers than planned has fewer outputs: granules were missing, or layers
    # have a kind that the package does not take.
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
            share = adopt(path, to / name, OutputOrigin(spec=spec, manifest=manifest, bands=own))
            taken.append(Output(path=to / name, valid_share=share))
        else:
            shutil.copyfile(path, to / name)
            taken.append(Output(path=to / name))
    return tuple(taken)


def read_manifest(places: Places) -> Manifest:
    """Read the manifest of the group that the package was given."""
    return Manifest.model_validate_json((places.inputs / MANIFEST).read_text("utf-8"))


@lru_cache(maxsize=1)
def shipped_packages() -> Mapping[str, bytes]:
    """Return the archives of the packages that come with Swathmill, by their SHA-256.

    By this alone a package counts as ours, whatever its name: the same content does the same.
    """
    archives = (pack(manifest.parent) for manifest in SHIPPED.glob(f"*/{PACKAGE_MANIFEST}"))
    return {archive.digest: archive.data for archive in archives}


def _package(spec: ReduceSpec, context: Context, to: Path) -> Package:
    data = shipped_packages().get(spec.digest)
    if data is None:
        archive = context.scratch / f"{spec.digest}.tar"
        context.blobs.get_file(PACKAGES, archive.name, archive, spec.digest)
        data = archive.read_bytes()
        archive.unlink()
    return unpack(data, to)


def _bounds(package: Package, context: Context) -> SandboxLimits:
    """Return the package's own limits, capped at those of an attempt."""
    wanted = package.resources
    return SandboxLimits(
        memory=int(min(wanted.memory_gb, context.settings.attempt_memory_gb) * _GB),
        seconds=wanted.timeout_seconds,
        processes=wanted.processes,
        output=int(wanted.output_gb * _GB),
    )
