"""What a layer is, in the words of the CF conventions: flags, units, axes, grid mapping.

Conventions: CF-1.11, sections 3.1 (units), 3.5 (flags), 4 (coordinates), 4.4 (time) and 5.6 (grid
mapping). Names of classes are those of the layer; bit fields are those of the catalogue.
"""

import re
from collections.abc import Mapping

import numpy as np

from reprojection import catalogue
from reprojection.catalogue import BitField, LayerEntry, Product
from reprojection.grid.crs import Crs
from reprojection.read.description import Description, Provenance

Attribute = str | int | float | list[float]

# What products say instead of a unit, in lower case, by the words of UDUNITS (CF 3.1).
_CF_UNITS = {
    **dict.fromkeys(("none", "n/a", "no units", "unitless", "dimensionless", "no_units"), ""),
    **dict.fromkeys(("ndvi", "evi", "evi2", "reflectance", "reflectance, no units"), "1"),
    **dict.fromkeys(("kelvin", "degrees kelvin", "degree k"), "K"),
    **dict.fromkeys(("deg", "degrees", "degree"), "degree"),
    **dict.fromkeys(("meters", "meter"), "m"),
}
_SINCE = re.compile(
    r"(\w+) since (\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d\d:\d\d:\d\d))?", re.IGNORECASE
)


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
    """Return the flag attributes of a raster's band; empty if nothing is known of its values."""
    return flags(bits_of(said, role, dtype), classes_of(said, role), dtype)


def flags(
    bits: Mapping[str, BitField], codes: Mapping[int, str], dtype: np.dtype[np.generic]
) -> dict[str, str | list[float]]:
    """Return the flag attributes of a variable; empty if nothing is known of its values.

    CF wants the values of flags to differ. Where there are several bit fields, values 0, which mean
    something in each of them, are left to `comment`, which has the meanings of all values.
    """
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


def cf_units(units: str) -> str:
    """Return units as CF spells them; "" for none."""
    return _CF_UNITS.get(units.strip().lower(), _since(units))


def quantity(said: Description) -> dict[str, Attribute]:
    """Return units and name of the quantity that a layer's values are, as CF spells them."""
    about: dict[str, Attribute] = {}
    if units := cf_units(said.units):
        about["units"] = units
    product = product_of(said.provenance)
    method = dict(said.provenance.parameters).get("resampling")
    if product is not None and said.kind == "continuous" and method not in ("count", "std"):
        name = product.standard_name(said.provenance.layer)
        about |= {"standard_name": name} if name else {}
    return about


def band_name(base: str, role: str, number: int) -> str:
    """Name the variable of a band of a raster, counted from 0, after its layer."""
    if number == 0:
        return base
    return f"{base}_{number + 1 if role == 'data' else role}"


def axis_words(crs: str) -> dict[str, dict[str, Attribute]]:
    """Return the attributes of the coordinates of columns, at "X", and of rows, at "Y"."""
    found = {item.get("axis"): item for item in Crs.of(crs).parsed.cs_to_cf()}
    return {axis: dict(found.get(axis, {"axis": axis})) for axis in ("X", "Y")}


def mapping_words(
    crs: str, transform: tuple[float, float, float, float, float, float]
) -> dict[str, Attribute]:
    """Return the attributes of the grid mapping, with the transform as GDAL spells it."""
    a, b, c, d, e, f = transform
    words = {key: _plain(value) for key, value in Crs.of(crs).parsed.to_cf().items()}
    words["GeoTransform"] = " ".join(repr(number) for number in (c, a, b, f, d, e))
    return words


def _since(units: str) -> str:
    """Write units of time as CF 4.4 has them; others stay.

    Granules have "Seconds since 1993-1-1 00:00:00.0 0", which xarray refuses to open.
    """
    found = _SINCE.match(units)
    if found is None:
        return units
    unit, year, month, day, clock = found.groups()
    return f"{unit.lower()} since {year}-{month:0>2}-{day:0>2} {clock or '00:00:00'}"


def _plain(value: object) -> Attribute:
    if isinstance(value, list | tuple):
        return [float(item) for item in value]
    return value if isinstance(value, str | int | float) else str(value)
