"""A small tile of leaf area whose attributes can be wrong."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np

from modis.tile import TILE_SIZE
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    GridToWrite,
    write_granule,
)

DAY = dt.datetime(2012, 1, 1, tzinfo=dt.UTC)


def leaf_area(
    folder: Path, *, name: str = "", days: int = 8, **fields: dict[str, Any] | None
) -> Path:
    """A tile MCD15A2 of 100 pixels a side; `fields` changes attributes, None leaves a layer out."""
    side = 100
    names = ("Fpar_1km", "Lai_1km", "FparLai_QC", "FparExtra_QC", "FparStdDev_1km", "LaiStdDev_1km")
    layers = []
    for one in names:
        attributes = fields.get(one, {})
        if attributes is None:
            continue
        values = attributes.pop("values", np.full((side, side), 20, np.uint8))
        layers.append(
            FieldToWrite(
                name=one,
                values=values,
                dims=("YDim", "XDim"),
                typed={"_FillValue": 255},
                attributes=attributes,
            )
        )
    path = folder / (name or "MCD15A2.A2012001.h18v04.005.2012017000000.hdf")
    granule = GranuleToWrite(
        local_name="MCD15A2.A2012001.h18v04.005.2012017000000.hdf",
        product="MCD15A2",
        collection=5,
        start=DAY,
        end=DAY + dt.timedelta(days=days, seconds=-1),
        produced=DAY,
        day_night="Day",
        ring=((0.0, 40.0), (0.0, 50.0), (15.0, 50.0), (13.0, 40.0)),
        structure=GridToWrite(
            name="MOD_Grid_MOD15A2",
            upper_left=(0.0, 5 * TILE_SIZE),
            lower_right=(TILE_SIZE, 4 * TILE_SIZE),
            fields=layers,
        ),
    )
    write_granule(path, granule)
    return path
