"""Aggregation over time: the rasters of one layer as one CF NetCDF or Zarr cube."""

import zipfile
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path

from reprojection.write.cube import write_cube
from tasks.model.categories import Category
from tasks.model.model import ArtifactFile
from tasks.model.spec import CubeSpec
from tasks.run.classify import AttemptError
from worker.phases.context import Context

_EPOCH = (1980, 1, 1, 0, 0, 0)


def cube(spec: CubeSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Put the rasters together into `<name>.nc` or `<name>.zarr.zip`."""
    fetched = context.fetch_inputs()
    # As for mosaics, an input may be without the file.
    paths = [path for _, files in sorted(fetched.items()) for path in files]
    days = [spec.days[index] for index, files in sorted(fetched.items()) for _ in files]
    if not paths:
        raise AttemptError(
            Category.USER_CODE_FAILED, f"none of the {len(spec.inputs)} inputs has a raster"
        )
    context.tell(0.5, f"putting {len(paths)} dates together")
    made = write(spec, paths, days, context.folder("cube"))
    context.tell(0.9, f"storing {made.name}")
    return (context.upload(made, keep=False),)


def write(spec: CubeSpec, paths: Sequence[Path], days: Sequence[date], folder: Path) -> Path:
    """The cube's file in a folder. Equal rasters give equal bytes."""
    times = [datetime.combine(day, time(), UTC) for day in days]
    if spec.form == "netcdf":
        file = folder / f"{spec.name}.nc"
        write_cube(paths, file, kind="netcdf", times=times)
        return file
    store = folder / f"{spec.name}.zarr"
    write_cube(paths, store, kind="zarr", times=times)
    file = folder / f"{spec.name}.zarr.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(p for p in store.rglob("*") if p.is_file()):
            name = zipfile.ZipInfo(path.relative_to(store).as_posix(), _EPOCH)
            archive.writestr(name, path.read_bytes())
    return file
