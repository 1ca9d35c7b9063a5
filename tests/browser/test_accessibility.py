"""No page, in no state, has a fault that axe finds (WCAG 2.0 to 2.2, A and AA; best practice)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.gallery import STATES, State, Theme, World, browsing, world
from tests.browser.pages import faults, misfits, small_targets

pytestmark = pytest.mark.browser

QUICK: tuple[tuple[Theme, int], ...] = (("dark", 360), ("light", 1280))
THEMES: tuple[Theme, ...] = ("light", "dark")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, sample_archive: Path) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("gallery"), sample_archive) as made:
        yield made


@pytest.fixture(
    params=[
        *QUICK,
        *(
            pytest.param((theme, width), marks=pytest.mark.proof)
            for width in (360, 768, 1280, 1600)
            for theme in THEMES
            if (theme, width) not in QUICK
        ),
    ],
    ids=lambda one: f"{one[0]}, {one[1]}",
    scope="module",
)
def opened(
    chromium: Browser, seen: World, request: pytest.FixtureRequest
) -> Iterator[Callable[[State], Page]]:
    theme, width = request.param
    with browsing(chromium, seen, theme, width) as opening:
        yield opening


@pytest.mark.parametrize("part", STATES)
def test_no_page_has_a_fault_in_any_state(opened: Callable[[State], Page], part: str) -> None:
    found = []
    for state in STATES[part]:
        page = opened(state)
        found += [f"{state.name}: {fault}" for fault in faults(page)]
        page.close()
    assert found == []


@pytest.fixture(scope="module")
def opened_on_a_phone(chromium: Browser, seen: World) -> Iterator[Callable[[State], Page]]:
    with browsing(chromium, seen, "light", 360, by_finger=True) as opening:
        yield opening


@pytest.mark.proof
@pytest.mark.parametrize("part", STATES)
def test_nothing_is_too_small_for_a_finger_in_any_state(
    opened_on_a_phone: Callable[[State], Page], part: str
) -> None:
    found = []
    for state in STATES[part]:
        page = opened_on_a_phone(state)
        found += [f"{state.name}: {one}" for one in (*small_targets(page), *misfits(page))]
        page.close()
    assert found == []
