"""Users' rasters in the store: versions never change, and a file stays while something needs it."""

from dataclasses import replace
from pathlib import Path

import pytest

from reprojection.catalogue.user_raster import RasterLayer, UserRaster
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError, StoreError
from tasks.packages.rasters import blob_of, is_raster
from tasks.request.document import Request, parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import REQUEST, RequestTable, request_row
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import RASTERS
from tasks.storage.clock import ManualClock
from tasks.storage.store import Operation, Row
from tasks.storage.updates import write
from tasks.uploads import raster_operations, upload_operations
from tasks.uploads.raster_operations import RASTER_UPLOADS, RasterVersionRow
from tasks.uploads.upload_operations import UploadConflictError
from tasks.uploads.upload_table import upload_id


@pytest.fixture
def runtime() -> Runtime:
    return memory_runtime(ManualClock())


def raster(name: str = "hills") -> UserRaster:
    return UserRaster(
        name=name,
        crs="EPSG:4326",
        transform=(1, 0, 0, 0, -1, 50),
        width=4,
        height=4,
        resolution=111_000.0,
        outline=(((0.0, 46.0), (4.0, 46.0), (4.0, 50.0), (0.0, 50.0)),),
        layers=(RasterLayer(name="hills", dtype="int16", kind="continuous"),),
    )


def push(
    runtime: Runtime,
    folder: Path,
    content: bytes,
    version: str = "",
    name: str = "hills",
    owner: str = "ann",
) -> RasterVersionRow:
    file = folder / "pushed"
    file.write_bytes(content)
    return raster_operations.push(runtime, owner, raster(name), version, file, "hills.tif")


def there(runtime: Runtime, version: RasterVersionRow) -> bool:
    return runtime.blobs.exists(RASTERS, blob_of(version.digest))


def request(name: str = "raster:hills") -> Request:
    other = {"name": "MOD13A2", "collection": "6", "layers": ["x"]}
    return parse_request(
        {
            "title": "t",
            "products": [{"name": name, "layers": ["hills"]} if is_raster(name) else other],
            "region": {"bbox": [0, 46, 4, 50]},
            "time": {"start": "2012-01-01", "end": "2012-01-02"},
            "grid": {"modis": 1000},
            "notify": "ann@example.org",
        }
    )


def test_versions_count_up_and_the_same_content_is_the_version_that_has_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    assert [push(runtime, tmp_path, one).version for one in (b"a", b"b", b"a", b"c")] == [
        "1",
        "2",
        "1",
        "3",
    ]
    assert push(runtime, tmp_path, b"c", "2012").version == "2012"
    assert push(runtime, tmp_path, b"d").version == "2013"


def test_a_version_never_changes(runtime: Runtime, tmp_path: Path) -> None:
    first = push(runtime, tmp_path, b"a", "1")
    with pytest.raises(UploadConflictError, match="Version 1 of hills is there"):
        push(runtime, tmp_path, b"b", "1")
    assert push(runtime, tmp_path, b"a", "1") == first


def test_the_file_of_a_refused_push_goes(runtime: Runtime, tmp_path: Path) -> None:
    kept = push(runtime, tmp_path, b"a", "1")
    with pytest.raises(UploadConflictError):
        push(runtime, tmp_path, b"b", "1")
    assert len(list(runtime.blobs.names(RASTERS))) == 2
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 1
    assert list(runtime.blobs.names(RASTERS)) == [blob_of(kept.digest)]
    assert RASTER_UPLOADS.table(runtime).all_unnamed() == []


def test_no_owner_has_more_rasters_or_versions_than_there_may_be(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_operations, "MOST_OWNED", 2)
    monkeypatch.setattr(upload_operations, "MOST_VERSIONS", 2)
    for name in ("hills", "coast"):
        push(runtime, tmp_path, b"a", name=name)
    with pytest.raises(UploadConflictError, match="2 rasters, the most"):
        push(runtime, tmp_path, b"a", name="third")
    push(runtime, tmp_path, b"a", name="third", owner="bob")
    push(runtime, tmp_path, b"b")
    with pytest.raises(UploadConflictError, match="2 versions, the most"):
        push(runtime, tmp_path, b"c")
    assert push(runtime, tmp_path, b"b").version == "2"


