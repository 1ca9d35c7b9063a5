"""Every option of a request works with every other, from planning to files, or is refused at once.

The real planner and the real phases, in this process, on tiny granules of tiles and swaths.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from rasterio.env import Env

from archives.kinds.folder import FolderArchive
from archives.model import Archive
from reprojection.read.outline import read_outlines
from reprojection.read.raster import Raster
from reprojection.resampling import METHODS
from reprojection.write.write import read_raster
from swathmill.commands.remake.making import remake
from tasks.bag.categories import RULES, Category, Retry
from tasks.bag.kinds import Spec
from tasks.bag.spec import CubeSpec, GroupSpec, MosaicSpec, RasterSpec, ReduceSpec, ReprojectSpec
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages, layer_labels
from tasks.request.document import UNPLANNED, ProductChoice, Request, parse_request
from tasks.requests.plan import Plan, PlannedTask
from tests.options import results
from tests.options.crossing import FACTORS, cases, document, is_refused
from tests.options.granules import write_granules
from tests.service_manager.shelf import plan
from tests.small_cells import with_small_cells
from tests.worker.mill import Mill
from worker.sandbox.messages import Failed, Succeeded

pytestmark = pytest.mark.slow

CASES = cases()
CELL_SIZE = 32
OWN_PACKAGES = Path(__file__).parent / "packages"


class Works:
    """An archive, and a mill that makes each task once, whoever asks."""

    def __init__(self, folder: Path) -> None:
        granules = folder / "granules"
        granules.mkdir()
        write_granules(granules)
        self.mill = Mill(folder, granules)
        changes = {"packages": str(OWN_PACKAGES)}
        self.mill.settings = self.mill.settings.model_copy(update=changes)
        self.packages = Packages.of(self.mill.settings)
        index = folder / "index.sqlite"
        archive = FolderArchive(granules, index, read_outlines)
        archive.refresh()
        self.archive: Archive = archive
        self._made: dict[str, dict[str, Path]] = {}
        self._packages: set[str] = set()

    def plan(self, request: Request) -> Plan:
        return plan(request, self.archive, self.packages, self.mill.settings)

    def make(self, task: PlannedTask) -> dict[str, Path]:
        """The files of a task's artifact by name; a task that fails fails the test."""
        if task.key not in self._made:
            if not all(self._made[given.key] for given in task.spec.inputs):
                self._made[task.key] = {}  # a cube of rasters that could not be
                return {}
            said = self.mill.attempt(task.spec)
            if _is_mean_of_classes(task.spec, said):
                self._made[task.key] = {}
                return {}
            assert isinstance(said, Succeeded), (task.spec.kind, said)
            self._made[task.key] = {file.name: self.mill.fetch(file) for file in said.files}
        return self._made[task.key]

    def put(self, found: Plan) -> None:
        """Bring a plan's package into storage."""
        for archive in found.archives:
            if archive.digest not in self._packages:
                self.mill.world.put_package(archive)
                self._packages.add(archive.digest)


def _is_mean_of_classes(spec: Spec, said: Succeeded | Failed) -> bool:
    """What planning cannot know of a product outside the catalogue ends in a category of its own,
    after one attempt."""
    return (
        isinstance(spec, MosaicSpec | CubeSpec)
        and "Depth_Quality" in spec.name
        and isinstance(said, Failed)
        and said.category is Category.CHOICE_REFUSED
        and RULES[said.category].retry is Retry.NEVER
    )


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Works]:
    with Env(GDAL_NUM_THREADS="1"), pytest.MonkeyPatch.context() as patch:
        # The regions are some thirty pixels wide; so most have several cells, and some only one.
        with_small_cells(patch, CELL_SIZE)
        yield Works(tmp_path_factory.mktemp("works"))


def test_every_field_of_a_request_is_crossed() -> None:
    # What is delivered is planned only, and so is which dates a window takes and what becomes of
    # overpasses: tests/service_manager/planner/test_planner_joins.py, test_planner_overpasses.py.
    # Records stand for products before anything is planned: tests/tasks/request/records.
    # Measurements change no raster: tests/acceptance/test_measured_sites.py.
    fields = {*Request.model_fields} - UNPLANNED - {"deliver", "region", "grid", "steps"}
    fields -= {"measurements"}
    assert {*FACTORS} - {"day_night", "place", "reduction"} == fields
    choices = {*ProductChoice.model_fields} - {"name", "collection", "layers"}
    assert choices == {
        *("day_night", "overpasses", "use", "look_back", "look_ahead"),
        *("prefer", "overlap", "near_real_time"),
    }
    assert {case["resampling"] for case in CASES} == {None, "by layer", *METHODS}


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[pytest.mark.proof] if number % 16 else [])
        for number in range(len(CASES))
    ],
)
def test_results_of_options_together(works: Works, number: int) -> None:
    request = parse_request(document(CASES[number]))
    found = works.plan(request)
    works.put(found)
    made = {task.key: works.make(task) for task in found.tasks}
    _check_layers(request, found, made)
    _check_reductions(request, found, made)
    _check_cubes(request, found, made)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[pytest.mark.proof] if number % 16 else [])
        for number in range(len(CASES))
    ],
)
def test_results_are_made_again_from_themselves(works: Works, number: int) -> None:
    """One raster of each layer and output, and one cell: equal bytes, by its own lineage."""
    found = works.plan(parse_request(document(CASES[number])))
    works.put(found)
    made = {task.key: works.make(task) for task in found.tasks}
    chosen: dict[str, Path] = {}
    for task in found.tasks:
        for name, path in made[task.key].items():
            if isinstance(task.spec, MosaicSpec | RasterSpec) and name.endswith(".tif"):
                chosen[task.spec.name.rpartition(".")[0]] = path
            if isinstance(task.spec, ReprojectSpec | ReduceSpec) and name.endswith(".tif"):
                chosen[task.spec.kind] = path
    assert chosen
    for what, path in chosen.items():
        again = remake(path, [works.mill.archive], [OWN_PACKAGES])
        assert again.equal, (what, again.differences)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"qa": "good", "mask": False}, "qa"),
    ({"qa": "best", "products": "unknown"}, "qa"),
    ({"day_night": "night", "products": "swaths"}, "products.0.day_night"),
    ({"day_night": "night", "products": "tiles"}, "products.0.day_night"),
    ({"products": "quality", "reduction": ("mean", "month")}, "reduction.package"),
    ({"products": "quality", "resampling": "by layer"}, "resampling.FparLai_QC"),
]


