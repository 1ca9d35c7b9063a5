"""Every layer of every product of the catalogue, requested once on generated granules.

Each request goes from the check of its document through the plan and the phases to rasters. It ends
in results or in a refusal at submission, never in a failure. The quick form takes one product of
those that share a description, in its newest collection; all collections of all products:
`SWATHMILL_EVERY_LAYER=1`, as `make proofs ONLY=layers` does.
"""

import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from archives.kinds.folder import FolderArchive
from reprojection import catalogue
from reprojection.catalogue import Product
from reprojection.read.outline import read_outlines
from tasks.bag.spec import LayerSpec, MosaicSpec, RasterSpec
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tests.generated.products import write_product
from tests.service_manager.shelf import LIMITS, plan
from tests.worker.mill import Mill

DAY = date(2020, 1, 1)
MOST = 64  # layers of one product choice
EVERY = bool(os.environ.get("SWATHMILL_EVERY_LAYER"))
MOSAICS = 1  # of each request in the quick form; a mosaic knows nothing of its layer


def descriptions() -> list[tuple[Product, str]]:
    found: dict[object, tuple[Product, str]] = {}
    for number, product in enumerate(catalogue.products()):
        for collection in product.collections if EVERY else product.collections[-1:]:
            key = (number, collection) if EVERY else (product.title, repr(product.layers))
            found.setdefault(key, (product, collection))
    return list(found.values())


DESCRIPTIONS = descriptions()

pytestmark = pytest.mark.slow


def starting(product: Product) -> date:
    """The first day of 2020 on which the product has a granule."""
    return date.fromordinal(DAY.toordinal() + product.phase)


def parts(product: Product) -> Iterator[list[str]]:
    """The layers of a product, each of its bands by itself, in lists that a request may have."""
    every = list[str]()
    for name in product.layer_names:
        facts = product.facts(name)
        alone = facts.days > 1 or facts.orbits
        every += [name] if alone else facts.band_names[:3] or [name]
    for first in range(0, len(every), MOST):
        yield every[first : first + MOST]


def document(
    product: Product, collection: str, layers: list[str], **changes: Any
) -> dict[str, Any]:
    day = starting(product).isoformat()
    return {
        "products": [{"name": product.name, "collection": collection, "layers": layers}],
        "region": {"bbox": [9.0, 44.0, 11.0, 46.0]},
        "time": {"start": day, "end": day},
        "grid": {"crs": "EPSG:4326", "resolution": 0.25},
        **changes,
    }


@pytest.mark.parametrize(
    ("product", "collection"),
    [
        pytest.param(*one, marks=[] if number % 6 == 0 or EVERY else [pytest.mark.proof])
        for number, one in enumerate(DESCRIPTIONS)
    ],
    ids=lambda one: getattr(one, "name", one),
)
def test_every_layer_comes_to_a_raster(product: Product, collection: str, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    write_product(archive, product, collection, starting(product))
    for name in product.geolocations:
        companion = catalogue.product(name, collection)
        assert companion is not None
        write_product(archive, companion, collection, starting(product))
    held = FolderArchive(archive, tmp_path / "index.sqlite", read_outlines)
    mill = Mill(tmp_path / "mill", archive)
    done = set[str]()
    for layers in parts(product):
        request = parse_request(document(product, collection, layers))
        planned = plan(request, held, Packages.of(LIMITS), LIMITS)
        made, mosaics, rasters = set(), 0, 0
        for task in planned.tasks:
            if isinstance(task.spec, MosaicSpec):
                mosaics += 1
                if mosaics > MOSAICS and not EVERY:
                    continue
            if task.key in done:
                continue
            done.add(task.key)
            mill.make(task.spec)  # fails with the category and message of what went wrong
            if isinstance(task.spec, LayerSpec):
                made.add(task.spec.layer.partition("[")[0])
            rasters += isinstance(task.spec, RasterSpec)
        assert made == {layer.partition("[")[0] for layer in layers}
        assert mosaics + rasters == len(layers)


def test_a_layer_that_no_collection_has_is_refused_at_submission_or_fails_by_name(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "archive"
    product = catalogue.product("MOD10A1", "5")
    assert product is not None
    write_product(archive, product, "5", DAY)
    held = FolderArchive(archive, tmp_path / "index.sqlite", read_outlines)
    request = parse_request(document(product, "5", ["NDSI_Snow_Cover"]))
    with pytest.raises(RequestRefusedError, match="has no layer 'NDSI_Snow_Cover'"):
        plan(request, held, Packages.of(LIMITS), LIMITS)
