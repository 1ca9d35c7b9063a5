"""Aggregation over time: join the rasters of one layer into one CF NetCDF or Zarr cube."""

import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime, time
from pathlib import Path

from reprojection.read.completeness import WHOLE, Completeness
from reprojection.write.cube import write_cube
from reprojection.write.write import open_raster
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import CubeSpec
from tasks.service.classify import AttemptError
from worker.phases.completeness import completeness_of, without_file
from worker.phases.context import Context

_EPOCH = (1980, 1, 1, 0, 0, 0)


def cube(spec: CubeSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Join the rasters into `<name>.nc` or `<name>.zarr.zip`."""
    fetched = context.fetch_inputs()
    paths = [path for _, files in sorted(fetched.items()) for path in files]
    moments = [_moment(spec, index) for index, files in sorted(fetched.items()) for _ in files]
    if not paths:
        raise AttemptError(
            Category.CHOICE_REFUSED,
            f"none of the {len(spec.inputs)} inputs has a raster: the reduction had no granule of "
            "its layer, or does not take what the layer holds",
        )
    context.tell(0.5, f"putting {len(paths)} dates together")
    parts = [open_raster(path).said.completeness for path in paths]
    said = completeness_of(spec, parts, without_file(spec, fetched))
    made = write(spec, paths, moments, context.folder("cube"), said)
    context.tell(0.9, f"storing {made.name}")
    return (context.upload(made, keep=False, completeness=said),)


def _moment(spec: CubeSpec, index: int) -> datetime:
    """Return the time of an input: its day's begin, or the start of its overpass."""
    clock = time.fromisoformat(spec.times[index]) if spec.times else time()
    return datetime.combine(spec.days[index], clock, UTC)


def write(
    spec: CubeSpec,
    paths: Sequence[Path],
    times: Sequence[datetime],
    folder: Path,
    completeness: Completeness = WHOLE,
) -> Path:
    """Write the cube's file into a folder; equal rasters give equal bytes."""
    if spec.form == "netcdf":
        file = folder / f"{spec.name}.nc"
        write_cube(paths, file, kind="netcdf", times=times, completeness=completeness)
        return file
    store = folder / f"{spec.name}.zarr"
    write_cube(paths, store, kind="zarr", times=times, completeness=completeness)
    file = folder / f"{spec.name}.zarr.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(p for p in store.rglob("*") if p.is_file()):
            name = zipfile.ZipInfo(path.relative_to(store).as_posix(), _EPOCH)
            archive.writestr(name, path.read_bytes())
    return file
