"""Granules in a container of Azure and a bucket of S3 are read in parts, with the same values.

What one machine learnt of their structure serves others, over the same storage.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt
import pytest
from azure.storage.blob import BlobServiceClient, ContainerClient

from archives.fetch.files import RemoteFiles
from archives.kinds.folder import FolderArchive
from archives.sources import Sources
from reprojection.read.granule import open_granule
from reprojection.sample.hdfeos_write import write_granule
from tasks.holdings import parts
from tasks.holdings.parts import PartsFolder, Traffic
from tasks.holdings.stored_structures import STRETCH, drop_old
from tasks.holdings.structures import open_structures
from tasks.storage.azure.blobs import AzureBlobs
from tasks.storage.azure.transfers import transfer_sizes
from tasks.storage.blobs import GRANULES, Blobs
from tests.reprojection.reading_samples import noisy_tile

pytestmark = pytest.mark.integration
DAY = date(2012, 3, 5)


@pytest.fixture(params=["azure", "s3"])
def put(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[Path], RemoteFiles]]:
    """Puts a granule into a container, or a bucket, of the test's own, in place of what is there;
    returns the archive."""
    name = f"an-archive-{uuid.uuid4().hex[:8]}"
    if request.param == "azure":
        azurite = request.getfixturevalue("azurite")
        with ContainerClient.from_connection_string(azurite, name) as container:
            container.create_container()

            def into_container(path: Path) -> RemoteFiles:
                container.upload_blob(f"modis/{path.name}", path.read_bytes(), overwrite=True)
                return RemoteFiles(f"abfs://{name}/modis", {"connection_string": azurite})

            yield into_container
        return
    options: dict[str, Any] = {
        "key": "a",
        "secret": "b",
        "endpoint_url": f"http://127.0.0.1:{request.getfixturevalue('s3_port')}",
    }
    system = fsspec.filesystem("s3", **options)
    system.mkdir(name)

    def into_bucket(path: Path) -> RemoteFiles:
        system.pipe(f"{name}/modis/{path.name}", path.read_bytes())
        return RemoteFiles(f"s3://{name}/modis", options)

    yield into_bucket


@pytest.fixture
def stored(azurite: str) -> Iterator[AzureBlobs]:
    """Swathmill's storage in a real Azurite, without structures."""
    with BlobServiceClient.from_connection_string(azurite, **transfer_sizes()) as service:
        blobs = AzureBlobs(service)
        blobs.create([GRANULES])
        for name in structures_in(blobs):
            blobs.delete(GRANULES, name)
        yield blobs


def structures_in(blobs: Blobs) -> list[str]:
    return [*blobs.names(GRANULES, "structures/")]


def test_one_layer_takes_little_more_than_its_bytes(
    put: Callable[[Path], RemoteFiles], tmp_path: Path
) -> None:
    path = noise(tmp_path)
    taken = layer_of(Sources([FolderArchive(put(path), tmp_path / "index.sqlite")]), path, tmp_path)
    assert taken.parts < 20
    assert taken.bytes < 0.75 * path.stat().st_size


def test_another_machine_takes_the_structure_from_storage_and_values_from_the_archive(
    put: Callable[[Path], RemoteFiles], stored: AzureBlobs, tmp_path: Path
) -> None:
    path = noise(tmp_path)
    archive = FolderArchive(put(path), tmp_path / "index.sqlite")
    sources = Sources([archive])
    learning = layer_of(sources, path, tmp_path / "first", stored)
    (name,) = structures_in(stored)
    good = stored.get_bytes(GRANULES, name)
    values = layer_of(sources, path, tmp_path / "second", stored)
    assert values.parts <= 2 < learning.parts
    assert values.bytes < learning.bytes

    # What is damaged is learnt again, and stored in its place.
    stored.delete(GRANULES, name)
    stored.put_bytes(GRANULES, name, good[:-1] + bytes([good[-1] ^ 1]))
    assert layer_of(sources, path, tmp_path / "third", stored).parts == learning.parts
    assert stored.get_bytes(GRANULES, name) == good

    # So is that of another edition of the granule, by whoever meets it.
    other = noise(tmp_path / "other", side=880)
    put(other)
    archive.refresh()
    assert layer_of(sources, other, tmp_path / "fourth", stored).parts > values.parts
    assert layer_of(sources, other, tmp_path / "fifth", stored).parts <= 2

    # What no reader looks for any more goes.
    now, number = time.time(), len(structures_in(stored))
    assert [*drop_old(stored, now + STRETCH)] == []
    assert [*drop_old(stored, now + 2 * STRETCH)] == [True] * number
    assert structures_in(stored) == []


def noise(folder: Path, side: int = 900) -> Path:
    tile = noisy_tile(side)
    path = folder / tile.local_name
    path.parent.mkdir(exist_ok=True)
    write_granule(path, tile)
    return path


def layer_of(sources: Sources, path: Path, place: Path, blobs: Blobs | None = None) -> Traffic:
    """Read one of two layers in parts, on a machine whose data folder is the place: the values of
    the file; what that took."""
    (record,) = sources.search("MCD15A2", "5", DAY, DAY)
    place.mkdir(exist_ok=True)
    held = PartsFolder(sources, place / "parts", 10**9)
    if blobs is not None:
        held.structures = open_structures(place, blobs)

    def layer(paths: Sequence[Path]) -> npt.NDArray[np.generic]:
        with open_granule(paths[0]) as granule:
            return granule.read("Lai_1km")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parts, "WHOLE_BYTES", 1000)
        found = held.read([record], layer)
    assert np.array_equal(found, layer([path]))
    assert held.traffic.whole == 0
    return held.traffic
