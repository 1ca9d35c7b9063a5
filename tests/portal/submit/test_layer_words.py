"""The units that the form says of layers, beside those that real granules state."""

from pathlib import Path

import pytest

from portal.submit.layer_words import words_of
from reprojection.read.cf import cf_units
from reprojection.read.granule import open_granule

_SAME = {"hrs": "h", "degree": "degrees", "seconds": "s", "1": "", "EVI2": ""}
"""Spellings of granules, and ours. "" is without a unit."""


@pytest.mark.real_data
def test_units_are_those_of_real_granules(granules: Path) -> None:
    files: dict[str, Path] = {}
    for folder in ("l3-tiles", "l2-swath/MYD11_L2", "new-real"):
        for kind in ("hdf", "h5", "nc"):
            for path in sorted((granules / folder).rglob(f"*.{kind}")):
                files.setdefault(path.name.partition(".")[0], path)
    told = 0
    for product, path in files.items():
        with open_granule(path) as granule:
            stated = {name: cf_units(layer.units) for name, layer in granule.layers.items()}
        for layer, units in stated.items():
            title, said = words_of(layer)
            if title:
                assert said == _SAME.get(units, units), (product, layer)
                told += 1
    assert len(files) >= 10
    assert told >= 40
