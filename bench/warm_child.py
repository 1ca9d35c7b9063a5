"""Attempts of all kinds in one warm child: equal bytes, memory, time.

    python -m bench.warm_child [--attempts N]

The sample archive is collected, reprojected, joined, stacked and reduced over and over in one child
under its guard, against Azurite. The first round also runs each job in a child of its own: the
outputs must have equal bytes. The child's memory after the last attempt must be within a tenth of
that after 50, and no attempt may end the child. The results go to bench/out/warm_child.json; a
failed check is exit code 1.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path

from modis.composites import Counted
from processes import proctree
from reprojection.grid.grids import Lattice
from reprojection.sample.sample import write_sample_archive
from swathmill.stack.azurite import Account, AzuriteServer
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import (
    CollectSpec,
    CubeSpec,
    GridSpec,
    GroupSpec,
    Input,
    MosaicSpec,
    ReduceSpec,
    ReprojectSpec,
)
from tasks.packages.packages import SHIPPED, PackageArchive, pack
from tasks.service.connect import connect
from tasks.settings import Settings
from tasks.spec_parts import Band
from tasks.storage.blobs import PACKAGES
from worker.sandbox import sandbox
from worker.sandbox.children import Children, start_forkserver
from worker.sandbox.makers import reading_tier
from worker.sandbox.messages import ChildSettings, Job, Message, Succeeded
from worker.slots import attempt

_GB = 10**9
OUT = Path(__file__).parent / "out"
WARM = 50  # attempts after which memory is taken as what the child needs
MOST_GROWTH = 0.1
TILE, SWATH = "Lai_1km", "Optical_Depth_Land_And_Ocean"
GRID = Lattice(crs="EPSG:4326", resolution=0.02).snap((-2.0, 52.0, 6.0, 57.0))
CELL = GridSpec(crs=GRID.crs, transform=GRID.transform, width=GRID.width, height=GRID.height)


@dataclass(kw_only=True)
class Jobs:
    """Jobs of all kinds, in an order in which inputs come first; `files` are those made so far."""

    folder: Path
    names: list[str]
    packages: dict[str, PackageArchive]
    files: dict[str, tuple[ArtifactFile, ...]] = field(default_factory=dict)
    count: int = 0

    def job(self, spec: Spec) -> Job:
        """Make the job of one more attempt."""
        self.count += 1
        scratch = self.folder / "scratch" / f"{self.count:06}"
        scratch.mkdir(parents=True)
        inputs = {}
        for index, given in enumerate(spec.inputs):
            found = self.files[given.key]
            inputs[index] = tuple(one for one in found if given.file in ("", one.name))
        return Job(
            key=spec.key, claim=f"claim-{self.count:06}", spec=spec, inputs=inputs, scratch=scratch
        )

    def specs(self) -> Iterator[tuple[str, Spec]]:
        """Yield each specification with its kind."""
        collected: dict[tuple[str, str], list[CollectSpec]] = {}
        for name in self.names:
            product, acquired, *_, collection, produced, _ = name.split(".")
            spec = CollectSpec(
                product=product,
                collection=collection.lstrip("0"),
                granule=name,
                production=produced,
                source="folder",
                url=name,
                size=(self.folder / "archive" / name).stat().st_size,
            )
            collected.setdefault((product, acquired), []).append(spec)
            yield "collect", spec
        cells: dict[str, list[tuple[date, ReprojectSpec]]] = {TILE: [], SWATH: []}
        for (product, acquired), granules in collected.items():
            layer = TILE if product == "MCD15A2" else SWATH
            day = date.fromordinal(
                date(int(acquired[1:5]), 1, 1).toordinal() + int(acquired[5:]) - 1
            )
            cell = ReprojectSpec(
                inputs=tuple(Input(key=one.key, name=one.granule) for one in granules),
                product=product,
                collection=granules[0].collection,
                layer=layer,
                day=day,
                grid=CELL,
                resampling="default",
            )
            cells[layer].append((day, cell))
            yield f"reproject {layer}", cell
        for layer, made in cells.items():
            for day, cell in made:
                given = (Input(key=cell.key, file="cell.tif"),)
                yield "mosaic", MosaicSpec(inputs=given, name=f"{layer}.{day}", grid=CELL)
            yield from self._over_time(layer, made)

    def _over_time(
        self, layer: str, made: list[tuple[date, ReprojectSpec]]
    ) -> Iterator[tuple[str, Spec]]:
        inputs = tuple(Input(key=cell.key, file="cell.tif") for _, cell in made)
        days = tuple(day for day, _ in made)
        yield (
            "cube netcdf",
            CubeSpec(inputs=inputs, name=layer, form="netcdf", grid=CELL, days=days),
        )
        yield "cube zarr", CubeSpec(inputs=inputs, name=layer, form="zarr", grid=CELL, days=days)
        bands = tuple(
            Band(
                product=cell.product,
                collection=cell.collection,
                layer=layer,
                day=day,
                cell="c",
                counted=Counted(),
            )
            for day, cell in made
        )
        group = GroupSpec(
            inputs=tuple(Input(key=cell.key) for _, cell in made),
            group=f"c {layer}",
            cell="c",
            window="all",
            grid=CELL,
            bands=bands,
        )
        yield "group", group
        for name, archive in self.packages.items():
            yield (
                f"reduce {name}",
                ReduceSpec(
                    inputs=(Input(key=group.key),),
                    package=name,
                    digest=archive.digest,
                    outputs=(f"{layer}_mean.tif",),
                ),
            )


@dataclass(kw_only=True)
class Measured:
    """What the attempts of one kind took, in seconds."""

    warm: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)


def run(children: Children, job: Job) -> tuple[Succeeded, float, bool]:
    """Run a job; return its report, its seconds, and whether the child was kept."""
    said: list[Message] = []
    begun = time.perf_counter()
    ended = children.start(job).follow(said.append)
    seconds = time.perf_counter() - begun
    if ended is None or not said or not isinstance(said[-1], Succeeded):
        raise RuntimeError(f"{job.spec.kind} failed: {said[-1:]} {ended}")
    return said[-1], seconds, ended.kept


def measure(folder: Path, settings: Settings, attempts: int) -> tuple[dict[str, object], bool]:
    """Run the attempts; return what was measured, and whether it is as it must be."""
    given = ChildSettings(
        settings=settings,
        cache=folder / "cache",
        sandbox=sandbox.report(settings).tier,
        reading=reading_tier(),
    )
    homes = folder / "scratch"
    memory_limit = int(settings.attempt_memory_gb * _GB)
    children = Children(partial(attempt.prepare, given), memory_limit, 1, homes)
    names = [path.name for path in sorted((folder / "archive").glob("*.hdf"))]
    jobs = Jobs(folder=folder, names=[*names[:6], *names[-4:]], packages=packages(folder))
    blobs = connect(settings).blobs
    for archive in jobs.packages.values():
        blobs.put_bytes(PACKAGES, archive.blob, archive.data)
    times: dict[str, Measured] = {}
    memory: dict[int, int] = {}
    differ: list[str] = []
    replaced = served = 0
    try:
        while served < attempts:
            for kind, spec in islice(jobs.specs(), attempts - served):
                here = times.setdefault(kind, Measured())
                made, seconds, kept = run(children, jobs.job(spec))
                here.warm.append(seconds)
                served += 1
                replaced += not kept
                if served % WARM == 0 or served == attempts:
                    memory[served] = child_memory()
                    sys.stderr.write(f"{served} attempts: {memory[served] / 1e6:.1f} MB\n")
                if spec.key not in jobs.files:
                    other, seconds = in_fresh_child(given, jobs.job(spec))
                    here.fresh.append(seconds)
                    jobs.files[spec.key] = other.files
                if digests(made.files) != digests(jobs.files[spec.key]):
                    differ.append(f"{kind}: {spec.key}")
    finally:
        children.close()
    growth = memory[served] / memory[WARM] - 1 if served > WARM else 0.0
    found: dict[str, object] = {
        "attempts": served,
        "children replaced": replaced,
        "outputs that differ from a fresh child's": differ,
        "memory of the child in MB, by attempts": {n: round(m / 1e6, 1) for n, m in memory.items()},
        "growth": round(growth, 3),
        "median ms of an attempt": {
            kind: {"warm": median_ms(here.warm), "fresh": median_ms(here.fresh)}
            for kind, here in times.items()
        },
    }
    return found, not differ and not replaced and growth <= MOST_GROWTH


def digests(files: tuple[ArtifactFile, ...]) -> list[tuple[str, str]]:
    """Name and SHA-256 of each file."""
    return [(file.name, file.sha256) for file in files]


def median_ms(seconds: list[float]) -> float:
    """Return the median in milliseconds."""
    return round(1000 * statistics.median(seconds), 1)


def in_fresh_child(given: ChildSettings, job: Job) -> tuple[Succeeded, float]:
    """Run a job in a child of its own; its cache is the same."""
    children = Children(
        partial(attempt.prepare, given),
        int(given.settings.attempt_memory_gb * _GB),
        0,
        job.scratch.parent,
    )
    made, seconds, _ = run(children, job)
    return made, seconds


def packages(folder: Path) -> dict[str, PackageArchive]:
    """Pack the shipped packages, and one of the same name as a shipped one with other content."""
    found = {path.name: pack(path) for path in sorted(SHIPPED.iterdir()) if path.is_dir()}
    foreign = folder / "packages" / "mean"
    foreign.mkdir(parents=True)
    for path in (SHIPPED / "mean").iterdir():
        if path.is_file():
            (foreign / path.name).write_bytes(path.read_bytes() + b"\n# changed\n")
    return {**found, "mean, changed": pack(foreign)}


def child_memory() -> int:
    """Return the memory of the one child that lives, and of its maker, in bytes."""
    tree = proctree.descendants(os.getpid())
    last = [pid for pid in tree if not proctree.children(pid) and is_forked(pid)]
    return sum(map(proctree.memory, last))


def is_forked(pid: int) -> bool:
    """Tell whether a process comes from the forkserver."""
    return Path(f"/proc/{pid}/comm").read_text() == "forkserver\n"


def main() -> int:
    """Measure and print; return 1 if bytes differ or memory grows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attempts", type=int, default=2000)
    asked = parser.parse_args()
    start_forkserver()
    with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as name:
        folder = Path(name)
        write_sample_archive(folder / "archive")
        server = AzuriteServer.on_free_ports(
            folder=folder / "azurite", log=folder / "azurite.log", account=Account.new()
        )
        storage = server.start()
        settings = Settings(
            storage=server.connection_string,
            redis_url="redis://127.0.0.1:1",  # nothing here calls it
            data_dir=folder / "data",
            archive=str(folder / "archive"),
        )
        try:
            found, right = measure(folder, settings, asked.attempts)
        finally:
            storage.stop()
    OUT.mkdir(exist_ok=True)
    text = json.dumps(found, indent=1)
    (OUT / "warm_child.json").write_text(text + "\n")
    sys.stdout.write(text + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
