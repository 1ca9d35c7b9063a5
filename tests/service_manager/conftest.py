"""Fixtures that several tests of the manager share."""

from collections.abc import Iterator

import pytest

from service_manager.dispatch.fleet_dispatch import FleetDispatch
from tasks.service import tracing
from tasks.service.tracing import Span
from tests.service_manager.scene import Scene, one_place


@pytest.fixture
def scene() -> Scene:
    """Tasks of one request, "r"."""
    scene = Scene()
    scene.request("r")
    return scene


@pytest.fixture
def dispatch() -> FleetDispatch:
    return one_place(window=100, resend=30.0)


@pytest.fixture
def spans() -> Iterator[list[Span]]:
    """The spans that are recorded from now on."""
    found: list[Span] = []
    tracing.tell(found.append)
    yield found
    tracing.forget(found.append)
