"""What ten sites, and a field, fetch of large granules over HTTP, and that values are the wholes'.

    python -m bench.site_parts [--dates 4] [--only "the field"]

Granules like the 1 km grid of VIIRS surface reflectance (two tiles a day, nine bands and seven
quality layers in deflated chunks, of values that do not compress) lie on a server on this machine
with the folders of LAADS. The same request, for a table of sites or for rasters of a field on the
edge of both tiles, runs on a stack of its own each time: with a server that
ignores `Range`, so that granules come whole; in part; in part, while a worker is killed in the
middle; and in part, while the server's ETag of a granule changes. Then a field elsewhere in the
same granules is requested on the stack that has made one. What the server sent is counted, without
its lists.
"""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import numpy.typing as npt
import rasterio

from bench.request import ours
from modis.tile import TILE_SIZE
from processes import proctree
from processes.parents import become_subreaper
from reprojection.sample.hdfeos_write import FieldToWrite, GranuleToWrite, GridToWrite
from tasks.request.document import Request, parse_request
from tests.generated.hdf5_write import write_hdf5_granule

_PRODUCT, _LAYER, _SIDE = "VNP09GA", "SurfReflect_M5_1", 1200
_BANDS = tuple(f"SurfReflect_M{n}_1" for n in (1, 2, 3, 4, 5, 7, 8, 10, 11))
_QUALITY = tuple(f"SurfReflect_QF{n}_1" for n in range(1, 8))
_FIRST, _PERIOD = datetime(2012, 4, 1, tzinfo=UTC), timedelta(days=1)
_TILES = ((17, 3), (18, 3))
_SET = "5200"
_SITES = (
    *((51.5, -2.2), (56.6, -6.7), (55.2, 0.001), (58.1, 3.4), (52.3, 5.1)),
    *((53.3, 8.1), (57.0, -4.0), (59.9, -1.0), (50.7, 2.0), (54.0, -3.3)),
)
_FIELD = (-0.06, 55.1, 0.05, 55.2)


def write(folder: Path, dates: int) -> None:
    """Write the granules."""
    for date in (_FIRST + number * _PERIOD for number in range(dates)):
        for h, v in _TILES:
            noise = np.random.default_rng((date.toordinal(), h, v))
            left, top = (h - 18) * TILE_SIZE, (9 - v) * TILE_SIZE
            bands = [_band(name, noise.integers(0, 10_000, (_SIDE, _SIDE))) for name in _BANDS]
            quality = [
                FieldToWrite(
                    name=name,
                    values=noise.integers(0, 255, (_SIDE, _SIDE)).astype(np.uint8),
                    dims=("YDim", "XDim"),
                )
                for name in _QUALITY
            ]
            name = f"{_PRODUCT}.A{date:%Y%j}.h{h:02d}v{v:02d}.002.2018153130500.h5"
            granule = GranuleToWrite(
                local_name=name,
                product=_PRODUCT,
                collection=2,
                start=date,
                end=date + _PERIOD - timedelta(seconds=1),
                produced=datetime(2018, 6, 1, tzinfo=UTC),
                day_night="Day",
                ring=[(-20.0, 50.0), (-20.0, 60.0), (20.0, 60.0), (20.0, 50.0)],
                structure=GridToWrite(
                    name="VIIRS_Grid_1km_2D",
                    upper_left=(left, top),
                    lower_right=(left + TILE_SIZE, top - TILE_SIZE),
                    fields=[*bands, *quality],
                ),
            )
            write_hdf5_granule(folder / name, granule, eos=True)


def _band(name: str, values: npt.NDArray[np.int64]) -> FieldToWrite:
    return FieldToWrite(
        name=name,
        values=values.astype(np.int16),
        dims=("YDim", "XDim"),
        typed={"valid_range": (-100, 16_000), "_FillValue": -28_672},
        attributes={"scale_factor": 0.0001, "add_offset": 0.0},
    )


@dataclass
class Served:
    """What the server does and did. `then` is called with the stack's process id, once, when the
    server has answered `after` calls for granules."""

    folder: Path
    ranges: bool = True
    after: int = -1
    then: Callable[[int], object] = lambda _: None
    stack: int = 0
    sent: int = 0
    calls: int = 0
    etags: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, sent: int) -> None:
        """Count an answer."""
        with self.lock:
            self.sent += sent
            self.calls += 1
            now = self.calls == self.after
        if now:
            self.then(self.stack)


