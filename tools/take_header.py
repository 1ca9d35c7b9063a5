"""Take the header of a granule: its structure and attributes, no pixels.

Headers in `tests/headers` are what the reader is tested against (`tests/reprojection/headers.py`
writes granules of them). A header is taken from a HDF4, HDF5 or netCDF-4 file, or from a text that
a program has made of one: the DMR (DAP 4 metadata, XML) or the .das and .dds (DAP 2) of OPeNDAP's
server, or what `ncdump -h` prints (CDL):

    python -m tools.take_header FILE [DDS] --source TEXT > tests/headers/PRODUCT.json

Kept are types, names, groups, dimensions, and attributes as they are. Left out, and counted, are
texts of more than 400 characters besides StructMetadata and CoreMetadata, and the history of
production (ArchiveMetadata, names of input files). What the server has added, so that clients of CF
understand a file, is left out. It may leave out StructMetadata: that of a tile or globe is made
then, from the names of its grids and the tile in the file's name; say so in the source.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
from pyhdf.SD import SD, SDC

from modis.collection import Collection
from modis.formats import HDF4_MAGIC, HDF5_MAGIC
from modis.granule_name import parse_granule_name
from modis.tile import TILE_SIZE
from reprojection.formats.hdf4 import DTYPES
from reprojection.formats.structmetadata import parse_structure
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    GridToWrite,
    struct_metadata,
)

_LONGEST = 400
_NEEDED = re.compile(r"(Struct|Core|core)[mM]etadata[._]\d+$")
_HISTORY = re.compile(
    r"^(Archive|archive|Old|creator|publisher)|[iI]nput|history|uuid|[eE][mM]ail|Environment"
    r"|dmr_sds_ref|fullnamepath|_ChunkSizes"
)
_HDF4: Mapping[int, str] = {**DTYPES, SDC.CHAR8: "text"}
_DAP: Mapping[str, str] = {
    "String": "text",
    "Byte": "u1",
    "UInt8": "u1",
    "Char": "u1",
    "Int8": "i1",
    "Int16": "i2",
    "UInt16": "u2",
    "Int32": "i4",
    "UInt32": "u4",
    "Int64": "i8",
    "UInt64": "u8",
    "Float32": "f4",
    "Float64": "f8",
}
_SPACE = "{http://xml.opendap.org/ns/DAP/4.0#}"
_CDL: Mapping[str, str] = {
    "byte": "i1",
    "ubyte": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "int64": "i8",
    "uint64": "u8",
    "float": "f4",
    "double": "f8",
}
_SUFFIXES = {"b": "i1", "ub": "u1", "s": "i2", "us": "u2", "u": "u4", "ll": "i8", "ull": "u8"}
_ADDED = ("eos5_cf_projection", "XDim", "YDim", "Latitude", "Longitude")
"""Data sets by which the server places a grid, if the first of them is there."""

Value = str | list[int | float]
Attribute = tuple[str, str, Value]  # name, type, value


def header_of(path: Path, source: str, dds: Path | None = None) -> dict[str, Any]:
    """Take the header of a file, or of a text that is made of one; raise ValueError for others."""
    head = path.read_bytes()[:512]
    if head.startswith(HDF4_MAGIC):
        file, form, attributes, fields = path.name, "hdf4", *_of_hdf4(path)
    elif head.startswith(HDF5_MAGIC):
        file, form, attributes, fields = path.name, "hdf5", *_of_hdf5(path)
    elif b"DAP/4.0" in head:
        file, form, attributes, fields = _of_dmr(path)
    elif head.startswith(b"Attributes {") and dds is not None:
        file, form, attributes, fields = _of_das(path.read_text("utf-8"), dds.read_text("utf-8"))
    elif head.startswith(b"netcdf "):
        file, form, attributes, fields = _of_cdl(path.read_text("utf-8"))
    else:
        raise ValueError(f"{path} is no HDF, DMR, CDL, nor .das with a .dds: {head[:16]!r}")
    kept = [one for one in attributes if _is_kept(one)]
    left = len(attributes) - len(kept)
    for field in fields:
        many = len(field["attributes"])
        field["attributes"] = [one for one in field["attributes"] if _is_kept(one)]
        left += many - len(field["attributes"])
    name = parse_granule_name(file)
    said = re.match(r"(\w+-\w+-L2P)-v([\d.]+)", next((str(a[2]) for a in kept if a[0] == "id"), ""))
    return {
        "product": name.product if name else said[1] if said else "",
        "collection": str(name.collection if name else Collection(said[2]) if said else ""),
        "file": file,
        "source": source,
        "format": form,
        "attributes_left_out": left,
        "attributes": kept,
        "datasets": fields,
    }


def _is_kept(one: Attribute) -> bool:
    name, _, value = one
    if _NEEDED.search(name):
        return True
    return not _HISTORY.search(name) and not (isinstance(value, str) and len(value) > _LONGEST)


def _of_hdf4(path: Path) -> tuple[list[Attribute], list[dict[str, Any]]]:
    file = SD(str(path), SDC.READ)
    fields = []
    for index in range(file.info()[0]):
        sds = file.select(index)
        name, rank, sizes, kind, _ = sds.info()
        shape = [int(size) for size in (sizes if rank > 1 else [sizes])]
        if not sds.iscoordvar():
            dims = [[str(sds.dim(at).info()[0]), size] for at, size in enumerate(shape)]
            own = _hdf4_attributes(sds)
            kind = SDC.UINT8 if kind == SDC.CHAR8 else kind
            fields.append({"name": name, "type": _HDF4[kind], "dims": dims, "attributes": own})
        sds.endaccess()
    attributes = _hdf4_attributes(file)
    file.end()
    return attributes, fields


def _hdf4_attributes(holder: Any) -> list[Attribute]:
    found: list[Attribute] = []
    for name, (value, _, kind, _) in holder.attributes(full=True).items():
        if _HDF4[kind] == "text":
            found.append((name, "text", str(value).rstrip("\0")))
        else:
            found.append((name, _HDF4[kind], value if isinstance(value, list) else [value]))
    return found


def _of_hdf5(path: Path) -> tuple[list[Attribute], list[dict[str, Any]]]:
    with h5py.File(path) as file:
        fields: list[dict[str, Any]] = []

        def visit(name: str, item: object) -> None:
            if not isinstance(item, h5py.Dataset):
                return
            if item.dtype.kind in "SO" and item.shape == ():
                text = item[()]
                said = text.decode("latin-1") if isinstance(text, bytes) else str(text)
                if _NEEDED.search(name):
                    fields.append(
                        {"name": f"/{name}", "type": "text", "text": said, "attributes": []}
                    )
            elif item.dtype.kind in "iuf":
                dims = [
                    [str(dim.label or (dim[0].name if len(dim) else "")).lstrip("/"), int(size)]
                    for dim, size in zip(item.dims, item.shape, strict=True)
                ]
                kind, own = item.dtype.str[1:], _hdf5_attributes(item.attrs)
                field = {"name": f"/{name}", "type": kind, "dims": dims, "attributes": own}
                fields.append(field)

        file.visititems(visit)
        return _hdf5_attributes(file.attrs), fields


_OF_LIBRARY = (
    "CLASS",
    "NAME",
    "REFERENCE_LIST",
    "DIMENSION_LIST",
    "_Netcdf4Dimid",
    "_NCProperties",
)


def _hdf5_attributes(attrs: h5py.AttributeManager) -> list[Attribute]:
    found: list[Attribute] = []
    for name, value in attrs.items():
        if name in _OF_LIBRARY or name == "_Netcdf4Coordinates":
            continue
        if isinstance(value, bytes | str):
            said = value.decode("latin-1") if isinstance(value, bytes) else value
            found.append((name, "text", said.rstrip("\0")))
            continue
        array = np.asarray(value)
        if array.dtype.kind in "iuf":
            found.append((name, array.dtype.str[1:], array.ravel().tolist()))
        elif array.dtype.kind in "SUO":
            items = [one.decode() if isinstance(one, bytes) else str(one) for one in array.ravel()]
            found.append((name, "text", "".join(items).rstrip("\0")))
    return found


def _of_dmr(path: Path) -> tuple[str, str, list[Attribute], list[dict[str, Any]]]:
    root = ElementTree.fromstring(path.read_bytes())
    file = re.sub(r"\.nc\.h5$", ".nc", str(root.get("name")))
    form = "hdf4" if file.endswith(".hdf") else "hdf5"
    sizes = dict(_dap_sizes(root, ""))
    attributes = _dap_attributes(root)
    fields = [*_dap_fields(root, "/", sizes)]
    if form == "hdf5":
        return file, form, attributes, _without_added(file, fields)
    # A DMR writes names of HDF4 with underscores; StructMetadata has them as they are.
    attributes = [_with_point(one) for one in attributes]
    struct = "".join(str(one[2]) for one in attributes if one[0].startswith("StructMetadata."))
    return file, form, attributes, _named_as_in_hdf4(fields, struct)


def _dap_sizes(group: ElementTree.Element, path: str) -> Iterator[tuple[str, int]]:
    for one in group.findall(f"{_SPACE}Dimension"):
        yield f"{path}/{one.get('name')}", int(str(one.get("size")))
    for one in group.findall(f"{_SPACE}Group"):
        yield from _dap_sizes(one, f"{path}/{one.get('name')}")


def _dap_fields(
    group: ElementTree.Element, path: str, sizes: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    for one in group:
        kind = one.tag.removeprefix(_SPACE)
        name = f"{path}{one.get('name')}"
        if kind == "Group":
            yield from _dap_fields(one, f"{name}/", sizes)
        elif kind in _DAP and kind != "String":
            dims = []
            for dim in one.iter(f"{_SPACE}Dim"):
                said = dim.get("name")
                size = int(str(dim.get("size"))) if said is None else sizes[said]
                dims.append([str(said or "").lstrip("/"), size])
            own = f"{_SPACE}Attribute[@name='fullnamepath']/{_SPACE}Value"
            yield {
                "name": one.findtext(own) or name,
                "type": _DAP[kind],
                "dims": dims,
                "attributes": _dap_attributes(one),
            }


def _dap_attributes(holder: ElementTree.Element) -> list[Attribute]:
    found: list[Attribute] = []
    for one in holder.findall(f"{_SPACE}Attribute"):
        kind = _DAP.get(str(one.get("type")))
        values = [value.text or "" for value in one.findall(f"{_SPACE}Value")]
        if kind == "text":
            found.append((str(one.get("name")), kind, "\n".join(values)))
        elif kind is not None:
            numbers = np.array(values).astype(float if kind[0] == "f" else "i8").astype(kind)
            found.append((str(one.get("name")), kind, numbers.tolist()))
    return found


def _without_added(file: str, fields: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out by what the server places the grids of HDF-EOS5, and make their StructMetadata."""
    kept: list[dict[str, Any]] = []
    grids: dict[str, list[dict[str, Any]]] = {}
    placed = {one["name"].rpartition("/")[0] for one in fields if one["name"].endswith(_ADDED[0])}
    for one in fields:
        folder, _, name = one["name"].rpartition("/")
        if folder in placed and name in _ADDED:
            continue
        own = [at for at in one["attributes"] if at[0] not in ("coordinates", "grid_mapping")]
        at = re.fullmatch(r"/HDFEOS/GRIDS/([^/]+)/Data Fields", folder)
        if at and len(one["dims"]) > 1:
            bare = [[dim.rpartition("/")[2], size] for dim, size in one["dims"]]
            grids.setdefault(at[1], []).append({**one, "name": name, "dims": bare})
        dims = [["", size] for _, size in one["dims"]] if placed else one["dims"]
        kept.append({**one, "dims": dims, "attributes": own if placed else one["attributes"]})
    if not grids:
        return kept
    text = _structure(file, grids).replace("=GCTP", "=HE5_GCTP")
    struct = "/HDFEOS INFORMATION/StructMetadata.0"
    return [{"name": struct, "type": "text", "text": text, "attributes": []}, *kept]


