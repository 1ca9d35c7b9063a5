"""A small world for the worker's tests: tasks by hand where the manager would write them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.bag import protocol, transitions
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile, State, Task
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, Input
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Interest
from tasks.bag.task_table import TABLE, RowKind, insert_task, kind_of
from tasks.packages.packages import PackageArchive

REQUEST = "request-1"


@dataclass(frozen=True, kw_only=True)
class World:
    """Services, and what the tests do to them."""

    runtime: Runtime

    def plan(self, spec: Spec) -> str:
        """Write a task whose inputs are all done; returns its key."""
        interest = Interest(request=REQUEST, key=spec.key, phase=spec.phase)
        change = transitions.create(spec, interest, missing=0)
        self.runtime.store.transact(TABLE, shard(spec.key), change.operations)
        return spec.key

    def task(self, key: str) -> Task:
        found = self.runtime.tasks.task(key)
        assert found is not None, key
        return found

    def done(self, spec: Spec, files: Iterable[ArtifactFile]) -> Input:
        """Write a task that is DONE with these files already."""
        interest = Interest(request=REQUEST, key=spec.key, phase=spec.phase)
        task = transitions.create(spec, interest, missing=0).task
        made = replace(task, state=State.DONE, files=tuple(files))
        change = transitions.create(spec, interest, missing=0)
        operations = [
            op for op in change.operations if kind_of(op.row) not in (RowKind.TASK, RowKind.READY)
        ]
        row = insert_task(made)
        self.runtime.store.transact(TABLE, shard(spec.key), [row, *operations])
        return Input(key=spec.key)

    def put_package(self, archive: PackageArchive) -> None:
        self.runtime.blobs.put_bytes("packages", archive.blob, archive.data)

    def wake(self, key: str) -> None:
        """End a back-off at once, as the manager does when it is over."""
        later = self.task(key).not_before
        if later:
            protocol.change_task(self.runtime, key, lambda task: transitions.wake(task, later + 1))


def collect_spec(path: Path, archive: Path, product: str, collection: str) -> CollectSpec:
    return CollectSpec(
        product=product,
        collection=collection,
        granule=path.name,
        production=path.name.split(".")[-2],
        source="folder",
        url=path.relative_to(archive).as_posix(),
        size=path.stat().st_size,
    )
