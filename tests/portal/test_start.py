"""How the portal's process starts to serve."""

import gc
from pathlib import Path

import pytest

from portal import __main__ as process
from portal.http_server import Server
from tasks.service import logs
from tests.portal.scripted import SECRET


def test_what_the_start_made_is_not_looked_through_for_garbage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SWATHMILL_STORAGE", f"file:{tmp_path}/storage")
    monkeypatch.setenv("SWATHMILL_SECRET", SECRET)
    monkeypatch.setenv("SWATHMILL_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setattr(logs, "configure", lambda *_level, **_fields: None)
    looked_through: list[int] = []

    def serve(_server: Server) -> None:
        looked_through.append(len(gc.get_objects()))

    monkeypatch.setattr(Server, "run", serve)
    gc.unfreeze()
    try:
        process.main()
    finally:
        gc.unfreeze()
    assert looked_through
    assert looked_through[0] < 20_000, "some 300,000 objects are there"
