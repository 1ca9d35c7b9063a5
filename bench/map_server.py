"""Tiles over HTTP: 50 a second, of a day of swaths, and the first of granules over a slow link.

    python -m bench.map_server [--rate 50 --seconds 20 --rounds 3 --only cold --titiler PYTHON]

The server is `swathmill view`, in processes of its own; none of the tiles is taken from what was
drawn, as each call has another colour scale. At a rate, a tile counts from when it was due to its
last byte. Over the link, a portal reads synthetic VNP09GA (two tiles of 34 MB a day, chunks that
do not compress) from a server with the folders of LAADS that answers after 50 ms, sends 20 MB a
second over all connections, and takes 50 ms for a new one; each round is of another day, with a
list and granules that nobody has read. Beside both titiler draws the same values from a COG, if
PYTHON is that of an environment with titiler.core and uvicorn (no lock has it).
"""

import argparse
import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import rasterio
import uvicorn
from rasterio.transform import Affine

from bench import site_parts
from bench.swath import write_passes
from bench.swath_datasets import PASSES, field
from bench.views import Place, places, said, written_cog
from modis.tile import Tile
from portal.app import create_app
from portal.http_server import server_config
from portal.serving import tokens
from portal.views.state import Views
from processes import proctree
from reprojection.grid.grids import modis_tile_grid
from reprojection.read.granule import open_granule
from reprojection.sample.sample import write_sample_archive
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.clock import SystemClock

_SECRET = "s" * 40
_LATENCY, _BYTES_A_SECOND = 0.05, 20e6
_PIECE = 1 << 16
_LAND = (1.0, 50.5, 14.0, 59.5)
_READY = 60.0  # seconds that a server may take to start
_BEGUN = 12.0  # seconds for the processes that read
_NUMBERS = itertools.count(1)
_TITILER = """
import sys, uvicorn
from fastapi import FastAPI
from titiler.core.factory import TilerFactory
app = FastAPI()
app.include_router(TilerFactory().router)
uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
"""
Address = Callable[[Place], str]


class _Link:
    """A link that all connections share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = 0.0

    def wait(self, size: int) -> None:
        """Wait until so many bytes have gone over it."""
        with self._lock:
            now = time.monotonic()
            self._free = max(self._free, now) + size / _BYTES_A_SECOND
            left = self._free - now
        time.sleep(left)


class _Slow(site_parts._Handler):
    """Answers as LAADS does, over a slow link; COGs, too."""

    link: _Link

    def setup(self) -> None:
        super().setup()
        time.sleep(_LATENCY)

    def do_GET(self) -> None:  # noqa: N802
        time.sleep(_LATENCY)
        super().do_GET()

    def do_HEAD(self) -> None:  # noqa: N802
        """Say how long a file is."""
        time.sleep(_LATENCY)
        file = self.served.folder / self.path.partition("?")[0].rpartition("/")[2]
        self.send_response(200 if file.is_file() else 404)
        self.send_header("Content-Length", str(file.stat().st_size if file.is_file() else 0))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()

    def _answer(self, status: int, name: str, data: bytes, part: str = "") -> None:
        self.send_response(status)
        self.send_header("ETag", f'"{name}"')
        self.send_header("Content-Length", str(len(data)))
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()
        for at in range(0, len(data), _PIECE):
            self.link.wait(min(_PIECE, len(data) - at))
            self.wfile.write(data[at : at + _PIECE])
        self.served.count(len(data))


def get(address: str, token: str = "") -> float:
    """Fetch an address; return the milliseconds to its last byte."""
    begun = time.perf_counter()
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=120)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{address}: {answer.status} {body[:300]!r}")
    return 1000 * (time.perf_counter() - begun)


def at_rate(address: Address, at: Sequence[Place], rate: float, seconds: float) -> list[float]:
    """Ask for tiles at a rate; return milliseconds from when each was due."""
    for one in at:
        get(address(one))
    begun = time.perf_counter() + 0.5
    found: list[float] = []

    def call(number: int) -> None:
        due = begun + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        get(address(at[number % len(at)]))
        found.append(1000 * (time.perf_counter() - due))

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(call, range(int(rate * seconds))))
    return found


@dataclass(frozen=True, kw_only=True)
class Viewing:
    """A running `swathmill view` over granules of one product."""

    pid: int
    base: str
    product: str

    def cpu(self) -> tuple[float, float]:
        """Return the seconds of its own process, and those of the processes that read."""
        every = (self.pid, *proctree.descendants(self.pid))
        own, *others = map(_seconds, every)
        return own, sum(others)


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def viewing(folder: Path) -> Iterator[Viewing]:
    """Run `swathmill view`."""
    with subprocess.Popen(
        [sys.executable, "-m", "swathmill.cli", "view", str(folder), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            text = ""
            while not text or text.count("{") > text.count("}"):
                text += process.stdout.readline() if process.stdout else ""
            said = json.loads(text)
            (product,) = said["products"]
            yield Viewing(pid=process.pid, base=said["address"], product=product)
        finally:
            process.terminate()


@contextmanager
def titiler(python: str, port: int = 8797) -> Iterator[str]:
    """Run titiler; yield its address."""
    with subprocess.Popen([python, "-c", _TITILER, str(port)]) as process:
        try:
            end = time.monotonic() + _READY
            while True:
                try:
                    get(f"http://127.0.0.1:{port}/openapi.json")
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@contextmanager
def reading(sources: str, data: Path) -> Iterator[str]:
    """Serve a portal whose processes read already; yield its address."""
    made = Settings.model_validate(
        {"secret": _SECRET, "portal_url": "http://127.0.0.1", "sources": sources,
         "data_dir": str(data), "host_rate": 1000.0}
    )  # fmt: skip
    app = create_app(made, memory_runtime(SystemClock()))
    server = uvicorn.Server(server_config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    app.state.portal.state(Views).begin()
    time.sleep(_BEGUN)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def ours(base: str, layer: str, high: float) -> Address:
    """Return addresses of tiles, each of which is drawn anew."""
    return lambda at: (
        f"{base}/tiles/{layer}/{at[0]}/{at[1]}/{at[2]}.png?rescale=0,{high + next(_NUMBERS) * 1e-7}"
    )


def theirs(base: str, cog: str, high: float) -> Address:
    """Return titiler's addresses of the same."""
    return lambda at: (
        f"{base}/tiles/WebMercatorQuad/{at[0]}/{at[1]}/{at[2]}.png?url={quote(cog, safe='')}"
        f"&colormap_name=viridis&rescale=0,{high + next(_NUMBERS) * 1e-7}"
    )


