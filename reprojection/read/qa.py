"""Find which pixels of a layer are data: fill, valid range, codes and quality.

A QA rule gives the wanted values of bit fields, in the request's own words: `{"FparLai_QC":
{"MODLAND": [0]}}`. A list alone means the whole value, `{"Quality_Flag": [2, 3]}`; a field may also
be bits by number, `{"QC": {"0-1": [0]}}`. "best" and "good" name a preset that the catalogue gives
for the layer's own QA layer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reprojection.catalogue import BitField, LayerEntry
from reprojection.catalogue.layers import Layer, LayerKind, is_fill, split_index
from reprojection.errors import ChoiceRefusedError
from reprojection.read.granule import Granule, Part
from reprojection.read.kept import NO_MEMORY, Memory, nbytes
from reprojection.read.masks import join, look_up

QaRule = str | Mapping[str, Mapping[str, Sequence[int]] | Sequence[int]] | None
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.generic]

_BITS = re.compile(r"^(?P<first>\d{1,3})(?:-(?P<last>\d{1,3}))?$")


class Reason(IntEnum):
    """Why a pixel is empty, as the reason band stores it."""

    VALID = 0
    FILL = 1
    CODE = 2  # a code, or a value outside the valid range
    QA = 3
    NO_GRANULE = 4


@dataclass(frozen=True, kw_only=True)
class DecodedField:
    """One bit field of one QA value: its number, and its meaning in the catalogue."""

    name: str
    value: int
    meaning: str


def valid_mask(
    granule: Granule, layer: Layer | str, qa_rule: QaRule = None, values: Array | None = None
) -> Mask:
    """Return True where a layer's pixel is data and passes the rule, in the layer's shape.

    `values` are the layer's stored values if they have been read already. Raises ChoiceRefusedError
    for a rule that cannot be applied.
    """
    return np.equal(reasons(granule, layer, qa_rule, values), Reason.VALID)


def reasons(
    granule: Granule,
    layer: Layer | str,
    qa_rule: QaRule = None,
    values: Array | None = None,
    memory: Memory = NO_MEMORY,
) -> npt.NDArray[np.uint8]:
    """Return a `Reason` for every pixel of a layer, uint8; the first that applies counts.

    `values` are the layer's stored values if they have been read already; `memory` remembers which
    pixels the rule refuses.
    """
    found = layer if isinstance(layer, Layer) else granule.layer(layer)
    selections = resolve_rule(granule, found, qa_rule)
    stored = granule.read(found) if values is None else values
    why = _by_value(stored, lambda values: _own_reasons(values, found))
    for qa_layer, clauses in _by_layer(selections):
        refused = memory.recall(
            (
                "refused",
                qa_layer.name,
                clauses,
                found.grid,
                found.swath,
                found.shape,
                found.first_row,
            ),
            partial(_refused, granule, found, qa_layer, clauses),
            nbytes,
        )
        join(refused, why)
    return why


def reasons_in(
    granule: Granule, layer: Layer, qa_rule: QaRule, stored: Array, part: Part
) -> npt.NDArray[np.uint8]:
    """Return a `Reason` for the pixels of a part of a layer, as `reasons` does for all.

    `stored` are their values. Of a QA layer only the part that lies over them is read.
    """
    why = _by_value(stored, lambda values: _own_reasons(values, layer))
    down, across = (
        np.arange(at, at + size)
        for at, size in ((part.row, part.rows), (part.column, part.columns))
    )
    for qa_layer, clauses in _by_layer(resolve_rule(granule, layer, qa_rule)):
        rows, columns = placement(granule, layer, qa_layer)
        over = [
            down if rows is None else rows[down],
            across if columns is None else columns[across],
        ]
        first = [int(one.min()) for one in over]
        sizes = [int(one.max()) + 1 - at for one, at in zip(over, first, strict=True)]
        refused = _by_value(
            granule.read_part(qa_layer, Part(*first, *sizes)),
            partial(_refuse, qa_layer=qa_layer, clauses=clauses),
        )
        join(np.ascontiguousarray(refused[over[0] - first[0]][:, over[1] - first[1]]), why)
    return why


def reasons_at(
    granule: Granule,
    layer: Layer,
    qa_rule: QaRule,
    stored: Array,
    at: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    read: Callable[[Layer, npt.NDArray[np.int64], npt.NDArray[np.int64]], Array],
) -> npt.NDArray[np.uint8]:
    """Return a `Reason` for some pixels of a layer, as `reasons` does for all.

    `stored` are their values and `at` their rows and columns; `read` gives the stored values of a
    layer at rows and columns.
    """
    why = _own_reasons(stored, layer)
    for qa_layer, clauses in _by_layer(resolve_rule(granule, layer, qa_rule)):
        rows, columns = placement(granule, layer, qa_layer)
        down = at[0] if rows is None else rows[at[0]]
        across = at[1] if columns is None else columns[at[1]]
        join(_refuse(read(qa_layer, down, across), qa_layer, clauses), why)
    return why


def _by_layer(selections: Sequence["Selection"]) -> list[tuple[Layer, tuple["Clause", ...]]]:
    """Collect the clauses of each QA layer, so that it is read once."""
    found: dict[str, tuple[Layer, tuple[Clause, ...]]] = {}
    for one in selections:
        _, clauses = found.get(one.qa_layer.name, (one.qa_layer, ()))
        found[one.qa_layer.name] = one.qa_layer, (*clauses, one.clause)
    return list(found.values())


def _own_reasons(stored: Array, layer: Layer) -> npt.NDArray[np.uint8]:
    """Derive the reasons that follow from the values themselves."""
    why = np.where(_in_range(stored, layer), Reason.VALID, Reason.CODE).astype(np.uint8)
    if layer.codes:
        why[np.isin(stored, np.array(sorted(layer.codes), dtype=np.int64))] = Reason.CODE
    why[is_fill(stored, layer)] = Reason.FILL
    return why


def _by_value(
    stored: Array, decide: Callable[[Array], npt.NDArray[np.uint8]]
) -> npt.NDArray[np.uint8]:
    """Decide by each value; use a table of all values if there are at most 65,536."""
    if stored.dtype.kind not in "iu" or stored.dtype.itemsize > 2 or stored.size < 1 << 12:
        return decide(stored)
    unsigned = np.dtype(f"u{stored.dtype.itemsize}")
    every = np.arange(1 << (8 * unsigned.itemsize)).astype(unsigned).view(stored.dtype)
    return look_up(stored, decide(every))


class Clause(NamedTuple):
    """Bits of a QA value, by the first bit and their number, and the values wanted of them."""

    bits: tuple[int, int] | None  # None means the whole value
    wanted: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """One clause of a rule and its QA layer."""

    qa_layer: Layer
    clause: Clause


def resolve_rule(granule: Granule, layer: Layer, qa_rule: QaRule) -> tuple[Selection, ...]:
    """Resolve a rule into clauses for a layer; raise ChoiceRefusedError if one is inapplicable."""
    if qa_rule is None:
        return ()
    if not qa_rule:
        raise ChoiceRefusedError(
            "the QA rule is empty; leave qa out, or name a preset or a QA layer and its bits"
        )
    if isinstance(qa_rule, str):
        qa_rule = {_qa_name(layer, qa_rule): _preset(granule, layer, qa_rule)}
    selections = []
    for name, clause in qa_rule.items():
        if name not in granule.layers and split_index(name)[0] not in granule.layers:
            raise ChoiceRefusedError(
                f"the QA rule names layer {name!r}, which {granule.name} does not hold; "
                f"its layers are: {', '.join(granule.layers)}"
            )
        fields = clause if isinstance(clause, Mapping) else {"value": clause}
        if not fields:
            raise ChoiceRefusedError(
                f"the QA rule names no field of {name!r}; name one with the values to keep, like "
                "{MODLAND: [0]}"
            )
        for field_name, wanted in fields.items():
            selections.append(_selection(granule, layer, name, field_name, wanted))
    return tuple(selections)


def check_values(field: str, wanted: Sequence[int], held: range | None) -> None:
    """Raise ChoiceRefusedError for a clause that no pixel can pass.

    `held` are the values that the QA field can have, None if they are unknown.
    """
    if not wanted:
        raise ChoiceRefusedError(f"{field} keeps no value; list the values to keep")
    for value in wanted:
        if held is not None and value not in held:
            raise ChoiceRefusedError(
                f"{value} does not fit into {field}; it holds {held[0]} to {held[-1]}"
            )


def values_of(bits: BitField) -> range:
    """Return the values that a bit field can have."""
    return range(1 << bits.length)


def decode(granule: Granule, qa_layer: str, value: int | Sequence[int]) -> list[DecodedField]:
    """Decode one QA value, field by field; a layer of several bytes takes all of them in order.

    A layer whose whole value has a meaning, a class, has one field named "value".
    """
    entry = _entry(granule, qa_layer)
    number = (
        value
        if isinstance(value, int)
        else sum((int(byte) & 0xFF) << (8 * place) for place, byte in enumerate(value))
    )
    if entry is None or not entry.bits:
        meaning = _meanings(granule, qa_layer, entry).get(number)
        return (
            [] if meaning is None else [DecodedField(name="value", value=number, meaning=meaning)]
        )
    decoded = []
    for name, bits in entry.bits.items():
        part = (number >> bits.start) & ((1 << bits.length) - 1)
        decoded.append(DecodedField(name=name, value=part, meaning=bits.values.get(part, "")))
    return decoded


def has_fields(granule: Granule, name: str) -> bool:
    """Tell whether the bit fields of a layer are known."""
    entry = _entry(granule, name)
    return entry is not None and bool(entry.bits)


def in_words(granule: Granule, qa_layer: str, numbers: Sequence[int]) -> list[str]:
    """Describe QA values, field by field, or by their class; empty texts for what is not known."""
    entry = _entry(granule, qa_layer)
    if entry is None or not entry.bits:
        known = _meanings(granule, qa_layer, entry)
        return [known.get(number, "") for number in numbers]
    fields = list(entry.bits.items())
    found = []
    for number in numbers:
        parts = []
        for name, bits in fields:
            part = (number >> bits.start) & ((1 << bits.length) - 1)
            meaning = bits.values.get(part, "")
            parts.append(f"{name}={part} ({meaning})" if meaning else f"{name}={part}")
        found.append("; ".join(parts))
    return found


def _meanings(granule: Granule, name: str, entry: LayerEntry | None) -> Mapping[int, str]:
    """Return what the whole values of a layer mean, by the file and the catalogue; and its fill."""
    layer = granule.layers.get(name)
    known: dict[int, str] = {}
    if layer is not None:
        if layer.fill is not None and float(layer.fill).is_integer():
            known[int(layer.fill)] = "fill"
        known |= {**layer.codes, **layer.classes}
    return known | ({**entry.codes, **entry.classes} if entry is not None else {})


def _qa_name(layer: Layer, preset: str) -> str:
    if layer.qa is None:
        raise ChoiceRefusedError(
            f"qa: {preset} was asked for, but no QA layer is known for layer {layer.name!r}; leave "
            "qa out, or name a QA layer and its bits"
        )
    return layer.qa


def _preset(granule: Granule, layer: Layer, preset: str) -> Mapping[str, Sequence[int]]:
    entry = _entry(granule, _qa_name(layer, preset))
    presets = entry.presets if entry else {}
    if preset not in presets:
        known = ", ".join(presets) or "none"
        raise ChoiceRefusedError(
            f"qa: {preset!r} is not a preset of layer {layer.qa!r} (presets: {known}); write "
            "the rule out, like {layer: {field: [values]}}"
        )
    return presets[preset]


def _entry(granule: Granule, name: str) -> LayerEntry | None:
    if granule.entry is None:
        return None
    # A slash in a name may follow its structure, `grid/name`, or be part of it, `Land/SeaMask`.
    return granule.entry.layer(name) or granule.entry.layer(name.rsplit("/", 1)[-1])


def _selection(
    granule: Granule, layer: Layer, name: str, field_name: str, wanted: Sequence[int]
) -> Selection:
    bits = _bit_field(granule, name, field_name)
    base, index = split_index(name)
    qa_layer = granule.layers[name] if name in granule.layers else granule.layer(name)
    whole = granule.layers.get(layer.base_name)
    if not index and layer.index and whole is not None and qa_layer.bands == whole.bands:
        qa_layer = granule.layer(f"{base}[{','.join(map(str, layer.index))}]")
    elif bits is not None and qa_layer.bands and not index:
        qa_layer = granule.layer(f"{base}[{bits.start // 8}]")
        bits = bits.model_copy(update={"start": bits.start % 8})
    if bits is not None and bits.start + bits.length > 8 * qa_layer.dtype.itemsize:
        raise ChoiceRefusedError(
            f"bits {field_name!r} of {name!r} lie outside its {8 * qa_layer.dtype.itemsize} bits"
        )
    if qa_layer.dtype.kind not in "iu":
        raise ChoiceRefusedError(f"layer {name!r} is not of whole numbers: it cannot serve as QA")
    several = any(size > 1 for _, size in qa_layer.bands)
    if bits is None and several and not qa_layer.index:
        raise ChoiceRefusedError(f"QA layer {name!r} has several bands: name one, {name}[0]")
    if layer.grid and qa_layer.grid == layer.grid:
        qa_layer = replace(qa_layer, first_row=layer.first_row, shape=layer.shape)
    placement(granule, layer, qa_layer)
    kept = tuple(int(item) for item in wanted)
    held = values_of(bits) if bits is not None else _values_of_type(qa_layer.dtype)
    check_values(f"{name}.{field_name}", kept, held)
    taken = None if bits is None else (bits.start, bits.length)
    return Selection(qa_layer=qa_layer, clause=Clause(taken, kept))


def named_bits(known: Mapping[str, BitField], name: str) -> BitField | None:
    """Find the bits a rule names: a field of the layer, ignoring case, or bit numbers, "0-1"."""
    for candidate, bits in known.items():
        if candidate.upper() == name.upper():
            return bits
    match = _BITS.match(name)
    if match:
        first = int(match["first"])
        last = int(match["last"] or first)
        if first <= last < 512 and last - first < 32:
            return BitField(start=first, length=last - first + 1)
    return None


def _values_of_type(dtype: np.dtype[np.generic]) -> range | None:
    if dtype.kind not in "iu":
        return None
    whole = np.iinfo(dtype.str)
    return range(int(whole.min), int(whole.max) + 1)


def _bit_field(granule: Granule, name: str, field_name: str) -> BitField | None:
    if field_name == "value":
        return None
    entry = _entry(granule, split_index(name)[0])
    known = entry.bits if entry else {}
    found = named_bits(known, field_name)
    if found is not None:
        return found
    fields = ", ".join(known) or "none known; bits can be named by number, like '0-1'"
    raise ChoiceRefusedError(f"QA layer {name!r} has no bit field {field_name!r}; fields: {fields}")


def _refused(
    granule: Granule, layer: Layer, qa_layer: Layer, clauses: Sequence[Clause]
) -> npt.NDArray[np.uint8]:
    """Return `Reason.QA` for the pixels of a layer that a QA layer's clauses refuse, else 0."""
    refused = _by_value(granule.read(qa_layer), lambda values: _refuse(values, qa_layer, clauses))
    rows, columns = placement(granule, layer, qa_layer)
    if rows is None or columns is None:
        return refused
    return np.ascontiguousarray(refused[:, columns][rows])


