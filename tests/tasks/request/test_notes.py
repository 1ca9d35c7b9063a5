"""What is said of a region before it is sent."""

from collections.abc import Mapping

import pytest

from tasks.request.document import parse_request
from tasks.request.notes import request_notes
from tasks.request.resolved import resolve
from tests.portal.submissions import DOCUMENT


def notes(region: Mapping[str, object], crs: str, resolution: float = 1000.0) -> str:
    grid = {"crs": crs, "resolution": resolution}
    request = parse_request({**DOCUMENT, "region": region, "grid": grid})
    return " ".join(request_notes(resolve(request)))


NETHERLANDS = {"place": "Netherlands"}
MAIN = {"place": "Netherlands, main part"}


def test_a_country_with_parts_far_away_is_told_with_its_reach() -> None:
    said = notes(NETHERLANDS, "EPSG:4326", 0.1)
    assert "it reaches from 68.4° W to 7.2° E, 12° N to 53.5° N" in said
    assert "'Netherlands, main part'" in said
    assert notes(MAIN, "EPSG:4326", 0.1) == ""


@pytest.mark.parametrize(
    ("region", "crs", "leaves"),
    [
        (NETHERLANDS, "EPSG:28992", True),
        (MAIN, "EPSG:28992", False),
        ({"bbox": [-8, 50.5, 6, 58.5]}, "EPSG:27700", True),
        ({"bbox": [-6, 50.5, 1, 58.5]}, "EPSG:27700", False),
        ({"bbox": [178, -40, -178, -35]}, "EPSG:3832", False),  # over the antimeridian
        ({"bbox": [-8, 50.5, 6, 58.5]}, "EPSG:6933", False),
    ],
)
def test_a_region_beyond_what_a_crs_is_made_for_is_told(
    region: Mapping[str, object], crs: str, leaves: bool
) -> None:
    assert (f"leaves the area for which {crs} is made" in notes(region, crs)) is leaves
