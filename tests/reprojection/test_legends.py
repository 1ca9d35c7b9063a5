"""Each catalogue entry holds every code and bit field that real granules' own legends list."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyhdf.SD import SD

from reprojection.catalogue import LayerEntry
from reprojection.read.granule import open_granule

pytestmark = pytest.mark.real_data

_TEXTS = re.compile(r"key|legend|.*_DOC", re.IGNORECASE)
_CODES = (
    re.compile(r"(?:^|[,\s])(\d+)\s*="),  # Key of snow: 200=missing data; 249 = unclassified
    re.compile(r"^(\d+) [a-z]", re.MULTILINE),  # legend of fire: 4 cloud
    re.compile(r"\[(-?\d+)\] :"),  # Legend of vegetation indices: [-1] : Fill
)
_BITS = (
    re.compile(r"START (\d+) END (\d+)"),
    re.compile(r"\[(\d+)-(\d+)\] :"),
    re.compile(r"^\s*bit (\d+)():", re.MULTILINE),
)


def legends(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each layer that documents itself, and its legend."""
    file = SD(str(path))
    for name in file.datasets():
        sds = file.select(name)
        for key, text in sds.attributes().items():
            if isinstance(text, str) and _TEXTS.fullmatch(key):
                yield name, text
        sds.endaccess()
    file.end()


def codes_of(text: str) -> set[int]:
    return {int(code) for form in _CODES for code in form.findall(text)}


def bits_of(text: str) -> set[tuple[int, int]]:
    found = {(int(one), int(last or one)) for form in _BITS for one, last in form.findall(text)}
    return {(first, last - first + 1) for first, last in found}


def has_bits(entry: LayerEntry) -> set[tuple[int, int]]:
    return {(bits.start, bits.length) for bits in entry.bits.values()}


def test_codes_and_bits_of_legends_are_in_the_catalogue(granules: Path) -> None:
    compared = 0
    for folder in sorted(granules.glob("l*/*")):
        path = min(folder.glob("*.hdf"))
        with open_granule(path) as granule:
            assert granule.entry is not None
            for name, text in legends(path):
                layer, entry = granule.layers[name], granule.entry.layer(name)
                assert entry is not None, (folder.name, name)
                if documented := bits_of(text):
                    assert documented <= has_bits(entry), (folder.name, name)
                else:
                    named = {*layer.codes, *layer.classes, layer.fill}
                    assert codes_of(text) <= named, (folder.name, name)
                compared += 1
    assert compared >= 12


def test_scales_fills_and_units_are_known_of_every_layer(granules: Path) -> None:
    """No layer of a real granule leaves its physical units open."""
    for folder in sorted(granules.glob("l*/*")):
        with open_granule(min(folder.glob("*.hdf"))) as granule:
            open_ones = {n: one.scale_problem for n, one in granule.layers.items()}
            assert not any(open_ones.values()), (folder.name, open_ones)