def _refuse(stored: Array, qa_layer: Layer, clauses: Sequence[Clause]) -> npt.NDArray[np.uint8]:
    """Return `Reason.QA` where a QA value is not wanted, else 0."""
    passed = np.ones(stored.shape, np.bool_)
    for bits, wanted in clauses:
        part = stored
        if bits is not None:
            whole = stored.view(f"u{stored.dtype.itemsize}")
            first, length = bits
            ones = whole.dtype.type((1 << length) - 1)
            part = np.bitwise_and(np.right_shift(whole, first), ones)
        passed &= np.isin(part, np.array(wanted, dtype=np.int64))
    # A zero fill of a bit field looks like "all bits clear", so it does not count as fill.
    if not (qa_layer.fill == 0 and qa_layer.kind is LayerKind.BITFIELD):
        passed &= ~is_fill(stored, qa_layer)
    return np.where(passed, np.uint8(0), np.uint8(Reason.QA))


_Index = npt.NDArray[np.intp] | None


def placement(granule: Granule, layer: Layer, qa_layer: Layer) -> tuple[_Index, _Index]:
    """Return the QA row and column for each row and column of the layer; None if one to one.

    A coarser QA pixel applies to all finer pixels inside it. Raises ChoiceRefusedError if the two
    layers do not fit together.
    """
    same_place = (layer.grid, layer.swath) == (qa_layer.grid, qa_layer.swath)
    if same_place and layer.shape == qa_layer.shape:
        return None, None
    if layer.grid and qa_layer.grid:
        ours, theirs = granule.grids[layer.grid], granule.grids[qa_layer.grid]
        slack = 0.01 * ours.pixel_width  # corners of one tile differ by fractions of a millimetre
        edges = zip(
            (ours.left, ours.top, ours.right, ours.bottom),
            (theirs.left, theirs.top, theirs.right, theirs.bottom),
            strict=True,
        )
        even = all(fine % coarse == 0 for fine, coarse in _sizes(layer, qa_layer))
        if even and all(abs(one - other) <= slack for one, other in edges):
            rows, columns = (
                np.arange(fine) // (fine // coarse) for fine, coarse in _sizes(layer, qa_layer)
            )
            return rows, columns
    elif layer.swath and same_place:
        swath = granule.swaths[layer.swath]
        placed: list[npt.NDArray[np.intp]] = []
        for axis, (fine, coarse) in enumerate(_sizes(layer, qa_layer)):
            found = swath.map_onto(layer.dims[axis])
            if found is None or found.geo != qa_layer.dims[axis] or found.increment < 1:
                break
            placed.append(np.minimum(np.arange(fine) // found.increment, coarse - 1))
        if len(placed) == 2:
            return placed[0], placed[1]
        steps = {fine // coarse for fine, coarse in _sizes(layer, qa_layer) if fine % coarse == 0}
        if (
            not placed
            and len(steps) == 1
            and all(fine == coarse * max(steps) for fine, coarse in _sizes(layer, qa_layer))
        ):  # as VIIRS has them: two by two pixels of 375 m in one of 750 m
            rows, columns = (np.arange(fine) // max(steps) for fine, _ in _sizes(layer, qa_layer))
            return rows, columns
    raise ChoiceRefusedError(
        f"QA layer {qa_layer.name!r} {qa_layer.shape} cannot be laid over layer {layer.name!r} "
        f"{layer.shape}: it must cover the same ground, at the same or an evenly coarser resolution"
    )


def _sizes(layer: Layer, qa_layer: Layer) -> list[tuple[int, int]]:
    return list(zip(layer.shape, qa_layer.shape, strict=True))


def _in_range(stored: Array, layer: Layer) -> Mask:
    if layer.valid_range is None:
        finite = np.isfinite(stored) if stored.dtype.kind == "f" else None
        return np.ones(stored.shape, np.bool_) if finite is None else np.asarray(finite)
    low, high = layer.valid_range
    return np.asarray(np.greater_equal(stored, low) & np.less_equal(stored, high))
