"""What the values of classes and bit fields mean, in the words of CF, STAC and GDAL.

Conventions: CF-1.11, section 3.5 (flags); STAC Classification extension 2.0.0; GDAL's raster
attribute table and category names, which other programs read from a file `.aux.xml` beside a
GeoTIFF (PAM). Names of classes are those of the raster; bit fields are those of the catalogue.
"""

import re
from collections.abc import Mapping
from xml.sax.saxutils import escape

import numpy as np
from pydantic import JsonValue

from reprojection import catalogue
from reprojection.catalogue import BitField, LayerEntry, Product
from reprojection.read.raster import Colour, Description, Provenance

CLASSIFICATION = "https://stac-extensions.github.io/classification/v2.0.0/schema.json"

_MOST_CATEGORIES = 256  # GDAL's category names have one for every value from 0 on


def product_of(said: Provenance) -> Product | None:
    """Return the catalogue's entry of a raster's product; None if there is none."""
    return catalogue.product(said.product, said.collection) if said.collection else None


def entry_of(said: Provenance) -> LayerEntry | None:
    """Return the catalogue's entry of a raster's layer; None if there is none."""
    product = product_of(said)
    return product.layer(said.layer) if product else None


def identifier(text: str) -> str:
    """Make a word of letters, digits and underscores that begins with a letter."""
    cleaned = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return cleaned if cleaned[:1].isalpha() else f"v_{cleaned}"


def classes_of(said: Description, role: str) -> Mapping[int, str]:
    """Return the meanings of single values of a band with this role."""
    is_named = role == "class" or (role == "data" and said.kind != "continuous")
    return said.codes if is_named else {}


def bits_of(said: Description, role: str, dtype: np.dtype[np.generic]) -> Mapping[str, BitField]:
    """Return the bit fields of a band with this role, as far as its type has them."""
    if role != "data" or said.kind != "bitfield" or dtype.kind not in "iu":
        return {}
    entry = entry_of(said.provenance)
    bits = 8 * dtype.itemsize
    found = entry.bits if entry else {}
    return {name: one for name, one in found.items() if one.start + one.length <= bits}


def cf_flags(
    said: Description, role: str, dtype: np.dtype[np.generic]
) -> dict[str, str | list[float]]:
    """Return the flag attributes of a variable; empty if nothing is known of its values.

    CF wants the values of flags to differ. Where there are several bit fields, values 0, which mean
    something in each of them, are left to `comment`, which has the meanings of all values.
    """
    bits = bits_of(said, role, dtype)
    masks, values, meanings, lines = list[float](), list[float](), list[str](), list[str]()
    for name, one in bits.items():
        last = one.start + one.length - 1
        places = f"bit {last}" if one.length == 1 else f"bits {one.start} to {last}"
        states = ", ".join(f"{value} {text}" for value, text in one.values.items())
        lines.append(f"{places}, {name}: {states}" if states else f"{places}, {name}")
        for value, text in one.values.items():
            if value or len(bits) == 1:
                masks.append(_signed(((1 << one.length) - 1) << one.start, dtype))
                values.append(_signed(value << one.start, dtype))
                meanings.append(identifier(f"{name} {text}"))
    if values:
        return {
            "flag_masks": masks,
            "flag_values": values,
            "flag_meanings": " ".join(meanings),
            "comment": "; ".join(lines),
        }
    codes = classes_of(said, role)
    if not codes:
        return {}
    return {
        "flag_values": [float(code) for code in codes],
        "flag_meanings": " ".join(identifier(text) for text in codes.values()),
    }


def _signed(number: int, dtype: np.dtype[np.generic]) -> float:
    """Return the number that a type holds for these bits."""
    width = 8 * dtype.itemsize
    return float(number - (1 << width) if dtype.kind == "i" and number >> (width - 1) else number)


def stac_classification(
    said: Description, role: str, dtype: np.dtype[np.generic]
) -> dict[str, JsonValue]:
    """Return the fields of the Classification extension for a band; empty if nothing is known."""
    bits = bits_of(said, role, dtype)
    if bits:
        fields: list[JsonValue] = [
            {
                "name": identifier(name),
                "description": name.replace("_", " "),
                "offset": one.start,
                "length": one.length,
                "classes": [_stac_class(value, text) for value, text in one.values.items()]
                or [{"value": 0, "name": "zero", "description": "not described"}],
            }
            for name, one in bits.items()
        ]
        return {"classification:bitfields": fields}
    codes = classes_of(said, role)
    if not codes:
        return {}
    classes: list[JsonValue] = []
    for value, text in codes.items():
        one = _stac_class(value, text)
        if value in said.colours:
            one["color_hint"] = "{:02X}{:02X}{:02X}".format(*said.colours[value])
        classes.append(one)
    return {"classification:classes": classes}


def _stac_class(value: int, text: str) -> dict[str, JsonValue]:
    return {"value": value, "name": identifier(text), "description": text}


def class_tags(said: Description, role: str) -> dict[str, str]:
    """Return the meanings of a band's values as GDAL's metadata of the band: class_9 = town."""
    return {f"class_{code}": text for code, text in classes_of(said, role).items()}


def attribute_table(codes: Mapping[int, str], colours: Mapping[int, Colour]) -> str:
    """Return the file `.aux.xml` with the names and colours of classes; "" if there are none.

    It has a raster attribute table (value, name and colour), and category names where the values
    begin near 0.
    """
    if not codes:
        return ""
    columns = (("Value", 0, 5), ("Class_Name", 2, 2), *((c, 0, u) for c, u in _COLOUR_COLUMNS))
    heads = "".join(
        f'<FieldDefn index="{n}"><Name>{name}</Name><Type>{kind}</Type><Usage>{usage}</Usage>'
        "</FieldDefn>"
        for n, (name, kind, usage) in enumerate(columns)
    )
    rows = []
    for n, (code, text) in enumerate(sorted(codes.items())):
        colour = colours.get(code, (128, 128, 128, 255))
        cells = "".join(f"<F>{escape(str(one))}</F>" for one in (code, text, *colour))
        rows.append(f'<Row index="{n}">{cells}</Row>')
    names = ""
    if min(codes) >= 0 and max(codes) < _MOST_CATEGORIES:
        every = (codes.get(code, "") for code in range(max(codes) + 1))
        names = "".join(f"<Category>{escape(text)}</Category>" for text in every)
        names = f"<CategoryNames>{names}</CategoryNames>"
    table = f'<GDALRasterAttributeTable tableType="thematic">{heads}{"".join(rows)}'
    return (
        f'<PAMDataset><PAMRasterBand band="1">{names}{table}</GDALRasterAttributeTable>'
        "</PAMRasterBand></PAMDataset>\n"
    )


_COLOUR_COLUMNS = (("Red", 6), ("Green", 7), ("Blue", 8), ("Alpha", 9))
"""The colour columns of an attribute table, with GDAL's number of their use."""