def warm(place: Path, given: argparse.Namespace) -> None:
    """Measure tiles at a rate, and of swaths."""
    folder = place / "tiles"
    folder.mkdir()
    granule = next(p for p in write_sample_archive(place, ("tiles",)) if "h18v03" in p.name)
    granule = granule.rename(folder / granule.name)
    at = places(8, _LAND, 40)
    with viewing(folder) as view:
        address = ours(view.base, f"{view.product}/Lai_1km/{_day(granule)}", 7.0)
        said("one after another", [get(address(one)) for one in (*at, *at)][len(at) :])
        before = view.cpu()
        said(f"{given.rate:g} a second", at_rate(address, at, given.rate, given.seconds))
        many = given.rate * given.seconds + len(at)
        own, others = (
            1000 * (now - then) / many for now, then in zip(view.cpu(), before, strict=True)
        )
        print(f"CPU of a tile: {own:.1f} ms of the server, {others:.1f} ms of what draws")
    if given.titiler:
        cog = written_cog(granule, place / "tile.tif")
        with titiler(given.titiler) as base:
            address = theirs(base, str(cog), 70.0)
            said("titiler, one after another", [get(address(one)) for one in (*at, *at)][len(at) :])
    passes = place / "swaths"
    passes.mkdir()
    files = write_passes(passes, PASSES, field)
    around = places(7, (-20.0, 40.0, 30.0, 68.0), 40)
    with viewing(passes) as view:
        address = ours(view.base, f"{view.product}/Value/{_day(files[0])}", 7.0)
        for one in around:
            get(address(one))
        said("of twelve swaths, one after another", [get(address(one)) for one in around])


def _day(granule: Path) -> date:
    return datetime.strptime(granule.name.split(".")[1], "A%Y%j").date()


def cold(place: Path, given: argparse.Namespace) -> None:
    """Measure the first tile over a slow link."""
    granules = place / "granules"
    granules.mkdir()
    site_parts.write(granules, given.rounds)
    cog = granules / "band.tif"
    _band_cog(next(granules.glob("*h18v03*")), cog)
    served = site_parts.Served(granules)
    handler = type("Handler", (_Slow,), {"served": served, "link": _Link()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    there = f"http://127.0.0.1:{server.server_port}/archive"
    at, token = (8, 133, 80), tokens.issue(_SECRET, "ada@example.org")
    with reading(f"laads+{there}", place / "data") as base:
        for number in range(given.rounds):
            day = (site_parts._FIRST + number * site_parts._PERIOD).date()
            layer = f"{site_parts._PRODUCT}.2/{site_parts._LAYER}/{day}"
            calls, sent = served.calls, served.sent
            took = get(ours(base, layer, 1.0)(at), token)
            calls, sent = served.calls - calls, served.sent - sent
            print(
                f"cold: {took:.0f} ms, {calls} parts of granules, {sent / 1e6:.2f} MB", flush=True
            )
            took = get(ours(base, layer, 1.0)((8, 134, 80)), token)
            print(f"the tile beside it: {took:.0f} ms", flush=True)
    if given.titiler:
        with titiler(given.titiler) as base:
            get(theirs(base, str(cog), 1.0)(at))  # from a file: all is loaded
            times = [
                get(theirs(base, f"{there}/band.tif?{n}", 1.0)(at)) for n in range(given.rounds)
            ]
        print(f"| titiler, cold, by round | {', '.join(f'{one:.0f}' for one in times)} | |")
    server.shutdown()


def _band_cog(granule: Path, to: Path) -> None:
    with open_granule(granule) as found:
        values = np.asarray(found.read(site_parts._LAYER))
    tile = Tile.parse(granule.name.split(".")[2])
    grid = modis_tile_grid(*tile, 1000)
    with rasterio.open(
        to, "w", driver="COG", height=values.shape[0], width=values.shape[1], count=1,
        dtype="int16", crs=rasterio.CRS.from_user_input(grid.crs),
        transform=Affine(*grid.transform), nodata=-28_672, compress="deflate",
    ) as dataset:  # fmt: skip
        dataset.write(values.astype(np.int16), 1)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("warm", "cold"))
    parser.add_argument("--titiler", help="Python of an environment with titiler.core")
    given = parser.parse_args()
    print("| tiles over HTTP | median, ms | p99, ms |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as name:
        if given.only != "cold":
            warm(Path(name), given)
        if given.only != "warm":
            cold(Path(name), given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
