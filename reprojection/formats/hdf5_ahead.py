"""What else will be read of an HDF5 file that is held in part, told by what was read of it.

The library follows one pointer after another, and stops at the first byte that is not here. Over a
link that takes a call for each. So pointers of whole lists are followed at once: of the nodes of
B-trees (groups, and chunks of a data set) and of the tables of a group's members; and every object
is opened, however many fail, before the first failure is told. All of it is a guess about what to
fetch: a wrong one costs bytes, never a value.

Source: HDF5 File Format Specification version 3, III.A.1 "Version 1 B-trees", III.B "Group Symbol
Table Nodes".
"""

import struct
from collections.abc import Iterator
from contextlib import suppress

import h5py

Range = tuple[int, int]

_TREE = struct.Struct("<4sBBH16x")  # signature, kind of node, level, entries; two neighbours
_OF_GROUP, _OF_CHUNKS = 0, 1
_MEMBERS = struct.Struct("<4sBxH")  # signature, version, entries
_MEMBER = struct.Struct("<QQI4xQQ")  # name, header, what is told beforehand: a tree and a heap
_TELLS_TREE = 1
_LEAST_KEY = 8  # bytes
_HEAD = 1024  # bytes of an object's header that are asked for
_TABLE = 8 + 8 * 40  # bytes of a table of members, as files have them
_MOST = 4096  # members or nodes that are followed at once, and objects that are opened


def pointed_at(data: memoryview) -> list[Range]:
    """List where the library goes on that has read these bytes; nothing of what is not known.

    Numbers of addresses and lengths have eight bytes, as in all files but tiny ones.
    """
    sort = bytes(data[:4])
    if sort == b"TREE" and len(data) >= _TREE.size:
        return _below(data)
    if sort == b"SNOD" and len(data) >= _MEMBERS.size:
        return list(_members(data))
    return []


def _below(node: memoryview) -> list[Range]:
    """List the nodes below a node of a tree; chunks are no structure."""
    _, kind, level, count = _TREE.unpack_from(node)
    if kind == _OF_GROUP:
        key, size = 8, len(node) if level else _TABLE
    elif kind == _OF_CHUNKS and level:
        key, size = _chunk_key(len(node)), len(node)
    else:
        return []
    if key < _LEAST_KEY:
        return []
    places = range(_TREE.size + key, len(node) - 7, key + 8)
    found = (struct.unpack_from("<Q", node, at)[0] for at in places[: min(count, _MOST)])
    return [(at, at + size) for at in found]


def _chunk_key(length: int) -> int:
    """Return the bytes of a key of a tree of chunks, from those of its nodes.

    A key has the chunk's size, a mask, and its place along each axis and in bytes. A node has room
    for 64 children where the file says nothing else.
    """
    return (length - _TREE.size - 64 * 8) // 65


def _members(table: memoryview) -> Iterator[Range]:
    count = _MEMBERS.unpack_from(table)[2]
    places = range(_MEMBERS.size, len(table) - _MEMBER.size + 1, _MEMBER.size)
    for at in places[: min(count, _MOST)]:
        _, header, told, tree, heap = _MEMBER.unpack_from(table, at)
        yield header, header + _HEAD
        if told == _TELLS_TREE:
            yield tree, tree + _HEAD
            yield heap, heap + _HEAD


def open_every(group: h5py.Group, seen: set[int] | None = None) -> None:
    """Open every object below a group with its attributes, and go on where that fails.

    A few thousand are the most, as a hostile file has millions. No link is followed that could lead
    to another file.
    """
    seen = set() if seen is None else seen
    names: list[str] = []
    with suppress(Exception):
        names += group
    for name in names:
        with suppress(Exception):
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group[name]
            place = h5py.h5o.get_info(item.id).addr
            if place in seen or len(seen) >= _MOST:
                continue
            seen.add(place)
            if isinstance(item, h5py.Group):
                open_every(item, seen)
            _attributes(item)


def _attributes(item: h5py.HLObject) -> None:
    for name in list(item.attrs):
        with suppress(Exception):
            item.attrs[name]
    if isinstance(item, h5py.Dataset):
        for dim in item.dims:
            with suppress(Exception):
                dim[0].name  # noqa: B018 - who reads the file asks for it