class _Handler(BaseHTTPRequestHandler):
    """Answers as LAADS does: lists as JSON, granules with their ranges."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits 40 ms for the headers' receipt
    served: Served

    def do_GET(self) -> None:
        """Answer with a list, or a granule."""
        path = self.path.partition("?")[0]
        if path.endswith((".json", ".csv")):
            self._list(path.removesuffix(".json"))
            return
        file = self.served.folder / path.rpartition("/")[2]
        if not file.is_file():
            self.send_error(404)
            return
        found = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found is None or not self.served.ranges:
            self._answer(200, file.name, file.read_bytes())
            return
        size = file.stat().st_size
        begin, end = int(found[1]), min(int(found[2]) + 1, size)
        with file.open("rb") as granule:
            data = os.pread(granule.fileno(), end - begin, begin)
        self._answer(206, file.name, data, f"bytes {begin}-{end - 1}/{size}")

    def _answer(self, status: int, name: str, data: bytes, part: str = "") -> None:
        self.send_response(status)
        self.send_header("ETag", f'"{self.served.etags.get(name, "1")}"')
        self.send_header("Content-Length", str(len(data)))
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()
        sent = 0
        try:
            for at in range(0, len(data), 1 << 16):
                sent += self.wfile.write(data[at : at + (1 << 16)])
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        self.served.count(sent)

    def _list(self, path: str) -> None:
        place = f"/allData/{_SET}/{_PRODUCT}"
        if place not in path:
            self.send_error(404)
            return
        below = path.partition(place)[2].strip("/")
        files = sorted(self.served.folder.glob("*.h5"))
        days = {file: file.name[len(_PRODUCT) + 2 :][:7] for file in files}
        if "/" in below:
            wanted = [file for file, day in days.items() if day == below.replace("/", "")]
            rows = [{"name": file.name, "size": file.stat().st_size} for file in wanted]
        else:
            names = {day[4:] if below else day[:4] for day in days.values()}
            rows = [{"name": name, "size": 0} for name in sorted(names)]
        body = json.dumps({"content": rows}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(served: Served) -> Iterator[str]:
    """Serve a folder with the folders of LAADS; yield the address."""
    handler = type("Handler", (_Handler,), {"served": served})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/archive"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def requests(dates: int) -> dict[str, Request]:
    """Return the requests by what they are for."""
    lines = "".join(f"s{n},{lat},{lon}\n" for n, (lat, lon) in enumerate(_SITES))
    last = _FIRST + dates * _PERIOD - timedelta(days=1)
    both = {
        "products": [{"name": _PRODUCT, "collection": "2", "layers": [_LAYER]}],
        "time": {"start": _FIRST.date(), "end": last.date()},
    }
    sites = {"region": {"sites": f"id,latitude,longitude\n{lines}"}}
    field = {
        "region": {"bbox": _FIELD},
        "grid": {"crs": "EPSG:4326", "resolution": 0.005},
        "resampling": "bilinear",
    }
    return {
        what: parse_request({"title": what, **both, **rest})
        for what, rest in (("ten sites", sites), ("the field", field))
    }


def _values(folder: Path) -> bytes:
    """Return what results hold: the table of sites, or the pixels of all rasters."""
    table = folder / "sites/sites.csv"
    if table.exists():
        return table.read_bytes()
    found = []
    for path in sorted(folder.rglob("*.tif")):
        with rasterio.open(path) as raster:
            found.append(path.name.encode() + raster.read().tobytes())
    return b"".join(found)


def run(served: Served, asked: Request, folder: Path) -> tuple[bytes, float]:
    """Run a request on a stack of its own; return its values, and the seconds it took."""
    folder.mkdir()
    with ExitStack() as opened:
        address = opened.enter_context(serving(served))
        sources = {"SWATHMILL_SOURCES": f"laads+{address}"}
        running = opened.enter_context(ours.stack(None, folder, sources))
        served.stack = running.pid
        began = time.monotonic()
        running.take(asked, folder / "out")
        return _values(folder / "out"), time.monotonic() - began


def kill_a_worker(stack: int) -> None:
    """Kill the first worker of a stack."""
    for pid in proctree.descendants(stack):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"worker" in words and b"-m" in words:
            os.kill(pid, signal.SIGKILL)
            return
    raise RuntimeError("the stack has no worker")


def main() -> None:
    """Run all, and print what the server sent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dates", type=int, default=4)
    parser.add_argument("--only", choices=[*requests(1)])
    given = parser.parse_args()
    become_subreaper()
    with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as name:
        place = Path(name)
        granules = place / "granules"
        granules.mkdir()
        write(granules, given.dates)
        size = sum(path.stat().st_size for path in granules.iterdir())
        print(f"{2 * given.dates} granules of {size / 1e6:,.1f} MB", flush=True)
        same = [
            _compared(what, asked, granules, place / what)
            for what, asked in requests(given.dates).items()
            if given.only in (None, what)
        ]
        sys.exit(0 if all(same) else 1)


def _compared(what: str, asked: Request, granules: Path, place: Path) -> bool:
    """Run a request in all cases; tell whether their values are equal."""
    place.mkdir()
    size = sum(path.stat().st_size for path in granules.iterdir())
    first = min(path.name for path in granules.iterdir())

    def change(_: int) -> None:
        changed.etags[first] = "2"

    changed = Served(granules, after=6, then=change)
    cases = {
        "whole: no ranges": Served(granules, ranges=False),
        "in part": Served(granules),
        "in part, a worker killed": Served(granules, after=20, then=kill_a_worker),
        "in part, a granule replaced": changed,
    }
    values = set()
    for number, (case, served) in enumerate(cases.items()):
        found, seconds = run(served, asked, place / str(number))
        values.add(found)
        print(
            f"{what}, {case}: {served.sent / 1e6:,.2f} MB ({served.sent / size:.1%}), "
            f"{served.calls} calls, {seconds:.1f} s",
            flush=True,
        )
    if what == "the field":
        _again(asked, Served(granules), place / "again")
    same = len(values) == 1 and values != {b""}
    print(f"{what}: {'values are equal' if same else 'VALUES DIFFER'}", flush=True)
    return same


def _again(asked: Request, served: Served, folder: Path) -> None:
    """Request two fields after one another on a stack; print what the server sent for the other."""
    west, south, east, north = _FIELD
    region = asked.region.model_copy(update={"bbox": (west, south + 2.0, east, north + 2.0)})
    other = asked.model_copy(update={"region": region})
    folder.mkdir()
    with serving(served) as address:
        sources = {"SWATHMILL_SOURCES": f"laads+{address}"}
        with ours.stack(None, folder, sources) as running:
            running.take(asked, folder / "first")
            sent, calls = served.sent, served.calls
            running.take(other, folder / "other")
    sent, calls = served.sent - sent, served.calls - calls
    print(f"another field, once the structure is known: {sent / 1e6:,.2f} MB, {calls} calls")


if __name__ == "__main__":
    main()
