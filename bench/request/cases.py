"""The four requests, each with its archive and the script that does the same work."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.request import granules
from tasks.request.document import Request, parse_request
from tasks.request.request_file import load_request

SCRIPTS = Path(__file__).parent / "scripts"
_ROOT = Path(__file__).parents[2]
_WARM_UP = {"start": "2011-06-02", "end": "2011-06-02"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request, and the script beside it.

    `archive` fills a folder; it is given the folder of real granules, if there is one. `warm_up` is
    a request of the same kind over other granules. `results` is the number of rasters. Stored
    values of the script's rasters above `largest` are codes. `side` is that of a tile in pixels, or
    0 for swaths.
    """

    name: str
    title: str
    request: Request
    warm_up: Request
    archive: str
    make_archive: Callable[[Path, Path | None], None]
    script: str
    results: int
    largest: float
    side: int

    def script_command(self, archive: Path, out: Path, level: int, cores: int) -> list[str]:
        """Return the words that run the script."""
        program = sys.executable if self.script.endswith(".py") else "sh"
        return [program, str(SCRIPTS / self.script), str(archive), str(out), str(level), str(cores)]


def on_a_new_grid(request: Request, number: int) -> Request:
    """Return the request on another grid, so that nothing of it is made yet."""
    document = request.model_dump(mode="json", exclude_defaults=True)
    grid = {"crs": "EPSG:4326", "resolution": round(0.01 + 0.00001 * number, 6)}
    return parse_request({**document, "grid": grid})


def cases() -> Mapping[str, Case]:
    """Return the cases by name."""
    q1 = _case(
        "Q1",
        "leaf area: 16 dates of 2 tiles, 2 layers, 8 monthly means",
        load_request(_ROOT / "examples" / "leaf-area.yaml"),
        granules.leaf_area,
        ("leaf_area", "leaf_area.sh", 40, 100, 1200),
    )
    q2 = _case(
        "Q2",
        "reflectance: 8 dates of 4 tiles, 7 layers of 2400 x 2400",
        _request(
            {
                "name": "MOD09A1",
                "collection": "6.1",
                "layers": [f"sur_refl_b0{n}" for n in range(1, 8)],
            },
            [-69.9975, -9.999, -50.805, 9.999],
            ("2012-01-01", "2012-02-29"),
            0.0045,
        ),
        granules.reflectance,
        ("reflectance", "reflectance.sh", 56, 16000, 2400),
    )
    q3 = _case(
        "Q3",
        "swaths: 48 granules of 5 km onto half a continent, daily",
        _request(
            {"name": "MYD07_L2", "collection": "6.1", "layers": ["Total_Ozone"]},
            [-10.0, 0.0, 40.0, 35.0],
            ("2012-01-01", "2012-01-08"),
            0.05,
        ),
        granules.swaths,
        ("swaths", "swaths.py", 8, 5000, 0),
    )
    q4 = _case(
        "Q4",
        "the smallest: one layer of one tile on one date",
        _request(
            {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]},
            [0.5, 51.0, 12.0, 59.0],
            ("2012-01-01", "2012-01-01"),
            0.01,
        ),
        granules.leaf_area,
        ("leaf_area", "smallest.sh", 1, 100, 1200),
    )
    return {one.name: one for one in (q1, q2, q3, q4)}


def _case(
    name: str,
    title: str,
    request: Request,
    make_archive: Callable[[Path, Path | None], None],
    rest: tuple[str, str, int, float, int],
) -> Case:
    archive, script, results, largest, side = rest
    document = request.model_dump(mode="json", exclude_defaults=True)
    return Case(
        name=name,
        title=title,
        request=request,
        warm_up=parse_request({**document, "title": "warm-up", "time": _WARM_UP}),
        archive=archive,
        make_archive=make_archive,
        script=script,
        results=results,
        largest=largest,
        side=side,
    )


def _request(
    product: Mapping[str, object], bbox: list[float], days: tuple[str, str], resolution: float
) -> Request:
    return parse_request(
        {
            "products": [product],
            "region": {"bbox": bbox},
            "time": {"start": days[0], "end": days[1]},
            "grid": {"crs": "EPSG:4326", "resolution": resolution},
            "resampling": "nearest",
        }
    )
