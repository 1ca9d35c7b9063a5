"""Reduction: run a package over one group, the scientist's own in the sandbox."""

import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from reprojection.read.description import Provenance
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import ReduceSpec
from tasks.network_hosts import AllowedHosts, not_allowed, read_endpoint
from tasks.packages.packages import Package, load_package
from tasks.request.taking import kinds_taken
from tasks.service.classify import AttemptError
from tasks.settings import Settings
from tasks.shown_text import shown
from worker.phases.adopt import OutputOrigin, Reader, adopt, failed, read_confined, read_here
from worker.phases.checkpoint import kept, restore
from worker.phases.context import Context, Surroundings
from worker.phases.flat import SUFFIX, take_flat, write_flat
from worker.phases.group import LINEAGE, MANIFEST, PROVENANCE, Manifest, ManifestBand
from worker.phases.netcdf import write_netcdf
from worker.phases.package_files import shipped_packages, unpacked
from worker.phases.run_use import reported_use
from worker.phases.valid_pixels import check_pixels
from worker.sandbox.admission import Share, admitted
from worker.sandbox.confined import run_confined, run_shipped
from worker.sandbox.sandbox import Places, SandboxLimits, Tier

PARAMETERS = "parameters.json"
_GB = 10**9


def reduce(spec: ReduceSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Run the package and store the outputs it declares."""
    fetched = context.fetch_inputs(until=0.1)
    with unpacked(spec.digest, context) as (package_folder, dependencies):
        places = Places(
            package=package_folder,
            inputs=context.folder("input"),
            outputs=context.folder("output"),
            temporary=context.folder("temporary"),
            environment=dependencies,
        )
        given = {path.name: path for files in fetched.values() for path in files}
        package = load_package(package_folder)
        if package.checkpoint:
            places = replace(places, checkpoint=context.folder("checkpoint"))
        if spec.least_valid:
            check_pixels(spec.least_valid, package, given)
        give_parameters(spec.parameters, places.inputs)
        give_inputs(package, given, places.inputs, copied=context.sandbox != "bubblewrap")
        if places.checkpoint is not None:
            restore(context, places.checkpoint)
        outputs = run_package(spec, package, places, context, given.get(LINEAGE))
        said = read_manifest(places).said
    context.tell(0.9, "storing outputs")
    return tuple(
        context.upload(output.path, completeness=said, valid_share=output.valid_share)
        for output in outputs
    )


def run_package(
    spec: ReduceSpec,
    package: Package,
    places: Places,
    around: Surroundings,
    lineage: Path | None = None,
) -> tuple["Output", ...]:
    """Run a package over its inputs, and collect the outputs it declares.

    `lineage` is the group's file of that, if it has one.

    Raises:
        AttemptError: user code failed, user code timed out, out of memory, or choice refused.
        UnsuitedError: this machine lacks the sandbox that it needs.
        NoRoomError: this machine has no room for the run now.
    """
    bounds, manifest = _bounds(package, around.settings), read_manifest(places)
    places = replace(places, parameters=spec.parameters)
    ours = spec.digest in shipped_packages()
    tier = None if ours else _tier(package, around)
    bounds = replace(bounds, reach=_reach(package, tier, around.settings))
    # The states of a checkpoint: one is put together, one waits, one is stored.
    copies = 0 if places.checkpoint is None else 3 * bounds.state
    # A shipped package uses far less than it may: it looks at blocks of rows.
    share = Share(
        cores=package.resources.cores,
        memory=0 if ours else bounds.memory,
        disk=0 if ours else bounds.output + copies,
        disk_declared=package.resources.declares_disk,
    )
    around.tell(0.1, f"waiting for room on this machine: {share.cores} processors")
    since = time.monotonic()
    with admitted(around.admission, share, places.outputs) as own:
        bounds = replace(bounds, processors=own)
        around.tell(0.1, f"running {package.name}, {_at_most(bounds.seconds)}")
        waited = time.monotonic() - since
        with (
            reported_use(places, bounds, tier, around.note_use, waited),
            kept(places.checkpoint, bounds, around),
        ):
            if tier is None:
                run_shipped(package.command, places, bounds)
            else:
                run_confined(tier, package.command, places, bounds)
    if tier is None:
        read = read_here(places.outputs, manifest, bounds.memory // 2)
    else:
        read = read_confined(tier, places.outputs, manifest, bounds, around.folder("reading"))
    if package.inputs.format != "geotiff" and manifest.grid is not None:
        kinds = _declared(package, manifest)
        take_flat([one for one in kinds if kinds[one] == "raster"], manifest.grid, places.outputs)
    around.tell(0.8, "checking outputs")
    artifact = around.folder("artifact")
    made = PROVENANCE.validate_json(lineage.read_bytes()) if lineage else None
    return take_outputs(spec, package, manifest, places.outputs, artifact, read, made)


def give_parameters(parameters: Mapping[str, str], to: Path) -> None:
    """Write the parameters of a request into a package's folder of inputs."""
    text = json.dumps(parameters, indent=1, sort_keys=True)
    (to / PARAMETERS).write_text(text + "\n", "utf-8")


def give_inputs(package: Package, given: Mapping[str, Path], to: Path, *, copied: bool) -> None:
    """Move the files of a group that the package takes into its folder of inputs, or copy them.

    `given` holds the group's files by name. They may be links to stored files, so they have to be
    copied where the package does not get them on a read-only mount: Landlock alone would let it
    change their permissions. The manifest is written for these files alone.

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
    form = FORMS.get(package.inputs.format)
    text = _as_given(whole, bands, form).model_dump_json(indent=1)
    (to / MANIFEST).write_text(text + "\n", "utf-8")
    place = shutil.copyfile if copied else shutil.move
    region = (whole.region,) if whole.region else ()
    for name in {*region, *(file for band in bands for file in band.files)}:
        if form is None:
            place(given[name], to / name)
        else:
            form.write(given[name], to / form.name(name))


@dataclass(frozen=True)
class Form:
    """A format of inputs in physical units: how its files end, and how a stack is written."""

    suffix: str
    write: Callable[[Path, Path], None]

    def name(self, file: str) -> str:
        """Return the name of a stack's file."""
        return str(PurePosixPath(file).with_suffix(self.suffix))


FORMS = {"envi": Form(SUFFIX, write_flat), "netcdf": Form(".nc", write_netcdf)}
"""The formats of inputs beside GeoTIFF."""


def _as_given(whole: Manifest, bands: tuple[ManifestBand, ...], form: Form | None) -> Manifest:
    """Return the manifest for the bands that a package gets, in the format in which it does."""
    if form is None:
        return whole.model_copy(update={"bands": bands})
    given = tuple(
        band.model_copy(
            update={
                "file": form.name(band.file),
                "scale": 1.0,
                "offset": 0.0,
                "applied": True,
                "further": tuple(
                    one.model_copy(update={"file": form.name(one.file)}) for one in band.further
                ),
            }
        )
        for band in bands
    )
    region = form.name(whole.region) if whole.region else ""
    return whole.model_copy(update={"bands": given, "region": region})


@dataclass(frozen=True, kw_only=True)
class Output:
    """A file that the package made; `valid_share` is a raster's share of pixels with a value."""

    path: Path
    valid_share: float | None = None


def _declared(package: Package, manifest: Manifest) -> dict[str, str]:
    """Return the outputs that a package declares over the layers of its group: names and kinds."""
    labels = dict.fromkeys(Path(band.file).stem for band in manifest.bands)
    return {name: output.kind for name, output in package.expand_outputs(labels)}


def take_outputs(
    spec: ReduceSpec,
    package: Package,
    manifest: Manifest,
    written: Path,
    to: Path,
    read: Reader,
    lineage: Provenance | None = None,
) -> tuple[Output, ...]:
    """Collect the declared outputs of the folder `written` in the folder `to`.

    Rasters are read by `read` and adopted, other files copied. `lineage` is the group's.

    Raises:
        AttemptError: user code failed; names the output and what was written instead.
    """
    # A group over fewer layers than planned has fewer outputs: granules were missing, or layers
    # have a kind that the package does not take.
    present = _declared(package, manifest)
    names = [name for name in spec.outputs if name in present or (written / name).exists()]
    for name in names:
        path = written / name
        if path.is_symlink() or not path.is_file():
            there = sorted(shown(p.name) for p in written.iterdir())[:20]
            raise AttemptError(
                Category.USER_CODE_FAILED,
                f"the package declares the output {name} and did not write it as a file; it "
                f"wrote: {', '.join(there) or 'nothing'}",
            )
    rasters = [name for name in names if present.get(name) == "raster"]
    shares: dict[str, float] = {}
    for name, (found, data) in zip(rasters, read(rasters) if rasters else (), strict=False):
        own = tuple(b for b in manifest.bands if name in package.expand([Path(b.file).stem]))
        origin = OutputOrigin(
            spec=spec, package=package, manifest=manifest, bands=own, lineage=lineage
        )
        shares[name] = adopt(found, data, to / name, origin)
    for name in names:
        if name not in rasters:
            _copy(written / name, to / name)
    return tuple(Output(path=to / name, valid_share=shares.get(name)) for name in names)


def _copy(path: Path, to: Path) -> None:
    """Copy a package's file as it is; raise AttemptError for anything but a file."""
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(source, "rb") as file:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            raise failed(path.name, "is no file")
        with to.open("xb") as copy:
            shutil.copyfileobj(file, copy)


def read_manifest(places: Places) -> Manifest:
    """Read the manifest of the group that the package was given."""
    return Manifest.model_validate_json((places.inputs / MANIFEST).read_text("utf-8"))


class UnsuitedError(AttemptError):
    """This machine cannot run a package: it lacks a `tier` of the sandbox, or a stronger one.

    Where no other machine has it either, the choice is refused.
    """

    def __init__(self, message: str, tier: Tier) -> None:
        super().__init__(Category.CHOICE_REFUSED, message)
        self.tier = tier


def _tier(package: Package, around: Surroundings) -> Tier:
    """Return the tier to run a stranger's package in.

    Raises:
        UnsuitedError: the machine has none that the operator allows.
    """
    if around.sandbox is None:
        raise UnsuitedError(
            f"{package.name} was not run: this service runs the reductions that come with it, and "
            "no other, because its machine cannot shut them in as its operator demands "
            "(SWATHMILL_SANDBOX, `swathmill doctor`)",
            "limits",
        )
    return around.sandbox


def _reach(package: Package, tier: Tier | None, settings: Settings) -> AllowedHosts | None:
    """Return what a package may reach: the hosts that it names, if the operator allows them.

    Raises:
        AttemptError: choice refused, where it names another one.
        UnsuitedError: the sandbox has no network.
    """
    if not package.network:
        return None
    allowed = settings.allowed_hosts
    if refused := allowed.refused(package.network):
        raise AttemptError(Category.CHOICE_REFUSED, " ".join(not_allowed(package.name, refused)))
    if tier != "bubblewrap":
        raise UnsuitedError(
            f"{package.name} was not run: it needs the network, and the sandbox of this worker "
            f"has none in the tier {tier} (`swathmill doctor`)",
            "bubblewrap",
        )
    return AllowedHosts(frozenset(map(read_endpoint, package.network)), allowed.networks)


def _at_most(seconds: float) -> str:
    """Say a package's own time limit, of which a page that knows the class's knows nothing."""
    return f"{seconds:g} s at most" if seconds < 120 else f"{seconds / 60:.3g} min at most"


def _bounds(package: Package, settings: Settings) -> SandboxLimits:
    """Return the package's own limits, capped at those of an attempt."""
    wanted = package.resources
    return SandboxLimits(
        memory=int(min(wanted.memory_gb, settings.attempt_memory_gb) * _GB),
        seconds=wanted.timeout_seconds,
        processes=wanted.processes,
        output=int(min(wanted.output_gb, settings.attempt_disk_gb) * _GB),
    )
