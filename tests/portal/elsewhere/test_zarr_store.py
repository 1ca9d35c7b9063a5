"""A cube in Zarr is read key by key, as xarray does it."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

from portal.elsewhere import zarr_store
from portal.elsewhere.zarr_store import read_members, split_address
from portal.results.result_files import ResultFile, ResultIndex, ResultReader
from portal.serving.problems import NotFoundError
from tasks.bag.model import ArtifactFile
from tasks.bag.runtime import Runtime
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import ARTIFACTS
from tests.portal.scripted import LivePortal, put_result
from tests.portal.submissions import submitted

FOLDER = "MCD15A2.005/Lai_1km"


def zipped(folder: Path) -> bytes:
    """A ZIP as `worker/phases/cube.py` makes it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.writestr(path.relative_to(folder).as_posix(), path.read_bytes())
    return out.getvalue()


@pytest.fixture
def cube(tmp_path: Path) -> xarray.Dataset:
    values = np.arange(4 * 30 * 20, dtype="int16").reshape(4, 30, 20)
    made = xarray.Dataset({"lai": (("time", "y", "x"), values)}, {"time": [0, 8, 16, 24]})
    made.lai.encoding["chunks"] = (1, 16, 16)
    made.to_zarr(tmp_path / "cube.zarr", zarr_format=2, consolidated=True)
    return made


def test_xarray_opens_it_by_its_address(
    portal: LivePortal, runtime: Runtime, cube: xarray.Dataset, tmp_path: Path
) -> None:
    request = submitted(runtime)
    put_result(runtime, request, FOLDER, "cube.zarr.zip", zipped(tmp_path / "cube.zarr"))
    with portal.client() as client:
        headers = {"Authorization": client.headers["Authorization"]}
    store = zarr.storage.FsspecStore.from_url(
        f"{portal.url}/api/requests/{request}/zarr/{FOLDER}/cube.zarr",
        storage_options={"client_kwargs": {"headers": headers}},
        read_only=True,
    )
    with xarray.open_zarr(store, consolidated=True) as found:
        xarray.testing.assert_equal(found.load(), cube)


def test_a_key_is_sent_as_it_is_and_once(
    portal: LivePortal, runtime: Runtime, cube: xarray.Dataset, tmp_path: Path
) -> None:
    assert cube.sizes["time"] == 4
    request = submitted(runtime)
    put_result(runtime, request, FOLDER, "cube.zarr.zip", zipped(tmp_path / "cube.zarr"))
    base = f"/api/requests/{request}/zarr/{FOLDER}/cube.zarr"
    with portal.client() as client:
        chunk = client.get(f"{base}/lai/2.1.0")
        assert chunk.content == (tmp_path / "cube.zarr" / "lai" / "2.1.0").read_bytes()
        metadata = client.get(f"{base}/.zmetadata")
        assert len(metadata.content) > 500
        assert "Content-Encoding" not in metadata.headers
        again = client.get(f"{base}/lai/2.1.0", headers={"If-None-Match": chunk.headers["ETag"]})
        assert again.status_code == 304
        head = client.head(f"{base}/lai/2.1.0")
        assert head.headers["Content-Length"] == str(len(chunk.content))
        assert client.get(f"{base}/lai/9.9.9").status_code == 404
        assert client.get(f"{base}/%2e%2e/%2e%2e/secret").status_code == 404
        assert client.get(f"/api/requests/{request}/zarr/{FOLDER}/none.zarr/a").status_code == 404
    with portal.client("eve@example.org") as stranger:
        assert stranger.get(f"{base}/.zmetadata").status_code == 404


def test_a_damaged_key_is_not_sent(
    portal: LivePortal, runtime: Runtime, cube: xarray.Dataset, tmp_path: Path
) -> None:
    assert cube.sizes["time"] == 4
    request = submitted(runtime)
    data = zipped(tmp_path / "cube.zarr")
    key = put_result(runtime, request, FOLDER, "cube.zarr.zip", data)
    inside = (tmp_path / "cube.zarr" / "lai" / "0.0.0").read_bytes()
    at = data.index(inside) + len(inside) // 2
    runtime.blobs.delete(ARTIFACTS, f"{key}/claim/cube.zarr.zip")
    damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    runtime.blobs.put_bytes(ARTIFACTS, f"{key}/claim/cube.zarr.zip", damaged)
    base = f"/api/requests/{request}/zarr/{FOLDER}/cube.zarr"
    with portal.client() as client:
        assert client.get(f"{base}/lai/1.0.0").status_code == 200
        assert client.get(f"{base}/lai/0.0.0").status_code >= 500


def test_files_that_are_no_store_are_told_apart(portal: LivePortal, runtime: Runtime) -> None:
    request = submitted(runtime)
    put_result(runtime, request, FOLDER, "odd.zarr.zip", b"no ZIP at all")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(10_000_000))
    put_result(runtime, request, FOLDER, "bomb.zarr.zip", out.getvalue())
    with portal.client() as client:
        for name in ("odd.zarr/.zmetadata", "bomb.zarr/bomb"):
            answer = client.get(f"/api/requests/{request}/zarr/{FOLDER}/{name}")
            assert answer.status_code == 404, answer.text


def test_a_directory_beyond_the_bound_is_not_read(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.elsewhere.zarr_store._MOST_READ", 200_000)
    request = submitted(runtime)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(5000):
            archive.writestr(f"{number:040d}", b"")
    put_result(runtime, request, FOLDER, "wide.zarr.zip", out.getvalue())
    with portal.client() as client:
        answer = client.get(f"/api/requests/{request}/zarr/{FOLDER}/wide.zarr/{0:040d}")
    assert answer.status_code == 404
    assert "not a store" in answer.json()["detail"]


def test_an_address_without_a_store_is_none() -> None:
    assert split_address("a/b.zarr/.zattrs") == ("a/b.zarr.zip", ".zattrs")
    for wrong in ("a/b.zarr", "a/b.zarr/", "a"):
        with pytest.raises(NotFoundError):
            split_address(wrong)


def test_a_store_has_so_many_keys_and_a_key_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a", bytes(100_000))
        archive.writestr("b", bytes(100_001))
    reader, result = one_result(memory_runtime(), out.getvalue())
    monkeypatch.setattr(zarr_store, "_MOST_READ", 100_000)
    monkeypatch.setattr(zarr_store, "_MOST_KEYS", 2)
    assert [*read_members(reader, result)] == ["a"]  # the larger is no key: it is not sent whole
    monkeypatch.setattr(zarr_store, "_MOST_KEYS", 1)
    with pytest.raises(NotFoundError, match="is not a store in a ZIP"):
        read_members(reader, result)


def one_result(runtime: Runtime, data: bytes) -> tuple[ResultReader, ResultFile]:
    stored = runtime.blobs.put_bytes(ARTIFACTS, "a", data)
    file = ArtifactFile(name="a", blob=f"{ARTIFACTS}/a", size=stored.size, sha256=stored.sha256)
    return (
        ResultReader(runtime=runtime, index=ResultIndex(), request="r"),
        ResultFile(path="a.zarr.zip", file=file, key="0" * 64),
    )
