"""What the values of classes and bit fields mean, in the words of STAC and GDAL.

Conventions: STAC Classification extension 2.0.0; GDAL's raster attribute table and category names,
which other programs read from a file `.aux.xml` beside a GeoTIFF (PAM). Names of classes are those
of the raster; bit fields are those of the catalogue.
"""

from collections.abc import Mapping
from xml.sax.saxutils import escape

import numpy as np
from pydantic import JsonValue

from reprojection.read.cf import bits_of, classes_of, identifier
from reprojection.read.description import Colour, Description

CLASSIFICATION = "https://stac-extensions.github.io/classification/v2.0.0/schema.json"

_MOST_CATEGORIES = 256  # GDAL's category names have one for every value from 0 on


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
