"""Values at 1,000 sites beside the rasters of the same layers and days.

    python -m bench.sites FOLDER [--rounds N]

`FOLDER` has the real tiles of MCD15A2. They are copied to 120 days, with the day written into each
copy. Each round measures both requests on a stack of its own, warm, by CPU time of all processes
and by wall time; the granules are collected in each. In every second round the sites go first.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from bench.request import ours
from bench.request.ours import Warm
from processes.parents import become_subreaper
from tasks.request.document import Request, parse_request

FIRST, DAYS, SITES = date(2012, 1, 1), 120, 1000
LAYERS = ["Lai_1km", "Fpar_1km", "FparLai_QC", "LaiStdDev_1km"]
TILES = ["h17v03", "h18v03"]
_GRIDS: dict[str, dict[str, Any]] = {
    "0.01 degree": {"crs": "EPSG:4326", "resolution": 0.01},
    "the tiles' own": {"modis": 1000},
}


def daily(real: Path, folder: Path) -> None:
    """Write a copy of the real tiles for each day, from the composite that covers the day."""
    for path in sorted(real.rglob("MCD15A2.A2012*.h1[78]v03.005.*.hdf")):
        content = path.read_bytes()
        began = FIRST + timedelta(days=int(path.name[13:16]) - 1)
        for day in (began + timedelta(days=n) for n in range(8)):
            if (day - FIRST).days >= DAYS:
                continue
            name = path.name.replace(f"A{began:%Y%j}", f"A{day:%Y%j}")
            changed = content.replace(path.name.encode(), name.encode())
            changed = changed.replace(f'"{began}"'.encode(), f'"{day}"'.encode())
            (folder / name).write_bytes(changed)


def request(days: int, **more: Any) -> Request:
    """Return a request for the layers over so many days."""
    return parse_request(
        {
            "products": [{"name": "MCD15A2", "collection": "5", "layers": LAYERS}],
            "time": {"start": FIRST, "end": FIRST + timedelta(days=days - 1)},
            **more,
        }
    )


def scattered() -> str:
    """Return a table of sites spread evenly over both tiles."""
    lat, x = np.random.default_rng(18).uniform((50, -10), (60, 10), (SITES, 2)).T
    lon = x / np.cos(np.radians(lat))
    lines = [f"s{n},{a:.5f},{b:.5f}\n" for n, (a, b) in enumerate(zip(lat, lon, strict=True))]
    return "id,latitude,longitude\n" + "".join(lines)


def main() -> None:
    """Measure, and print the ratio of each grid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("real", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--grid", choices=sorted(_GRIDS), help="one of the grids alone")
    parser.add_argument("--only-sites", action="store_true")
    given = parser.parse_args()
    become_subreaper()
    with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as name:
        archive = Path(name) / "archive"
        archive.mkdir()
        daily(given.real, archive)
        at_sites = {"region": {"sites": scattered()}}
        box = {"region": {"tiles": TILES}, "resampling": "nearest"}
        kinds: dict[str, dict[str, Any]] = {"sites": at_sites}
        if not given.only_sites:
            for grid in [given.grid] if given.grid else _GRIDS:
                kinds[grid] = {**box, "grid": _GRIDS[grid]}
        found: dict[str, list[Warm]] = {kind: [] for kind in kinds}
        for turn in range(given.rounds):
            for kind in sorted(kinds, reverse=bool(turn % 2)):
                place = Path(name) / f"{turn}-{[*kinds].index(kind)}"
                place.mkdir()
                with ours.stack(archive, place) as stack:
                    # Other layers, so that nothing of it is there but what is warm.
                    more = {**kinds[kind], "qa": "best"}
                    stack.take(request(2, **more), place / "warm-up")
                    found[kind].append(stack.take(request(DAYS, **kinds[kind]), place / "out"))
                _tell(kind, found[kind][-1:])
        for kind in kinds:
            _tell(f"median, {kind}", found[kind])
        for kind in [*kinds][1:]:
            pairs = [*zip(found["sites"], found[kind], strict=True)]
            cpu = statistics.median(a.spent.cpu_s / b.spent.cpu_s for a, b in pairs)
            wall = statistics.median(a.spent.wall_s / b.spent.wall_s for a, b in pairs)
            sys.stdout.write(f"sites / rasters on {kind}: CPU {cpu:.3f}, wall {wall:.3f}\n")


def _tell(kind: str, found: Sequence[Warm]) -> None:
    def middle(values: list[float]) -> str:
        return f"{statistics.median(values):.2f}"

    roles = sorted({name for one in found for name in one.roles})
    parts = [f"{name} {middle([one.roles.get(name, 0.0) for one in found])}" for name in roles]
    sys.stdout.write(
        f"{kind}: CPU {middle([one.spent.cpu_s for one in found])} s, wall "
        f"{middle([one.spent.wall_s for one in found])} s ({', '.join(parts)})\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    main()
