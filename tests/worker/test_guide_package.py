"""The reduction of docs/guides/write-a-reduction.md is a package, and counts what it says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import rasterio
import yaml
from rasterio import Affine

from tasks.packages.packages import load_package
from tasks.request.document import parse_request
from tests.portal.submissions import DOCUMENT

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "write-a-reduction.md"


def test_the_guides_reduction_counts_days_above_its_threshold(tmp_path: Path) -> None:
    blocks = re.findall(r"```(yaml|python)\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    (manifest, request), (program,) = (
        [text for language, text in blocks if language == wanted] for wanted in ("yaml", "python")
    )
    folder, source, target = (tmp_path / name for name in ("days-above", "in", "out"))
    for made in (folder, source, target):
        made.mkdir()
    (folder / "package.yaml").write_text(manifest, "utf-8")
    (folder / "days_above.py").write_text(program, "utf-8")
    package = load_package(folder)
    parsed = parse_request({**DOCUMENT, **yaml.safe_load(request)})
    (step,) = parsed.steps
    assert package.expand(["Lai_1km"]) == ("Lai_1km_days.tif",)

    # One row: above on three days, on one of two, on none, without data; stored tenths.
    days = np.array([[[30, 30, 10, 255]], [[40, 10, 20, 255]], [[50, 255, 25, 255]]], np.uint8)
    profile = {"driver": "GTiff", "dtype": "uint8", "nodata": 255, "crs": "EPSG:4326"}
    place = Affine(0.1, 0.0, 0.0, 0.0, -0.1, 1.0)
    with rasterio.open(
        source / "Lai_1km.tif", "w", count=3, width=4, height=1, transform=place, **profile
    ) as stack:
        stack.write(days)
        stack.scales = [0.1] * 3
    bands = [{"file": "Lai_1km.tif", "band": number} for number in (1, 2, 3)]
    (source / "manifest.json").write_text(json.dumps({"bands": bands}))
    (source / "parameters.json").write_text(json.dumps(step.parameters))
    command = [sys.executable, *package.command[1:], str(source), str(target)]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    with rasterio.open(target / "Lai_1km_days.tif") as out:
        assert out.nodata == -1
        assert out.read(1).tolist() == [[3, 1, 0, -1]]
        assert out.transform == place