def test_a_raster_that_a_row_cannot_describe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raster_operations.check_description(raster())
    monkeypatch.setattr(raster_operations, "_MOST_DESCRIPTION", 10)
    with pytest.raises(UploadConflictError, match="too many layers"):
        raster_operations.check_description(raster())


def test_a_file_that_storage_holds_in_part_is_stored_again(
    runtime: Runtime, tmp_path: Path
) -> None:
    name = blob_of(push(runtime, tmp_path, b"whole").digest)
    runtime.blobs.delete(RASTERS, name)
    runtime.blobs.put_bytes(RASTERS, name, b"who")
    push(runtime, tmp_path, b"whole")
    assert runtime.blobs.get_bytes(RASTERS, name) == b"whole"


def test_a_raster_that_was_deleted_while_it_was_pushed_is_not_there(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(RASTER_UPLOADS.table(runtime)), "version", lambda *_: None)
    with pytest.raises(StoreError, match="was deleted while it was pushed"):
        push(runtime, tmp_path, b"a")


def test_a_request_names_the_version_that_was_newest(runtime: Runtime, tmp_path: Path) -> None:
    push(runtime, tmp_path, b"a")
    second = push(runtime, tmp_path, b"b")
    (choice,) = raster_operations.described(runtime, "ann", request()).products
    assert choice.exact is not None
    assert (choice.exact.digest, choice.exact.version) == (second.digest, "2")
    assert (choice.exact.owner, choice.exact.size) == ("ann", 1)
    plain = request("MOD13A2")
    assert raster_operations.described(runtime, "ann", plain) is plain


def test_a_raster_of_another_is_not_there_until_it_is_shared(
    runtime: Runtime, tmp_path: Path
) -> None:
    push(runtime, tmp_path, b"a")
    asked = request("raster:ann/hills")
    with pytest.raises(RequestRefusedError, match="you may not see it") as refused:
        raster_operations.described(runtime, "bob", asked)
    assert refused.value.field == "products.0.name"
    with pytest.raises(RequestRefusedError, match="you may not see it"):
        raster_operations.described(runtime, "bob", request())


def test_a_raster_whose_file_storage_has_lost_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    pushed = push(runtime, tmp_path, b"a")
    runtime.blobs.delete(RASTERS, blob_of(pushed.digest))
    with pytest.raises(RequestRefusedError, match="storage has lost the file"):
        raster_operations.described(runtime, "ann", request())


def delete(runtime: Runtime, name: str = "hills", owner: str = "ann") -> None:
    row = upload_operations.own(RASTER_UPLOADS.table(runtime), owner, upload_id(owner, name))
    upload_operations.delete(RASTER_UPLOADS.table(runtime), row)


def test_files_that_no_version_names_go(runtime: Runtime, tmp_path: Path) -> None:
    kept, gone = push(runtime, tmp_path, b"a", name="coast"), push(runtime, tmp_path, b"b")
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 0
    push(runtime, tmp_path, b"a")
    delete(runtime)
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 1
    assert (there(runtime, kept), there(runtime, gone)) == (True, False)
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 0


def test_files_stay_while_a_request_may_name_rasters(runtime: Runtime, tmp_path: Path) -> None:
    pushed = push(runtime, tmp_path, b"a")
    request_operations.submit(runtime, "bob", request("MOD13A2"))
    delete(runtime)
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 0
    assert there(runtime, pushed)


def test_files_stay_while_a_planned_request_uses_rasters(runtime: Runtime, tmp_path: Path) -> None:
    pushed = push(runtime, tmp_path, b"a")
    planned = request_operations.submit(runtime, "ann", request())
    row = replace(request_operations.load(runtime, planned), state=RequestState.RUNNING)

    def run(found: Row | None) -> tuple[Operation, ...]:
        return (write(found, request_row(planned), REQUEST.dump(row)),)

    RequestTable(runtime.store).update(runtime.clock, request_row(planned), run)
    delete(runtime)
    assert upload_operations.collect(runtime, RASTER_UPLOADS) == 0
    assert there(runtime, pushed)
