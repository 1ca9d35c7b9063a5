"""Small granules that reading tests write for themselves."""

from datetime import UTC, datetime, timedelta

import numpy as np

from modis.tile import TILE_SIZE
from reprojection.sample.hdfeos_write import FieldToWrite, GranuleToWrite, GridToWrite, SwathToWrite

START = datetime(2012, 3, 5, tzinfo=UTC)


def wrap_up(
    structure: GridToWrite | SwathToWrite,
    name: str,
    product: str,
    collection: int,
    attributes: dict[str, str | int] | None = None,
) -> GranuleToWrite:
    """A granule around a grid or swath."""
    return GranuleToWrite(
        local_name=name,
        product=product,
        collection=collection,
        start=START,
        end=START + timedelta(days=8, seconds=-1),
        produced=datetime(2012, 6, 1, 12, tzinfo=UTC),
        day_night="Day",
        ring=[(-10.0, 50.0), (-12.0, 60.0), (0.0, 60.0), (0.0, 50.0)],
        structure=structure,
        attributes=attributes or {},
    )


def small_tile(
    tile: tuple[int, int] = (17, 3),
    side: int = 24,
    product: str = "MCD15A2",
    collection: int = 5,
    date: str = "2012065",
    produced: str = "2012153130500",
    fields: list[FieldToWrite] | None = None,
) -> GranuleToWrite:
    """A whole tile of a few pixels, with Lai_1km counting up and every code in its first row."""
    h, v = tile
    left, top = (h - 18) * TILE_SIZE, (9 - v) * TILE_SIZE
    lai = (np.arange(side * side) % 100).reshape(side, side).astype(np.uint8)
    lai[0, :8] = [100, 101, 249, 250, 253, 254, 255, 0]
    qc = np.zeros((side, side), np.uint8)
    qc[1] = 1  # MODLAND other
    qc[2] = 1 << 5  # saturated main algorithm
    qc[3] = 255
    default = [
        FieldToWrite(
            name="Lai_1km",
            values=lai,
            dims=("YDim", "XDim"),
            typed={"valid_range": (0, 100), "_FillValue": 255},
            attributes={"scale_factor": 0.1, "add_offset": 0.0, "units": "m^2/m^2"},
        ),
        FieldToWrite(
            name="FparLai_QC",
            values=qc,
            dims=("YDim", "XDim"),
            typed={"valid_range": (0, 254), "_FillValue": 255},
            attributes={"units": "class-flag"},
        ),
    ]
    return wrap_up(
        GridToWrite(
            name="MOD_Grid_MOD15A2",
            upper_left=(left, top),
            lower_right=(left + TILE_SIZE, top - TILE_SIZE),
            fields=default if fields is None else fields,
        ),
        f"{product}.A{date}.h{h:02d}v{v:02d}.{collection:03d}.{produced}.hdf",
        product,
        collection,
    )


def noisy_tile(side: int = 600) -> GranuleToWrite:
    """A tile whose values do not compress, so that each layer takes its own bytes."""
    noise = np.random.default_rng(3)
    fields = [
        FieldToWrite(
            name=name,
            values=noise.integers(0, 100, (side, side)).astype(np.uint8),
            dims=("YDim", "XDim"),
        )
        for name in ("Lai_1km", "Fpar_1km")
    ]
    return small_tile(side=side, fields=fields)
