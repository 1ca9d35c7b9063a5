"""Brightness temperatures of thermal bands of level 1B, by the value that the file stores.

MODIS: Planck's function at a band's central wavenumber, and the band correction `(T - intercept) /
slope`; the constants of each band of Terra and of Aqua are in the catalogue (mod02.yaml). VIIRS:
the table that each file holds beside the band (VIIRS Level 1B Product User's Guide, brightness
temperature look-up tables).
"""

import numpy as np
import numpy.typing as npt

from reprojection.catalogue import LayerEntry
from reprojection.catalogue.layers import Layer
from reprojection.read.granule import Granule

Floats = npt.NDArray[np.float64]

# Of the constants' source: h, c and k as in CODATA 1986.
_PLANCK = 6.6260755e-34
_LIGHT = 2.9979246e8
_BOLTZMANN = 1.380658e-23


def has_temperatures(entry: LayerEntry | None) -> bool:
    """Tell whether the catalogue knows how a layer's radiances become temperatures."""
    return entry is not None and bool(entry.planck or entry.temperatures)


def temperatures(granule: Granule, layer: Layer) -> Floats | None:
    """Return the brightness temperature in kelvin of each stored value from 0 on, NaN where none.

    Returns None for a layer whose radiances the catalogue does not turn into temperatures. Raises
    UnreadableGranuleError if the file's own table cannot be read.
    """
    entry = granule.entry.layer(layer.name) if granule.entry else None
    if entry is None or not has_temperatures(entry):
        return None
    if entry.temperatures:
        table = granule.read_table(entry.temperatures.replace("*", layer.base_name))
        return np.where(table > 0.0, table, np.nan)
    wavenumber, slope, intercept = entry.planck[granule.product[:3]][layer.index[0]]
    highest = int(layer.valid_range[1]) if layer.valid_range else 32767
    radiance = np.arange(highest + 1, dtype=np.float64) * layer.scale + layer.offset
    return (monochromatic(np.asarray(radiance, np.float64), wavenumber) - intercept) / slope


def monochromatic(radiance: Floats, wavenumber: float) -> Floats:
    """Compute the temperature in kelvin of a black body of a radiance, by Planck's law.

    `radiance` is in W/m2/um/sr, `wavenumber` in 1/cm. NaN where the radiance is not positive.
    """
    metres = 1e-2 / wavenumber
    first, second = 2.0 * _PLANCK * _LIGHT**2, _PLANCK * _LIGHT / _BOLTZMANN
    per_metre = np.where(radiance > 0.0, radiance, np.nan) * 1e6
    return np.asarray(second / (metres * np.log1p(first / (per_metre * metres**5))))
