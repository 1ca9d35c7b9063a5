"""Many small requests submitted together: when each one has its first result, and when all end.

    python -m bench.small_requests [--count N]

A running stack with embedded storage and the sample archive takes all of them at once. Each request
wants one raster of a window of its own, so that no request reuses what another has made.
"""

import argparse
import datetime as dt
import statistics
import tempfile
import time
from pathlib import Path

from bench.request.ours import stack
from reprojection.sample.sample import write_sample_archive
from swathmill.answers import RequestStatus
from swathmill.client import Client
from tasks.bag.model import RequestState
from tasks.request.document import Request, parse_request

_LIMIT_S = 600.0


def request(number: int) -> Request:
    """Return a request for one raster of a window that no other number has."""
    west = round(-7.5 + 0.01 * number, 2)
    return parse_request(
        {
            "title": f"small request {number}",
            "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
            "region": {"bbox": [west, 51.0, round(west + 1.0, 2), 52.0]},
            "time": {"start": "2012-04-14", "end": "2012-04-14"},
            "grid": {"crs": "EPSG:4326", "resolution": 0.02},
        }
    )


def run(count: int, folder: Path) -> list[RequestStatus]:
    """Submit `count` requests, and return them as they ended; TimeoutError if some do not."""
    archive = folder / "archive"
    write_sample_archive(archive)
    with stack(archive, folder) as running:
        client = running.client
        submitted = [client.submit(request(number)).id for number in range(count)]
        limit = time.monotonic() + _LIMIT_S
        return [_ended(client, name, limit) for name in submitted]


def _ended(client: Client, name: str, limit: float) -> RequestStatus:
    while (status := client.status(name)).ended is None:
        if time.monotonic() > limit:
            raise TimeoutError(f"{status.title} has not ended in {_LIMIT_S:.0f} s")
        time.sleep(0.2)
    return status


def _seconds(later: dt.datetime | None, earlier: dt.datetime | None) -> float:
    assert later is not None
    assert earlier is not None
    return (later - earlier).total_seconds()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="small-requests-") as folder:
        ended = run(options.count, Path(folder))
    incomplete = [status for status in ended if status.state is not RequestState.COMPLETE]
    for status in incomplete:
        print(f"{status.title}: {status.state.value}: {status.message}")
    first = min(status.submitted for status in ended if status.submitted is not None)
    ends = sorted(_seconds(status.ended, first) for status in ended)
    waits = [_seconds(status.ended, status.submitted) for status in ended]
    print(
        f"{len(ended)} requests: the first raster after {ends[0]:.1f} s, half of them after "
        f"{statistics.median(ends):.1f} s, the last after {ends[-1]:.1f} s; "
        f"from its submission a request took {statistics.median(waits):.1f} s (median), "
        f"{max(waits):.1f} s at most; {len(incomplete)} incomplete"
    )


if __name__ == "__main__":
    main()
