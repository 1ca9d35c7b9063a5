"""The picture of a mail: a mail goes without one where it cannot be had."""

from pathlib import Path
from typing import Any

import pytest

from service_manager.mail import mail_picture
from tasks.bag.runtime import Runtime
from tasks.errors import BlobMissingError, StoreError
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tests.portal.scripted import put_result, raster_bytes
from tests.portal.submissions import submitted


@pytest.fixture
def runtime() -> Runtime:
    return memory_runtime(ManualClock())


def test_what_storage_lacks_or_does_not_give_is_no_picture(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = submitted(runtime)
    assert mail_picture.draw(runtime, request) is None
    put_result(runtime, request, "a", "a.tif", b"no raster")

    def fails(error: Exception) -> Any:
        def get_file(*_: object) -> None:
            raise error

        return get_file

    assert mail_picture.draw(runtime, request) is None  # it is none
    for error in (StoreError("away"), BlobMissingError("a/b"), OSError(28, "full"), KeyError("x")):
        monkeypatch.setattr(runtime.blobs, "get_file", fails(error))
        assert mail_picture.draw(runtime, request) is None


def test_a_large_raster_is_not_fetched_for_a_picture(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, raster = submitted(runtime), raster_bytes(tmp_path)
    put_result(runtime, request, "a", "a.tif", raster)
    monkeypatch.setattr(mail_picture, "_MOST_BYTES", len(raster))
    assert mail_picture.draw(runtime, request) is not None
    monkeypatch.setattr(mail_picture, "_MOST_BYTES", len(raster) - 1)
    fetched: list[str] = []
    monkeypatch.setattr(runtime.blobs, "get_file", lambda *at: fetched.append(str(at)))
    assert mail_picture.draw(runtime, request) is None
    assert fetched == []


def test_the_picture_is_of_data_though_a_bit_field_comes_first(
    runtime: Runtime, tmp_path: Path
) -> None:
    request, raster = submitted(runtime), raster_bytes(tmp_path)
    for layer in ("FparLai_QC", "Lai_1km"):
        put_result(runtime, request, f"MCD15A2.005/{layer}", "a.tif", raster)
    drawn = mail_picture.draw(runtime, request)
    assert drawn is not None
    assert drawn.path == "MCD15A2.005/Lai_1km/a.tif"
