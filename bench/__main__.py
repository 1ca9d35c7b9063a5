"""Run measurements by name, or list them: `make bench ONLY=request ARGS="--rounds 5"`."""

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What is measured, and the modules that do it, each with its arguments."""

    what: str
    modules: tuple[str, ...]


MEASUREMENTS = {
    "reproject": Measurement(
        what="reprojection against its peers; the machine should be idle",
        modules=("bench.reproject", "bench.calls", "bench.swath", "bench.end_to_end"),
    ),
    "request": Measurement(
        what="whole requests beside a script, warm and cold, or [--makers] what makers cost "
        "[--rounds 5 --only Q1,Q4 --archive F]",
        modules=("bench.request",),
    ),
    "results": Measurement(
        what="when the rasters of one request are there: the first, half, all [--rasters 40]",
        modules=("bench.result_times",),
    ),
    "live": Measurement(
        what="the same on a running stack, counted: 48 rasters of 6 cells [--rounds 3 --slots 2]",
        modules=("bench.live_results",),
    ),
    "datasets": Measurement(
        what="tiles of 8 dates as one dataset, beside rioxarray and odc-geo [--dates 8 --rounds 3]",
        modules=("bench.datasets",),
    ),
    "swath-datasets": Measurement(
        what="twelve swaths as one dataset, beside satpy and pyresample [--rounds 3]",
        modules=("bench.swath_datasets",),
    ),
    "plan": Measurement(
        what="planning ten years of a continent [--quick | --days 3653]", modules=("bench.plan",)
    ),
    "tasks": Measurement(
        what="tasks that do nothing, bare Celery beside them [--count 3000 --workers 1 2 4 8]",
        modules=("bench.tasks",),
    ),
    "scale": Measurement(
        what="the manager at 30 k, 300 k and 3 M tasks, and 10,000 workers [--fleet 60000]",
        modules=("bench.scale",),
    ),
    "engines": Measurement(
        what="a fleet in an engine, from 0 to 200 workers and back, in simulated time [--seed 1]",
        modules=("bench.engines",),
    ),
    "images": Measurement(
        what="images of roles: sizes, requests over them, a worker's start [--base NAME]",
        modules=("bench.images",),
    ),
    "slow": Measurement(
        what="a fleet with slow machines under each monitor [--plot docs/slow-machines.svg]",
        modules=("bench.slow_machines",),
    ),
    "sandbox": Measurement(
        what="what each tier of the sandbox adds to the start of a program",
        modules=("bench.sandbox",),
    ),
    "site-parts": Measurement(
        what="what ten sites and a field fetch of large granules over HTTP [--dates 4]",
        modules=("bench.site_parts",),
    ),
    "sites": Measurement(
        what="1,000 sites beside the rasters of the same days [FOLDER --rounds 3]",
        modules=("bench.sites",),
    ),
    "warm": Measurement(
        what="attempts of all kinds in one warm child: equal bytes, memory [--attempts 2000]",
        modules=("bench.warm_child",),
    ),
    "package": Measurement(
        what="what a package of 150 MB costs a run", modules=("bench.package_cost",)
    ),
    "pages": Measurement(
        what="the portal's pages at 1,000 requests: CPU and bytes sent", modules=("bench.pages",)
    ),
    "portal": Measurement(
        what="1,000 open pages and 200 API calls a second beside workers at work",
        modules=("bench.portal",),
    ),
    "views": Measurement(
        what="tiles of a map before a request, rio-tiler beside them [--tiles 40 --rounds 3]",
        modules=("bench.views",),
    ),
    "maps": Measurement(
        what="tiles over HTTP: 50 a second, of swaths, cold over a slow link; titiler beside them "
        "[--rate 50 --only cold --titiler PYTHON]",
        modules=("bench.map_server",),
    ),
    "paint": Measurement(
        what="when pages show their main content beside workers at work (needs chromium)",
        modules=("bench.portal.paint",),
    ),
    "platform": Measurement(
        what="what storage, queues, network and machines can do [measure, merge, answer]",
        modules=("bench.platform",),
    ),
    "transfer": Measurement(
        what="transfers against the SDK's defaults [--study --plot docs/transfers.svg]",
        modules=("bench.transfer",),
    ),
}


def _become(command: list[str]) -> NoReturn:
    """Run a program in place of this one: a signal to end is its own, and it may take its time."""
    os.execv(command[0], command)


def main(words: list[str]) -> int:
    """Run the measurement that the first word names with the others; without one, list all."""
    name, *arguments = words or [""]
    if name not in MEASUREMENTS:
        if name:
            print(f"There is no measurement {name}.", file=sys.stderr)
        for known, one in MEASUREMENTS.items():
            print(f"make bench ONLY={known:10} {one.what}")
        return 2 if name else 0
    *before, last = ([sys.executable, "-m", one, *arguments] for one in MEASUREMENTS[name].modules)
    for command in before:
        if code := subprocess.call(command):
            return code
    _become(last)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
