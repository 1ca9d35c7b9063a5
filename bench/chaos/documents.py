"""Requests without end over one archive: small ones, mostly new work, some of it shared."""

import random
from collections.abc import Callable, Iterator
from typing import Any

Document = dict[str, Any]
Maker = Callable[[random.Random], Document]


def sample_document(choose: random.Random) -> Document:
    """A request over the archive that `swathmill sample` makes."""
    west, south = choose.uniform(-8.0, 3.0), choose.uniform(50.5, 56.0)
    width, height = choose.uniform(1.0, 5.0), choose.uniform(1.0, 3.0)
    leaf = {
        "name": "MCD15A2",
        "collection": "5",
        "layers": choose.choice((["Lai_1km"], ["Fpar_1km"], ["Lai_1km", "Fpar_1km"])),
    }
    aerosol = {
        "name": "MYD04_L2",
        "collection": "061",
        "layers": ["Optical_Depth_Land_And_Ocean"],
    }
    products = choose.choice(([leaf], [leaf], [aerosol], [leaf, aerosol]))
    start, end = choose.choice((("2012-04-13", "2012-04-15"), ("2012-04-14", "2012-04-30")))
    found: Document = {
        "title": "chaos",
        "products": products,
        "region": {"bbox": _box(west, south, min(6.0, west + width), min(58.5, south + height))},
        "time": {"start": start, "end": end},
        "grid": choose.choice(
            (
                {"crs": "EPSG:4326", "resolution": round(choose.uniform(0.015, 0.06), 4)},
                {"crs": "EPSG:3035", "resolution": float(choose.randrange(1500, 5000, 50))},
            )
        ),
        "notify": "chaos@example.org",
    }
    if choose.random() < 0.4:
        found["reduction"] = {
            "package": choose.choice(("mean", "monthly-mean")),
            "group_by": ["cell", choose.choice(("month", "date"))],
        }
    return found


def real_document(choose: random.Random) -> Document:
    """A request over the real granules of leaf area (MCD15A2 005, h17v03 and h18v03, 2012)."""
    west, south = choose.uniform(-9.0, 4.0), choose.uniform(50.2, 57.0)
    return {
        "title": "chaos",
        "products": [
            {
                "name": "MCD15A2",
                "collection": "5",
                "layers": choose.choice((["Lai_1km"], ["Fpar_1km"])),
            }
        ],
        "region": {"bbox": _box(west, south, west + choose.uniform(1, 4), south + 2.0)},
        "time": {"start": "2012-03-05", "end": choose.choice(("2012-03-30", "2012-04-20"))},
        "grid": {"crs": "EPSG:4326", "resolution": round(choose.uniform(0.01, 0.05), 4)},
        "notify": "chaos@example.org",
    }


def documents(choose: random.Random, make: Maker) -> Iterator[Document]:
    """New documents for ever, and now and then one that was there before."""
    known: list[Document] = []
    while True:
        if known and choose.random() < 0.2:
            yield choose.choice(known[-8:])
        else:
            known.append(make(choose))
            yield known[-1]


def _box(west: float, south: float, east: float, north: float) -> list[float]:
    return [round(value, 2) for value in (west, south, east, north)]
