"""All options of a request, crossed so that each pair of their values occurs in some request.

`FACTORS` names every field of the request document but those that no phase reads (`UNPLANNED`);
a test holds it to the model.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from allpairspy import AllPairs

AEROSOL = "Optical_Depth_Land_And_Ocean"
BAND = "Corrected_Optical_Depth_Land[1]"

LEAVES = {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}
QUALITY = {"name": "MCD15A2", "collection": "5", "layers": ["FparLai_QC"]}
SWATHS = {
    "name": "MYD04_L2",
    "collection": "61",
    "layers": [AEROSOL, "Scan_Start_Time", "Land_Ocean_Quality_Flag"],
}
UNKNOWN = {"name": "OWNA1", "collection": "1", "layers": ["Depth", "Depth_Quality"]}

PRODUCTS: dict[str, list[dict[str, Any]]] = {
    "tiles": [{**LEAVES, "layers": ["Lai_1km", "FparLai_QC"]}],
    "swaths": [SWATHS],
    "unknown": [UNKNOWN],
    "both": [LEAVES, {**SWATHS, "layers": [BAND]}],
    "quality": [QUALITY],
}
_RING = [[-7, 52], [-1, 53], [-4, 57], [-7, 52]]
REGIONS: dict[str, dict[str, Any]] = {
    "box": {"bbox": [-4.0, 52.0, 3.0, 57.0]},
    "spot": {"bbox": [-4.0, 53.5, -1.0, 55.5]},  # in one tile: cells of the fine grid cost seconds
    "tile": {"tiles": ["h17v03"]},
    "polygon": {"geojson": {"type": "Polygon", "coordinates": [_RING]}, "clip": True},
}
GRIDS: dict[str, dict[str, Any]] = {
    "degrees": {"crs": "EPSG:4326", "resolution": 0.25},
    "metres": {"crs": "EPSG:3035", "resolution": 25000},
    "modis": {"modis": 1000},
}
RULES: dict[str, dict[str, Any]] = {
    "tiles": {"FparLai_QC": {"MODLAND": [0]}},
    "swaths": {"Land_Ocean_Quality_Flag": {"value": [1, 2, 3]}},
    "unknown": {"Depth_Quality": {"0": [0]}},
    "both": {
        "FparLai_QC": {"MODLAND": [0]},
        "Land_Ocean_Quality_Flag": {"value": [1, 2, 3]},
    },
    "quality": {"FparLai_QC": {"MODLAND": [0]}},
}

FACTORS: dict[str, list[Any]] = {
    "products": ["tiles", "swaths", "unknown", "both"],
    "day_night": ["any", "day"],
    "place": ["box degrees", "spot modis", "polygon metres", "tile degrees", "polygon degrees"],
    "time": ["2012-03-29..2012-04-08"],
    "resampling": [
        None,
        "nearest",
        "bilinear",
        "cubic",
        "average",
        "mode",
        "by layer",
    ],
    "merge": ["nadir", "latest", "mean", "first"],
    "qa": [None, "good", "best", "rule"],
    "mask": [True, False],
    "clamp": [False, True],
    "units": ["stored", "physical"],
    "codes": ["mask", "keep"],
    "extra_bands": [[], ["source"], ["count", "reason"], ["count", "reason", "source"]],
    "cells": [False, True],
    "cube": ["none", "netcdf", "zarr"],
    "weight": ["none", "days"],
    "on_missing": ["skip", "fail"],
    "reduction": [
        None,
        ("mean", "year"),
        ("monthly-mean", "month"),
        ("last", "all"),
    ],
}

_FIRST_LAYER = {name: chosen[0]["layers"][0] for name, chosen in PRODUCTS.items()}
_NO_PRESET = {"unknown"}  # the catalogue does not know it


def is_refused(case: dict[str, Any]) -> str:
    """The field that a request is refused by at once, as far as a part of a case tells, else empty.

    Such pairs are tested one by one: in a crossing a refusal would hide the pairs beside it.
    """
    products, qa = case.get("products"), case.get("qa")
    if qa is not None and case.get("mask") is False:
        return "qa"
    if qa in ("good", "best") and products in _NO_PRESET:
        return "qa"
    if case.get("day_night") == "night":
        return "products.0.day_night"  # all granules here are of the day
    reduction = case.get("reduction")
    if products == "quality" and reduction is not None and reduction[0] != "last":
        return "reduction.package"
    if products == "quality" and case.get("resampling") == "by layer":
        return "resampling"
    return ""


def cases() -> list[dict[str, Any]]:
    """The crossing: every pair of values that can stand together occurs in one case or more."""
    names = [*FACTORS]

    def possible(row: Sequence[Any]) -> bool:
        return not is_refused(dict(zip(names, row, strict=False)))

    found = AllPairs([*FACTORS.values()], filter_func=possible)
    crossed = [dict(zip(names, row, strict=True)) for row in found]
    # Values that take the same way as others stand with one set of the other values each.
    changes: list[dict[str, Any]] = [
        *({"resampling": method} for method in ("gdal-average", "min", "max", "median")),
        *(
            {"place": place}
            for place in ("box metres", "tile metres", "tile modis", "polygon modis")
        ),
        *({"reduction": ("mean", window)} for window in ("date", "month", "all")),
    ]
    return crossed + [
        {**case, "products": "tiles", **change}
        for case, change in zip(crossed, changes, strict=False)
    ]


def document(case: dict[str, Any]) -> dict[str, Any]:
    """The request of a case."""
    name = case["products"]
    first, last = case["time"].split("..")
    made = {
        **case,
        "products": [{**one, "day_night": case["day_night"]} for one in PRODUCTS[name]],
        "time": {"start": dt.date.fromisoformat(first), "end": dt.date.fromisoformat(last)},
        "qa": RULES[name] if case["qa"] == "rule" else case["qa"],
    }
    region, grid = case["place"].split()
    made |= {"region": REGIONS[region], "grid": GRIDS[grid]}
    del made["day_night"], made["place"]
    if case["resampling"] == "by layer":
        made["resampling"] = {_FIRST_LAYER[name]: "average"}
    if case["reduction"] is not None:
        package, window = case["reduction"]
        made["reduction"] = {"package": package, "group_by": ["cell", window]}
    return made
