"""Refuse a run whose inputs hold fewer values than its package or step requires."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import rasterio

from tasks.bag.categories import Category
from tasks.packages.packages import Package
from tasks.service.classify import AttemptError
from worker.phases.group import MANIFEST, Manifest


def check_pixels(least: float, package: Package, given: Mapping[str, Path]) -> None:
    """Check the share of pixels with a value, in all bands that a package takes together.

    `given` holds the group's files by name.

    Raises:
        AttemptError: too few values, if the share is less than `least`.
    """
    manifest = Manifest.model_validate_json(given[MANIFEST].read_text("utf-8"))
    there = every = 0
    for band in manifest.bands:
        if band.kind in package.takes:
            with rasterio.open(given[band.file], driver="GTiff") as stack:
                mask = stack.read_masks(band.band)
            there += int(np.count_nonzero(mask))
            every += mask.size
    if every and there < least * every:
        raise AttemptError(
            Category.TOO_FEW_VALUES,
            f"not run: {package.name} needs values in {least:.0%} of the pixels, and "
            f"{there / every:.1%} have one",
        )
