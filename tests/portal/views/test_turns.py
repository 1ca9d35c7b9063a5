"""Few tiles are drawn at once, and none for who has left."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from portal.app import create_app
from portal.views import state
from portal.views.state import LeftError, Views
from tests.own_loop import run_on_own_loop
from tests.portal.scripted import live_runtime, settings


def views() -> Views:
    found: Views = create_app(settings(), live_runtime()).state.portal.state(Views)
    return found


def caller(*, left: bool = False) -> Any:
    async def is_disconnected() -> bool:
        return left

    return SimpleNamespace(is_disconnected=is_disconnected)


def test_nothing_is_drawn_for_who_has_left() -> None:
    drawn: list[str] = []

    async def ask() -> None:
        await views().in_turn(caller(left=True), lambda: drawn.append("tile"))

    with pytest.raises(LeftError):
        run_on_own_loop(ask())
    assert drawn == []


def test_no_more_are_drawn_at_once_than_there_are_processes() -> None:
    running, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(state._AT_ONCE, timeout=30)

    def draw() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait()  # each waits for the other: fewer would never end
        with lock:
            running -= 1

    async def ask() -> None:
        shown = views()
        await asyncio.gather(*(shown.in_turn(caller(), draw) for _ in range(3 * state._AT_ONCE)))

    run_on_own_loop(ask())
    assert most == state._AT_ONCE


def test_tiles_drawn_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_KEPT_BYTES", 10)
    shown = views()
    for name in "abc":
        shown.keep(name, b"1234")
    assert [shown.kept(name) for name in "abc"] == [None, b"1234", b"1234"]
