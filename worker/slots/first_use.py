"""Use the libraries once, on a made-up granule, before children and makers are forked.

A maker lives for one request, and paid with its first files for what libraries and our code find
out at their first use: search paths, projections, layouts, parsed catalogues. Forks share it.
"""

import tempfile
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np

from modis.tile import TILE_SIZE, Tile
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    GridToWrite,
    write_granule,
)
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import GridSpec, Input, MosaicSpec, ReprojectSpec
from worker.phases.collect import check_granule
from worker.phases.reproject import CELL
from worker.sandbox.messages import Job
from worker.slots.lent_blobs import MADE, LentBlobs
from worker.slots.maker_answers import MakerContext, settings
from worker.slots.making import make

_NAME = "MCD15A2.A2012065.h17v03.005.2012153130500.hdf"
_LAYER, _QC = "Lai_1km", "FparLai_QC"
_TILE = Tile(17, 3)
_SIDE = 24
_GRID = GridSpec(crs="EPSG:4326", transform=(0.25, 0, -8.0, 0, -0.25, 58.0), width=32, height=32)
_KEY = "0" * 64


def use_libraries() -> None:
    """Check a granule, reproject it and join the cell, as makers do; nothing stays on disk.

    A worker starts without this, too: what fails here is found by an attempt, which says why.
    """
    with suppress(Exception), tempfile.TemporaryDirectory(prefix="swathmill-") as name:
        make_all(Path(name))


def make_all(folder: Path) -> None:
    """Make a granule, a cell of it and a raster of that in an empty folder."""
    inputs = folder / "0000"
    inputs.mkdir()
    write_granule(inputs / _NAME, _granule())
    check_granule(inputs / _NAME)
    cell = ReprojectSpec(
        inputs=(Input(key=_KEY, name=_NAME),),
        product="MCD15A2",
        collection="5",
        layer=_LAYER,
        day=date(2012, 3, 5),
        grid=_GRID,
        resampling="nearest",
    )
    _make(folder, cell, _NAME)
    (folder / MADE / CELL).rename(inputs / CELL)
    _make(folder, MosaicSpec(inputs=(Input(key=_KEY, file=CELL),), name="a", grid=_GRID), CELL)


def _make(folder: Path, spec: Spec, name: str) -> None:
    file = ArtifactFile(name=name, blob=f"a/{name}", size=1, sha256="")
    job = Job(key=spec.key, claim="c", spec=spec, inputs={0: (file,)}, scratch=folder)
    context = MakerContext(
        key=job.key,
        claim=job.claim,
        inputs=job.inputs,
        scratch=folder,
        given=folder,
        settings=settings(),
        blobs=LentBlobs((), folder),
        cache=None,
        tell=lambda *_: None,
        sandbox=None,
    )
    make(job, context)


def _granule() -> GranuleToWrite:
    """Make up a whole tile of a few pixels."""
    fields = [
        FieldToWrite(
            name=layer,
            values=np.full((_SIDE, _SIDE), 7, np.uint8),
            dims=("YDim", "XDim"),
            typed={"valid_range": (0, largest), "_FillValue": 255},
            attributes={"scale_factor": 0.1, "add_offset": 0.0, "units": units},
        )
        for layer, largest, units in ((_LAYER, 100, "m^2/m^2"), (_QC, 254, "class-flag"))
    ]
    start = datetime(2012, 3, 5, tzinfo=UTC)
    return GranuleToWrite(
        local_name=_NAME,
        product="MCD15A2",
        collection=5,
        start=start,
        end=start + timedelta(days=8, seconds=-1),
        produced=start + timedelta(days=88),
        day_night="Day",
        ring=[(-10.0, 50.0), (-12.0, 60.0), (0.0, 60.0), (0.0, 50.0)],
        structure=GridToWrite(
            name="MOD_Grid_MOD15A2",
            upper_left=(_TILE.left, _TILE.top),
            lower_right=(_TILE.left + TILE_SIZE, _TILE.top - TILE_SIZE),
            fields=fields,
        ),
    )