@pytest.mark.parametrize(("changes", "field"), REFUSED)
def test_what_cannot_work_is_refused_by_its_field(
    works: Works, changes: dict[str, Any], field: str
) -> None:
    plain = {name: values[0] for name, values in FACTORS.items()}
    case = {**plain, **changes}
    assert is_refused(case)
    with pytest.raises(RequestRefusedError) as refused:
        works.plan(parse_request(document(case)))
    assert refused.value.field == field
    assert refused.value.problem
    assert refused.value.remedy


def _is_layer_raster(spec: Spec, cells: Collection[str]) -> TypeGuard[MosaicSpec | RasterSpec]:
    """Tell whether a task makes the raster of a layer: of these cells, or at once."""
    if isinstance(spec, MosaicSpec):
        return spec.inputs[0].key in cells
    return isinstance(spec, RasterSpec)


def _check_layers(request: Request, found: Plan, made: dict[str, dict[str, Path]]) -> None:
    cells = {task.key: task.spec for task in found.tasks if isinstance(task.spec, ReprojectSpec)}
    by_day: dict[tuple[str, Any], list[Raster]] = defaultdict(list)
    some: dict[str, bool] = {}
    for task in found.tasks:
        files = made[task.key]
        if isinstance(task.spec, ReprojectSpec):
            assert bool(task.output) == request.cells
            results.check_layer(files["cell.tif"], request, clipped=False)
        if _is_layer_raster(task.spec, cells):
            raster = results.check_layer(files[f"{task.spec.name}.tif"], request)
            said = raster.provenance
            some[said.layer] = some.get(said.layer, False) or bool(raster.valid().any())
            if said.product == "MYD04_L2":
                by_day[said.product, task.spec.day].append(raster)
    assert some
    assert all(some.values()), some
    if "source" in request.extra_bands and request.merge != "mean":
        for rasters in by_day.values():
            results.check_one_granule(rasters)


def _check_reductions(request: Request, found: Plan, made: dict[str, dict[str, Path]]) -> None:
    specs = {task.key: task.spec for task in found.tasks}
    layers = _layer_rasters(found, made)
    checked = 0
    for task in found.tasks:
        if not isinstance(task.spec, MosaicSpec):
            continue
        runs = [specs[given.key] for given in task.spec.inputs]
        if not isinstance(runs[0], ReduceSpec) or not made[task.key]:
            continue
        groups = [specs[run.inputs[0].key] for run in runs]
        bands = [band for group in groups if isinstance(group, GroupSpec) for band in group.bands]
        labels = layer_labels(bands, short=False)
        label = task.spec.inputs[0].file.rpartition("_")[0]
        wanted = {
            (band.day, band.layer.removesuffix(f".{request.products[0].day_night}"))
            for band in bands
            if labels[band.product, band.collection, band.layer] == label
        }
        days = [layers[layer, day] for day, layer in sorted(wanted)]
        path = made[task.key][f"{task.spec.name}.tif"]
        if runs[0].package == "last":
            results.check_last(path, days)
            assert "table.csv" in made[task.spec.inputs[0].key]
        else:
            results.check_mean(path, days)
        checked += 1
    assert (checked > 0) == bool(request.steps)


def _layer_rasters(found: Plan, made: dict[str, dict[str, Path]]) -> dict[tuple[str, Any], Raster]:
    cells = {task.key for task in found.tasks if isinstance(task.spec, ReprojectSpec)}
    rasters = {}
    for task in found.tasks:
        if _is_layer_raster(task.spec, cells):
            raster = read_raster(made[task.key][f"{task.spec.name}.tif"])
            rasters[raster.provenance.layer, task.spec.day] = raster
    return rasters


def _check_cubes(request: Request, found: Plan, made: dict[str, dict[str, Path]]) -> None:
    cubes = [(task.key, task.spec) for task in found.tasks if isinstance(task.spec, CubeSpec)]
    assert bool(cubes) == (request.cube != "none")
    for key, spec in cubes:
        if not made[key]:
            continue
        (path,) = made[key].values()
        rasters = [made[given.key][given.file] for given in spec.inputs]
        results.check_cube(path, spec.form, rasters)
