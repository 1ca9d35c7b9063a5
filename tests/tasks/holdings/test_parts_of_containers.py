"""Granules in a container of Azure and a bucket of S3 are read in parts, with the same values."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt
import pytest
from azure.storage.blob import ContainerClient

from archives.fetch.files import RemoteFiles
from archives.kinds.folder import FolderArchive
from archives.sources import Sources
from reprojection.read.granule import open_granule
from reprojection.sample.hdfeos_write import write_granule
from tasks.holdings import parts
from tasks.holdings.parts import PartsFolder
from tests.reprojection.reading_samples import noisy_tile

pytestmark = pytest.mark.integration
DAY = date(2012, 3, 5)


def test_a_container_of_azure_is_read_in_parts(azurite: str, tmp_path: Path) -> None:
    path = noise(tmp_path)
    with ContainerClient.from_connection_string(azurite, "an-archive-in-parts") as container:
        container.create_container()
        container.upload_blob(f"modis/{path.name}", path.read_bytes())
    place = "abfs://an-archive-in-parts/modis"
    parts_are_the_whole(RemoteFiles(place, {"connection_string": azurite}), path, tmp_path)


def test_a_bucket_of_s3_is_read_in_parts(s3_port: int, tmp_path: Path) -> None:
    path = noise(tmp_path)
    options: dict[str, Any] = {
        "key": "a", "secret": "b", "endpoint_url": f"http://127.0.0.1:{s3_port}",
    }  # fmt: skip
    system = fsspec.filesystem("s3", **options)
    system.mkdir("an-archive-in-parts")
    system.pipe(f"an-archive-in-parts/modis/{path.name}", path.read_bytes())
    parts_are_the_whole(RemoteFiles("s3://an-archive-in-parts/modis", options), path, tmp_path)


def noise(folder: Path) -> Path:
    tile = noisy_tile(900)
    path = folder / tile.local_name
    write_granule(path, tile)
    return path


def parts_are_the_whole(files: RemoteFiles, path: Path, folder: Path) -> None:
    """Read one of two layers in parts: equal values, of little more than its bytes."""
    sources = Sources([FolderArchive(files, folder / "index.sqlite")])
    (record,) = sources.search("MCD15A2", "5", DAY, DAY)
    held = PartsFolder(sources, folder / "parts", 10**9)

    def layer(paths: Sequence[Path]) -> npt.NDArray[np.generic]:
        with open_granule(paths[0]) as granule:
            return granule.read("Lai_1km")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parts, "WHOLE_BYTES", 1000)
        found = held.read([record], layer)
    assert np.array_equal(found, layer([path]))
    assert held.traffic.whole == 0
    assert held.traffic.parts < 20
    assert held.traffic.bytes < 0.75 * path.stat().st_size
