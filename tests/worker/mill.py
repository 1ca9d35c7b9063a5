"""A mill that runs tasks on real granules by the child's own code, and tasks for it."""

from dataclasses import replace
from datetime import date
from pathlib import Path

from modis.granule_name import parse_granule_name
from reprojection.grid.grids import modis_tile_grid
from tasks.bag import protocol, transitions
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile
from tasks.bag.protocol import Claimed
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, GridSpec, Input, ReprojectSpec
from tasks.bag.transitions import RetryPolicy
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.blobs import CONTAINERS, split_blob
from tasks.storage.file_blobs import FileBlobs
from tests.worker.world import World, collect_spec
from worker.sandbox.admission import NoRoomError
from worker.sandbox.messages import ChildSettings, Failed, Job, Postponed, Succeeded
from worker.sandbox.sandbox import Tier
from worker.slots.child import perform


def run_claimed(
    runtime: Runtime,
    claimed: Claimed,
    settings: Settings,
    scratch: Path,
    sandbox: Tier = "limits",
    *,
    after_crash: bool = False,
) -> Succeeded | Failed:
    """Run a claimed task by the child's own code, in this process, in a folder of its own below
    `scratch`."""
    folder = scratch / claimed.claim
    folder.mkdir(parents=True)
    job = Job(
        key=claimed.task.key,
        claim=claimed.claim,
        spec=claimed.spec,
        inputs=claimed.input_files,
        struck=claimed.task.struck,
        scratch=folder,
        after_crash=after_crash,
    )
    given = ChildSettings(
        settings=settings, cache=settings.data_dir / "cache", sandbox=sandbox, reading="none"
    )
    said = perform(job, given, lambda *_: None, lambda: runtime.blobs)
    if isinstance(said, Postponed):
        if said.tier:  # there is no other machine
            return Failed(category=Category.CHOICE_REFUSED, message=said.message)
        raise NoRoomError(said.message)
    return said


class Mill:
    """Runs tasks by the child's own code, in this process, over blobs in memory or as `files`."""

    def __init__(
        self, folder: Path, archive: Path, *, files: bool = False, sandbox: Tier = "limits"
    ) -> None:
        runtime = memory_runtime()
        if files:
            blobs = FileBlobs(folder / "blobs")
            blobs.create(CONTAINERS)
            runtime = replace(runtime, blobs=blobs)
        self.world = World(runtime=runtime)
        self.sandbox = sandbox
        self.settings = Settings(data_dir=folder, archive=str(archive), attempt_memory_gb=64)
        self.folder = folder
        self.scratch = folder / "scratch"
        self.archive = archive

    def attempt(self, spec: Spec, *, after_crash: bool = False) -> Succeeded | Failed:
        """Claim and perform, and write the end into the table."""
        return self._attempt(self.world.plan(spec), after_crash=after_crash)

    def _attempt(self, key: str, *, after_crash: bool = False) -> Succeeded | Failed:
        runtime = self.world.runtime
        claimed = protocol.claim(runtime, key, "worker", RetryPolicy())
        assert claimed is not None
        said = run_claimed(
            runtime, claimed, self.settings, self.scratch, self.sandbox, after_crash=after_crash
        )
        if isinstance(said, Succeeded):
            attempt = claimed.attempt(started=0, ended=1, duration=1)
            assert protocol.commit(runtime, attempt, said.files)
        return said

    def make_again(self, spec: Spec) -> Succeeded | Failed:
        """Make an artifact again that its readers found damaged, as the manager has it done."""
        runtime = self.world.runtime
        for file in self.world.task(spec.key).files:
            protocol.lose(runtime, spec.key, file.blob, strike=True)
        protocol.change_task(runtime, spec.key, lambda task: transitions.heal(task, 0))
        return self._attempt(spec.key)

    def make(self, spec: Spec) -> tuple[ArtifactFile, ...]:
        said = self.attempt(spec)
        assert isinstance(said, Succeeded), said
        return said.files

    def fetch(self, file: ArtifactFile) -> Path:
        to = self.folder / file.sha256
        self.world.runtime.blobs.get_file(*split_blob(file.blob), to, file.sha256)
        return to


def grid_spec() -> GridSpec:
    grid = modis_tile_grid(17, 3, 1000)
    return GridSpec(crs=grid.crs, transform=grid.transform, width=grid.width, height=grid.height)


def granule(archive: Path, pattern: str) -> Path:
    found = sorted(archive.rglob(pattern))
    assert found, pattern
    return found[0]


def leaf_area(archive: Path, day: str) -> CollectSpec:
    path = granule(archive, f"MCD15A2.A2012{day}.h17v03.005.*.hdf")
    return collect_spec(path, archive, "MCD15A2", "5")


def cell(granule: CollectSpec, layer: str, day: date) -> ReprojectSpec:
    return ReprojectSpec(
        inputs=(Input(key=granule.key, name=granule.granule),),
        product="MCD15A2",
        collection="5",
        layer=layer,
        day=day,
        grid=grid_spec(),
        resampling="nearest",
    )


def leaf_area_of_two(given: tuple[Input, ...], name: str, grid: GridSpec) -> ReprojectSpec:
    """A cell of some granules of the day of one of them."""
    parsed = parse_granule_name(name)
    assert parsed is not None
    return ReprojectSpec(
        inputs=given,
        product="MCD15A2",
        collection="5",
        layer="Lai_1km",
        day=parsed.start.date(),
        grid=grid,
        resampling="nearest",
    )