def _structure(file: str, grids: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Make the StructMetadata of grids that are all of one tile, or of the globe."""
    name = parse_granule_name(file)
    if name is None:
        raise ValueError(f"{file} is no name of a granule: its tile is not known")
    made = [
        GridToWrite(
            name=grid,
            upper_left=(name.tile.left, name.tile.top) if name.tile else (-180.0, 90.0),
            lower_right=(name.tile.left + TILE_SIZE, name.tile.top - TILE_SIZE)
            if name.tile
            else (180.0, -90.0),
            corners="metres" if name.tile else "packed degrees",
            fields=[
                FieldToWrite(
                    name=one["name"],
                    values=np.broadcast_to(
                        np.zeros((), one["type"]), [size for _, size in one["dims"]]
                    ),
                    dims=tuple(dim for dim, _ in one["dims"]),
                )
                for one in fields
            ],
        )
        for grid, fields in grids.items()
    ]
    granule = GranuleToWrite(
        local_name=file,
        product=name.product,
        collection=0,
        start=name.start,
        end=name.start,
        produced=name.start,
        day_night="",
        ring=(),
        structure=made[0],
        more=made[1:],
    )
    return struct_metadata(granule)


def _of_das(das: str, dds: str) -> tuple[str, str, list[Attribute], list[dict[str, Any]]]:
    """Read the DAP 2 metadata of a HDF4 file."""
    groups = _das_groups(das)
    file = re.findall(r"}\s*(\S+?);", dds)[-1]
    attributes = [_with_point(one) for one in groups.pop("HDF_GLOBAL", [])]
    fields, grids = [], dict[str, list[dict[str, Any]]]()
    for kind, name, shape in re.findall(r"^\s+(\w+) (\w+)((?:\[\w+ = \d+\])+);", dds, re.MULTILINE):
        own = {one[0]: one for one in groups.get(name, [])}
        if any(at.startswith("orig_") for at in own):
            raise ValueError(f"the server has unpacked {name}: what the file holds is not told")
        mapping = str(own.pop("grid_mapping", ("", "text", ""))[2])
        own.pop("coordinates", None)
        dims = [[dim, int(size)] for dim, size in re.findall(r"\[(\w+) = (\d+)\]", shape)]
        one = {"name": name, "type": _DAP[kind], "dims": dims, "attributes": [*own.values()]}
        fields.append(one)
        if grid := mapping.removesuffix("_eos_cf_projection"):
            grids.setdefault(grid, []).append(one)
    struct = "".join(str(one[2]) for one in attributes if one[0].startswith("StructMetadata."))
    if not struct:
        struct = _structure(file, grids)
        attributes.append(("StructMetadata.0", "text", struct))
    return file, "hdf4", attributes, _named_as_in_hdf4(fields, struct)


def _das_groups(das: str) -> dict[str, list[Attribute]]:
    """Read the attributes of each variable; those of containers in it are passed over."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[{};]|[^\s{};"]+', das)
    groups: dict[str, list[Attribute]] = {}
    depth, line, inside = 0, list[str](), ""
    for token in tokens:
        if token == "{":
            depth += 1
            inside = line[-1] if depth == 2 else inside
            line = []
        elif token == "}":
            depth -= 1
        elif token != ";":
            line.append(token)
        else:
            kind, name, *values = line
            line = []
            if depth == 2 and values and kind in _DAP:
                groups.setdefault(inside, []).append(_das_attribute(kind, name, values))
    return groups


