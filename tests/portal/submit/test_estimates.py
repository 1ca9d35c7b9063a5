"""What the form says of a request before it is sent, at its bound."""

import pytest

from portal.submit import estimates
from tasks.request.document import parse_request
from tasks.request.resolved import resolve
from tasks.settings import Settings
from tests.portal.submissions import DOCUMENT


@pytest.mark.parametrize(("most", "more"), [(3, 0), (2, 1)])
def test_the_first_tiles_are_named_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch, most: int, more: int
) -> None:
    monkeypatch.setattr(estimates, "_MOST_TILES", most)
    tiles = ["h18v03", "h17v03", "h17v04"]
    asked = resolve(parse_request({**DOCUMENT, "region": {"tiles": tiles}}))
    made = estimates.estimate(asked, Settings())
    assert made.tiles == ("h17v03", "h18v03", "h17v04")[:most]
    assert made.more_tiles == more
