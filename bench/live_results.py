"""When the results of one request are there on a running stack, by the rows of its attempts.

    python -m bench.live_results [--rounds 3] [--slots 2]

48 rasters of 6 cells each: 16 dates of two tiles of 1 km, three layers. It counts cells and rasters
in the order in which their attempts ended; seconds depend on what else the machine does.
"""

import argparse
import tempfile
import time
from pathlib import Path

from bench.request.granules import leaf_area
from bench.request.ours import stack
from bench.result_times import AT
from swathmill.client import Client
from tasks.bag import task_table
from tasks.bag.model import Attempt, Phase
from tasks.bag.task_keys import SHARDS
from tasks.request.document import Request, parse_request
from tasks.service.connect import connect_storage

_LOOK = 0.5  # seconds


def request() -> Request:
    """Return the request, on a grid of 3 x 2 cells."""
    return parse_request(
        {
            "title": "rasters as they come",
            "products": [
                {
                    "name": "MCD15A2",
                    "collection": "5",
                    "layers": ["Lai_1km", "Fpar_1km", "FparLai_QC"],
                }
            ],
            "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
            "time": {"start": "2012-01-01", "end": "2012-05-30"},
            "grid": {"crs": "EPSG:4326", "resolution": 0.0066},
        }
    )


def attempts(data: Path) -> list[Attempt]:
    """Read the attempts of a stack from its data folder, in the order of their ends."""
    runtime = connect_storage(f"file:{data / 'storage'}")
    found = [
        task_table.ATTEMPT.load(row)
        for shard in SHARDS
        for row in runtime.store.scan(task_table.TABLE, shard, "a|", "a}")
    ]
    return sorted(found, key=lambda one: one.ended)


def follow(client: Client) -> None:
    """Submit the request and wait for its end."""
    made = client.submit(request()).id
    while client.status(made).ended is None:
        time.sleep(_LOOK)


def row(folder: Path, archive: Path, slots: int) -> str:
    """Run the request on a stack of its own; return a row of the table."""
    with stack(archive, folder, slots=slots) as running:
        follow(running.client)
    made = attempts(folder / "data")
    began = min(one.started for one in made)
    cells = [one.ended - began for one in made if one.phase is Phase.REPROJECTION]
    rasters = [one.ended - began for one in made if one.phase is Phase.AGGREGATION]
    there = sum(end <= cells[int(AT * len(cells))] for end in rasters)
    return (
        f"| {len(rasters)} | {len(cells)} | {rasters[0]:.1f} s | {rasters[len(rasters) // 2]:.1f} "
        f"s | {rasters[-1]:.1f} s | {there} ({there / len(rasters):.0%}) |"
    )


def main() -> None:
    """Print the table, a row for each round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=2)
    options = parser.parse_args()
    print("| rasters | cells | first raster | half of them | all | at 30% of the cells |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="live-results-") as name:
        archive = Path(name) / "archive"
        archive.mkdir()
        leaf_area(archive, None)
        for number in range(options.rounds):
            folder = Path(name) / str(number)
            folder.mkdir()
            print(row(folder, archive, options.slots), flush=True)


if __name__ == "__main__":
    main()
