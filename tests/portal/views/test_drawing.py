"""What is told of a layer's classes, at its bound."""

import numpy as np
import pytest

from portal.views import drawing
from portal.views.survey_chart import survey_chart
from reprojection.grid.grids import Grid
from reprojection.read.description import Band, Provenance
from reprojection.read.raster import Raster
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
        assert [round(share, 3) for _, _, share, _, _ in told][-2:] == [0.333, 0.5]
        assert all(share == before for _, _, share, _, before in told)


def test_a_histogram_has_the_values_before_the_rule_behind_those_with_it() -> None:
    drawn = survey_chart((0.0, 2.0), (0.01, 0.0), (0.03, 0.02), has_rule=True)
    first, second = drawn.columns
    (_, top, height), (_, kept_top, kept_height) = first.parts
    assert top < kept_top
    assert height == pytest.approx(3 * kept_height)
    assert [kind for kind, *_ in first.parts] == ["behind", ""]
    assert second.bar.text == "1 to 2: 0% of pixels with the rule, 2% before"
    plain = survey_chart((0.0, 2.0), (0.01, 0.0), (0.01, 0.0), has_rule=False)
    assert [[kind for kind, *_ in one.parts] for one in plain.columns] == [[""], [""]]
    assert plain.columns[0].bar.text == "0 to 1: 1% of pixels"