def _das_attribute(kind: str, name: str, values: Sequence[str]) -> Attribute:
    if kind == "String":
        return name, "text", "".join(re.sub(r"\\(.)", r"\1", one.strip('",')) for one in values)
    dtype = _DAP[kind]
    numbers = np.array([float(one.strip(",")) for one in values]).astype(dtype)
    return name, dtype, numbers.tolist()


def _of_cdl(text: str) -> tuple[str, str, list[Attribute], list[dict[str, Any]]]:
    """Read what `ncdump -h` prints of a netCDF-4 file."""
    path, sizes = "/", dict[str, int]()
    attributes: list[Attribute] = []
    fields: dict[str, dict[str, Any]] = {}
    plain = re.sub(r'",\s*\n\s*"', "", text).replace("\\:", "\0")
    for line in plain.splitlines():
        said = line.strip().removesuffix(";").strip()
        if group := re.fullmatch(r"group: (.+) \{", said):
            path += f"{group[1]}/"
        elif said.startswith("}"):
            path = path.rstrip("/").rpartition("/")[0] + "/"
        elif size := re.fullmatch(r"(\w+) = (?:UNLIMITED.*\()?(\d+).*", said):
            sizes[size[1]] = int(size[2])
        elif attribute := re.fullmatch(r"(?:string )?(\w*):(\S+) = (.*)", said):
            one = _cdl_attribute(attribute[2], attribute[3])
            owner = fields[path + attribute[1]]["attributes"] if attribute[1] else attributes
            if attribute[1] or path == "/":
                owner.append(one)
        elif (field := re.fullmatch(r"(\w+) (\w+)(?:\((.*)\))?", said)) and field[1] in _CDL:
            dims = [[dim, sizes[dim]] for dim in (field[3] or "").split(", ") if dim]
            name, kind = path + field[2], _CDL[field[1]]
            fields[name] = {"name": name, "type": kind, "dims": dims, "attributes": []}
    said_name = next((str(one[2]) for one in attributes if one[0] == "LocalGranuleID"), "")
    file = said_name or text.split()[1] + ".nc"
    return file, "hdf5", attributes, [*fields.values()]


