"""Polygons are read in the portal's process: one for each call would take most of the time."""

import pytest

from portal.polygons import polygons_api
from tasks.request.region.files import read_features


@pytest.fixture(autouse=True)
def _read_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the process out, but where a client calls; test_child.py shows that both are equal."""
    if "client" not in request.node.name:
        monkeypatch.setattr(polygons_api, "features_apart", read_features)
