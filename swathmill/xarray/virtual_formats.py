"""References to chunks as other formats have them: Kerchunk's Parquet files, Icechunk."""

import base64
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from reprojection.errors import ChoiceRefusedError

RECORD = 10_000
"""References in one file of Parquet."""
_ABOUT = (".zgroup", ".zarray", ".zattrs")
_LISTED = ".zmetadata"


@dataclass(frozen=True)
class _Array:
    """An array of Zarr, version 2: its metadata, and its chunks by place, some as bytes."""

    meta: Mapping[str, Any]
    attributes: dict[str, Any]
    chunks: dict[tuple[int, ...], tuple[str, int, int] | bytes] = field(default_factory=dict)

    @property
    def across(self) -> tuple[int, ...]:
        """Numbers of chunks along the axes."""
        sizes = zip(self.meta["shape"], self.meta["chunks"], strict=True)
        return tuple(-(-size // chunk) for size, chunk in sizes)


def write_parquet(refs: Mapping[str, object], folder: Path) -> None:
    """Write references as Kerchunk's folder of Parquet files, in place of one that is there.

    Raises:
        ChoiceRefusedError: something else is there.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if folder.exists():
        if not (folder / _LISTED).is_file():
            raise ChoiceRefusedError(f"{folder} is there, and no folder of references")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    about = {key: json.loads(str(text)) for key, text in refs.items() if _name(key) in _ABOUT}
    listed = json.dumps({"metadata": about, "record_size": RECORD})
    (folder / _LISTED).write_text(listed, "utf-8")
    for key, array in _arrays(refs):
        rows: list[tuple[str | None, int, int, bytes | None]]
        rows = [(None, 0, 0, None)] * prod(array.across)
        for place, chunk in array.chunks.items():
            at = int(np.ravel_multi_index(place, array.across)) if array.across else 0
            rows[at] = (None, 0, 0, chunk) if isinstance(chunk, bytes) else (*chunk, None)
        (folder / key).mkdir(parents=True)
        for first in range(0, len(rows), RECORD):
            path, offset, size, raw = zip(*rows[first : first + RECORD], strict=True)
            columns = {
                "path": pa.array(path, pa.string()).dictionary_encode(),
                "offset": pa.array(offset, pa.int64()),
                "size": pa.array(size, pa.int64()),
                "raw": pa.array(raw, pa.binary()),
            }
            file = folder / key / f"refs.{first // RECORD}.parq"
            pq.write_table(pa.table(columns), file, compression="zstd")


def write_icechunk(refs: Mapping[str, object], store: Any) -> None:
    """Write references into the store of an Icechunk session, as groups of Zarr, version 3."""
    import zarr
    from icechunk import VirtualChunkSpec
    from zarr.codecs import BytesCodec, numcodecs

    codecs = {"zlib": numcodecs.Zlib, "shuffle": numcodecs.Shuffle}
    root = zarr.open_group(store, mode="a", zarr_format=3)
    for key, text in refs.items():
        if _name(key) == ".zattrs" and f"{key.removesuffix('.zattrs')}.zgroup" in refs:
            group = root.require_group(key.removesuffix("/.zattrs"))
            group.attrs.update(json.loads(str(text)))
    for key, array in _arrays(refs):
        meta = array.meta
        dtype = np.dtype(meta["dtype"])
        steps = [*(meta["filters"] or []), *([meta["compressor"]] if meta["compressor"] else [])]
        made = root.create_array(
            key,
            shape=meta["shape"],
            chunks=meta["chunks"],
            dtype=dtype.newbyteorder("="),
            serializer=BytesCodec(endian="big" if dtype.byteorder == ">" else "little"),
            compressors=[codecs[step["id"]](**_without_id(step)) for step in steps] or None,
            filters=None,
            fill_value=meta["fill_value"] or 0,
            dimension_names=array.attributes.pop("_ARRAY_DIMENSIONS"),
            attributes=_with_fill(array),
        )
        virtual = []
        for place, chunk in array.chunks.items():
            if isinstance(chunk, bytes):  # a coordinate
                made[...] = np.frombuffer(chunk, dtype).reshape(meta["shape"])
            else:
                virtual.append(VirtualChunkSpec([*place], *chunk))
        if virtual:
            store.set_virtual_refs(key, virtual)


def _with_fill(array: _Array) -> dict[str, Any]:
    """Version 3 has a fill for what is absent; xarray masks by the attribute."""
    fill = array.meta["fill_value"]
    return array.attributes if fill is None else {**array.attributes, "_FillValue": fill}


def _without_id(step: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key != "id"}


def _arrays(refs: Mapping[str, object]) -> Iterator[tuple[str, _Array]]:
    """Yield each array with its chunks."""
    found: dict[str, _Array] = {}
    for key, text in refs.items():
        if _name(key) == ".zarray":
            above = key.removesuffix("/.zarray")
            attributes = json.loads(str(refs[f"{above}/.zattrs"]))
            found[above] = _Array(json.loads(str(text)), attributes)
    for key, value in refs.items():
        above, _, name = key.rpartition("/")
        if above not in found or name.startswith("."):
            continue
        array = found[above]
        place = tuple(map(int, name.split("."))) if array.across else ()
        if isinstance(value, list):
            where, offset, size = value
            array.chunks[place] = (where, offset, size)
        else:
            array.chunks[place] = base64.b64decode(str(value).removeprefix("base64:"))
    yield from found.items()


def _name(key: str) -> str:
    return key.rpartition("/")[2]
