"""What is told of a layer's classes, at its bound."""

import numpy as np
import pytest

from portal.views import drawing
from reprojection.grid.grids import Grid
from reprojection.read.raster import Band, Provenance, Raster
from reprojection.reproject import Options


def test_a_survey_tells_the_most_frequent_classes_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = np.repeat(np.array([9, 1, 5], np.uint8), (3, 1, 2)).reshape(1, 6)
    grid = Grid(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=6, height=1)
    raster = Raster(
        data=plane[np.newaxis],
        grid=grid,
        nodata=255,
        kind="class",
        bands=(Band(name="v"),),
        codes={5: "rare"},
        provenance=Provenance(product="P", collection="1", layer="L", granules=()),
        scale=1.0,
        offset=0.0,
        units="",
    )
    monkeypatch.setattr(drawing, "_raster", lambda _: raster)
    asked = drawing.Asked(files=(), folders=(), layer="L", grid=grid, options=Options())
    for most, classes in ((3, [1, 5, 9]), (2, [5, 9])):
        monkeypatch.setattr(drawing, "_MOST_CLASSES", most)
        told = drawing.survey(asked).classes
        assert [value for value, *_ in told] == classes
        assert [round(share, 3) for *_, share, _ in told][-2:] == [0.333, 0.5]
