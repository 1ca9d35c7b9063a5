"""What an archive covers, as its holdings tell it."""

from archives.kinds.coverage import Coverage
from reprojection.read.outline import LayersSeen
from tasks.holdings.holdings import Held, day_bits


def held_of(covered: Coverage, layers: LayersSeen) -> Held:
    """Tell what an archive covers of a product, whose samples have these layers."""
    first = covered.days[0]
    return Held(
        name=covered.product,
        collection=covered.collection,
        granules=covered.granules,
        first=first,
        last=covered.days[-1],
        bits=day_bits(covered.days, first),
        tiles=covered.tiles,
        cells=covered.cells,
        anywhere=covered.anywhere,
        layers=layers.lengths,
        notes=layers.notes,
    )