def _cdl_attribute(name: str, value: str) -> Attribute:
    if value.startswith('"'):
        return name, "text", json.loads(value.replace("\\'", "'").replace("\0", ":"))
    parts = [
        re.fullmatch(r"(.*?\d\.?|-?(?:NaN|Infinity))([a-zA-Z]*)", one) for one in value.split(", ")
    ]
    numbers = [(one[1], one[2].lower()) for one in parts if one is not None]
    kinds = {
        "f4"
        if suffix == "f"
        else _SUFFIXES.get(suffix, "f8" if re.search(r"[.eN]", number) else "i4")
        for number, suffix in numbers
    }
    kind = kinds.pop()
    return name, kind, np.array([float(number) for number, _ in numbers]).astype(kind).tolist()


def _named_as_in_hdf4(fields: Sequence[dict[str, Any]], struct: str) -> list[dict[str, Any]]:
    """Give the fields of an HDF4 file the names, and dimensions, that StructMetadata has."""
    structure = parse_structure(struct)
    parts = [(grid.name, grid.fields) for grid in structure.grids]
    parts += [(swath.name, swath.geo_fields + swath.data_fields) for swath in structure.swaths]
    known = {(part, _as_dap(field.name)): (part, field) for part, every in parts for field in every}
    found: list[dict[str, Any]] = []
    for one in fields:
        group, _, name = one["name"].lstrip("/").rpartition("/")
        there = known.get((group.split("/")[0], name))
        if there is None:
            there = next((at for (_, said), at in known.items() if said == name), None)
        if there is None or there[1].name in {one["name"] for one in found}:
            continue  # coordinates that the server computed, and what lies on no structure
        structure_name, field = there
        names = [f"{dim}:{structure_name}" for dim in field.dims]
        dims = [[name, size] for name, (_, size) in zip(names, one["dims"], strict=True)]
        found.append({**one, "name": field.name, "dims": dims})
    return found


def _with_point(one: Attribute) -> Attribute:
    """Give the metadata of HDF-EOS their name; the server writes no points in names."""
    return re.sub(r"(Metadata)_(\d+)$", r"\1.\2", one[0]), one[1], one[2]


def _as_dap(name: str) -> str:
    plain = re.sub(r"\W", "_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain


def as_text(header: Mapping[str, Any]) -> str:
    """Write a header as JSON, a line for each attribute and data set."""

    def line(value: object) -> str:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))

    plain = [
        f"{line(key)}: {line(header[key])}" for key in header if not isinstance(header[key], list)
    ]
    lists = [
        f"{line(key)}: [\n" + ",\n".join(line(one) for one in header[key]) + "\n]"
        for key in ("attributes", "datasets")
    ]
    return "{\n" + ",\n".join([*plain, *lists]) + "\n}\n"


def main() -> None:
    """Print the header of the file that is named."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("dds", type=Path, nargs="?", help="the .dds that belongs to a .das")
    parser.add_argument("--source", required=True, help="where the file or DMR was found")
    given = parser.parse_args()
    sys.stdout.write(as_text(header_of(given.file, given.source, given.dds)))


if __name__ == "__main__":
    main()
