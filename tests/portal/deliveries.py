"""What the tests of results share: files of a request, and two owners who have some."""

import json
from pathlib import Path
from typing import Any

from portal.results.result_files import ResultFile
from portal.serving import tokens
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.write.stac import stac_item
from tasks.bag.model import ArtifactFile, RequestState
from tasks.bag.runtime import Runtime
from tests.portal.scripted import (
    SECRET,
    put_result,
    raster_bytes,
    set_row,
)

ADA, BEN = "ada@example.org", "ben@example.org"
LAI = "MCD15A2.005/Lai_1km"
LAYER = f"{LAI}/MCD15A2.005.Lai_1km"
DATES = ("2012-01-01", "2012-01-09", "2012-01-17")


def header(owner: str = ADA) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens.issue(SECRET, owner, tokens.Role.SCIENTIST)}"}


def result(path: str, completeness: Completeness = WHOLE) -> ResultFile:
    raster = path.endswith(".tif")
    file = ArtifactFile(
        name=path.rpartition("/")[2],
        blob="b",
        size=1,
        sha256="0" * 64,
        completeness=completeness,
        valid_share=0.5 if raster else None,
    )
    return ResultFile(path=path, file=file, key="k")


def deliver(runtime: Runtime, request: str, folder: Path) -> None:
    """Two layers on three dates, with items beside the rasters, and a table; all is complete."""
    for number, date in enumerate(DATES):
        for layer in ("Lai_1km", "Fpar_1km"):
            image = folder / f"MCD15A2.005.{layer}.{date}.tif"
            image.write_bytes(raster_bytes(folder, number))
            item = stac_item(image)
            said: Any = item["properties"]
            said |= {
                "datetime": None,
                "start_datetime": f"{date}T00:00:00Z",
                "end_datetime": f"{date}T23:59:59Z",
            }
            ring: Any = item["geometry"]
            ring["coordinates"][0].reverse()  # as builds before this one wrote them
            output = f"MCD15A2.005/{layer}"
            put_result(runtime, request, output, image.name, image.read_bytes())
            text = json.dumps(item).encode()
            put_result(runtime, request, output, f"{image.stem}.json", text)
    put_result(runtime, request, "table", "sites.csv", b"site,value\n")
    set_row(runtime, request, state=RequestState.COMPLETE, ended=runtime.clock.now(), delivered=7)
