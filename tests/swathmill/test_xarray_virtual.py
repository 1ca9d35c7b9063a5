"""Granules as Zarr by references to their own bytes: what is read without Swathmill is the same."""

import json
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import odc.geo.xr  # noqa: F401
import pytest
import rioxarray  # noqa: F401
import xarray as xr
import zarr
from fsspec.implementations.reference import LazyReferenceMapper

from reprojection.errors import ChoiceRefusedError
from reprojection.read.cf import identifier
from reprojection.read.granule import open_granule
from swathmill import virtualize
from swathmill.xarray import virtual_formats
from swathmill.xarray.groups import groups_of


def opened(references: object) -> zarr.Group:
    """Open references by zarr alone."""
    files = fsspec.filesystem("reference", fo=references, remote_protocol="file", asynchronous=True)
    return zarr.open_group(zarr.storage.FsspecStore(files), mode="r", zarr_format=2)


def holds(path: Path) -> tuple[int, int]:
    """Hold every layer to the reader's stored values; return how many were equal, and refused."""
    store = virtualize(path)
    root = opened(store.references)
    equal = 0
    with open_granule(path, check=False) as granule:
        for name, group in groups_of(granule).items():
            for layer in group.layers:
                if f"{granule.name}: {layer.name}" in store.refused:
                    continue
                found: Any = root[f"{path.stem}/{name}/{identifier(layer.name)}"]
                _, dims, _ = granule.pieces(layer)
                bands = [at for at, dim in enumerate(dims) if dim not in layer.dims]
                order = [*bands, *(dims.index(dim) for dim in layer.dims)]
                values = np.transpose(found[...], order).reshape(-1, *layer.shape)
                wanted = granule.read_all_bands(layer)
                assert values.dtype.newbyteorder("=") == wanted.dtype, layer.name
                assert np.array_equal(values, wanted, equal_nan=wanted.dtype.kind == "f")
                equal += 1
    return equal, len(store.refused)


def test_zarr_reads_what_the_granules_hold(sample_archive: Path) -> None:
    assert holds(min(sample_archive.rglob("MCD15A2*.hdf"))) == (3, 0)
    assert holds(min(sample_archive.rglob("MYD04_L2*.hdf"))) == (6, 0)


@pytest.mark.real_data
@pytest.mark.proof
def test_zarr_reads_what_every_granule_holds(granules: Path) -> None:
    """Or a reason is given; HDF4 and HDF5."""
    found = [path for kind in ("hdf", "h5", "nc") for path in granules.rglob(f"*.{kind}")]
    paths = [path for path in sorted(found) if "peer-reference" not in path.parts]
    counts = [holds(path) for path in paths]
    assert sum(equal for equal, _ in counts) > 1000


def test_xarray_opens_references(sample_archive: Path, tmp_path: Path) -> None:
    path = min(sample_archive.rglob("MCD15A2*.hdf"))
    file = tmp_path / "references.json"
    store = virtualize(path, file)
    assert json.loads(file.read_text("utf-8")) == store.references
    own = xr.open_dataset(path, engine="swathmill", mask=False).isel(time=0)
    found = xr.open_dataset(
        "reference://",
        engine="zarr",
        backend_kwargs={
            "group": f"{path.stem}/{own.attrs['group']}",
            "storage_options": {"fo": str(file), "remote_protocol": "file"},
        },
        chunks={},
    ).set_coords("spatial_ref")
    assert np.allclose(found.Lai_1km, own.Lai_1km, equal_nan=True)
    assert np.array_equal(found.FparLai_QC, own.FparLai_QC)
    assert found.FparLai_QC.dtype == np.uint8
    assert found.odc.geobox == own.odc.geobox
    assert found.rio.crs == own.rio.crs
    assert found.time.values == own.time.values


def test_granules_may_be_elsewhere(sample_archive: Path) -> None:
    paths = sorted(sample_archive.rglob("MCD15A2*.hdf"))[:2]
    refs = virtualize(paths, base="s3://bucket/leaves/").references["refs"]
    places = [value[0] for value in refs.values() if isinstance(value, list)]
    assert set(places) == {f"s3://bucket/leaves/{path.name}" for path in paths}


def arrays(root: zarr.Group) -> dict[str, zarr.Array[Any]]:
    """Return the arrays of a group and of those within."""
    found = {}
    for name, one in root.members(max_depth=None):
        if isinstance(one, zarr.Array):
            found[name] = one
    return found


def test_parquet_and_icechunk_hold_the_same(
    sample_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_formats, "RECORD", 2)
    paths = [min(sample_archive.rglob(f"{one}*.hdf")) for one in ("MCD15A2", "MYD04_L2")]
    folder = tmp_path / "references.parq"
    store = virtualize(paths, folder)
    wanted = arrays(opened(store.references))
    assert len(wanted) > 9
    store.write(folder)  # in place of what is there
    mapper = LazyReferenceMapper(str(folder), fs=fsspec.filesystem("file"), engine="pyarrow")
    parquet = opened(mapper)
    for name, one in wanted.items():
        found: Any = parquet[name]
        assert np.array_equal(found[...], one[...]), name
        assert dict(found.attrs) == dict(one.attrs)
    (tmp_path / "other.parq").mkdir()
    with pytest.raises(ChoiceRefusedError, match="no folder of references"):
        store.write(tmp_path / "other.parq")


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not")
def test_icechunk_holds_the_same(sample_archive: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    path = min(sample_archive.rglob("MCD15A2*.hdf"))
    above = f"{path.parent.as_uri()}/"
    config = icechunk.RepositoryConfig.default()
    files = icechunk.local_filesystem_store(str(path.parent))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(above, files))
    repo = icechunk.Repository.create(
        icechunk.in_memory_storage(), config, authorize_virtual_chunk_access={above: None}
    )
    store, session = virtualize(path), repo.writable_session("main")
    store.to_icechunk(session.store)
    session.commit("granules")
    found = repo.readonly_session("main").store
    wanted = arrays(opened(store.references))
    written = arrays(zarr.open_group(found, mode="r"))
    assert written.keys() == wanted.keys()
    for name, one in wanted.items():
        assert np.array_equal(written[name][...], one[...]), name
    group = f"{path.stem}/{open_group_name(path)}"
    by_json = xr.open_dataset(
        "reference://",
        engine="zarr",
        backend_kwargs={"group": group, "storage_options": {"fo": store.references}},
    )
    by_icechunk = xr.open_zarr(found, group=group, consolidated=False)
    xr.testing.assert_equal(by_icechunk.load(), by_json.load())


def open_group_name(path: Path) -> str:
    """Return the name of the only group of a granule."""
    with open_granule(path, check=False) as granule:
        (name,) = groups_of(granule)
    return name
