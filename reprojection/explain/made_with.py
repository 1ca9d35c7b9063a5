"""Restore the options of reprojection from what a raster says of itself."""

import json
from collections.abc import Mapping
from typing import cast

from reprojection.read.description import Description
from reprojection.read.lineage import Parameter
from reprojection.reproject import Codes, Driver, ExtraBand, Merge, Options, Search, Units

_Rule = str | None


def options_of(said: Description) -> Options:
    """Restore the options a raster was made with, from its provenance."""
    return options_from(dict(said.provenance.parameters))


def options_from(chosen: Mapping[str, Parameter]) -> Options:
    """Restore the options of reprojection from the parameters of a provenance."""
    rule = chosen.get("qa")
    driver = chosen.get("driver")
    extra = str(chosen.get("extra_bands") or "")
    return Options(
        resampling=str(chosen.get("resampling", "nearest")),
        merge=cast(Merge, chosen.get("merge", "nadir")),
        qa=json.loads(rule)
        if isinstance(rule, str) and rule.startswith("{")
        else cast(_Rule, rule),
        mask=bool(chosen.get("mask", True)),
        units=cast(Units, chosen.get("units", "stored")),
        codes=cast(Codes, chosen.get("codes", "mask")),
        search=cast(Search, chosen.get("search", "footprint")),
        extra_bands=cast(tuple[ExtraBand, ...], tuple(extra.split(",")) if extra else ()),
        clamp=bool(chosen.get("clamp", False)),
        driver=Driver(**json.loads(driver)) if isinstance(driver, str) else None,
    )
