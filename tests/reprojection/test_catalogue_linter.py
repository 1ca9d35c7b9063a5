"""A linter over every entry of the catalogue, and over every real file that is at hand."""

from pathlib import Path

import pytest

from reprojection.catalogue import Product, products
from reprojection.errors import ReprojectionError
from reprojection.inspect.strict import disagreements
from reprojection.read.granule import open_granule

EVERY = [*products()]


@pytest.mark.parametrize("entry", EVERY, ids=[f"{one.name}.{one.collections[-1]}" for one in EVERY])
def test_an_entry_agrees_with_itself(entry: Product) -> None:
    for name in entry.layer_names:
        layer = entry.layer(name)
        if layer is None:
            continue
        if layer.qa is not None:
            assert layer.qa in entry.layer_names, f"{name}: its quality {layer.qa} does not exist"
        if layer.valid_range is not None:
            low, high = layer.valid_range
            assert low <= high, name
            inside = [code for code in layer.codes if low <= code <= high]
            assert not inside, f"{name}: codes {inside} lie within its valid range"
            outside = [code for code in layer.classes if not low <= code <= high]
            assert not outside, f"{name}: classes {outside} lie outside its valid range"
        both = layer.codes.keys() & layer.classes.keys()
        assert not both, f"{name}: {both} are codes and classes"
        used = 0
        for field, bits in layer.bits.items():
            mine = ((1 << bits.length) - 1) << bits.start
            assert not used & mine, f"{name}: {field} overlaps another field"
            used |= mine
            assert all(0 <= value < 1 << bits.length for value in bits.values), (name, field)
    assert entry.covers >= entry.period


def _real(folder: Path) -> list[Path]:
    """List a file of each product; one cut out by PO.DAAC (SS_) has only some of its layers."""
    files = [one for one in folder.rglob("*") if one.suffix in (".hdf", ".h5", ".nc")]
    files = [one for one in files if not one.name.startswith("SS_")]
    newest = {path.name.split(".")[0] + path.parent.name: path for path in sorted(files)}
    return [*newest.values()]


@pytest.mark.real_data
def test_real_files_agree_with_the_catalogue(granules: Path) -> None:
    wrong: list[str] = []
    seen = 0
    for path in _real(granules):
        try:
            opened = open_granule(path)
        except ReprojectionError:
            continue  # of forms that are not read, other tests tell
        with opened as granule:
            if granule.entry is None:
                continue
            seen += 1
            wrong += [f"{path.name}: {line}" for line in disagreements(granule)]
    assert seen >= 12
    assert wrong == []
