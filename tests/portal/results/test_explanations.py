"""Pixels that are explained on the map, at the bounds of what is read for one."""

from unittest.mock import Mock

import pytest

from portal.results import explanations
from portal.results.explanations import Explainer, NotExplainedError, StoredGranule, granules_of
from portal.results.result_files import ResultFile
from reprojection.errors import GridError
from tasks.bag import task_table, transitions
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Interest
from tasks.service.memory_runtime import memory_runtime

GRID = GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8)


def stored(runtime: Runtime, spec: Spec) -> Input:
    """Put the task of a specification into the store; return it as an input of others."""
    interest = Interest(request="r", key=spec.key, phase=spec.phase, name="")
    change = transitions.create(spec, interest, 0)
    runtime.store.transact(task_table.TABLE, shard(spec.key), change.operations)
    return Input(key=spec.key)


def mosaic(runtime: Runtime, *inputs: Input) -> Input:
    return stored(runtime, MosaicSpec(name="a", grid=GRID, inputs=inputs))


def granules(runtime: Runtime, count: int) -> list[Input]:
    return [
        stored(
            runtime,
            CollectSpec(product="P", collection="1", granule=f"g{number}", production="2012"),
        )
        for number in range(count)
    ]


def test_a_raster_of_so_many_tasks_is_explained_and_of_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With its own, also where the last look brings them."""
    monkeypatch.setattr(explanations, "_MOST_TASKS", 4)
    runtime = memory_runtime()
    there = granules(runtime, 4)
    few = mosaic(runtime, *there[:3])
    assert [one.name for one in granules_of(runtime, few.key)] == ["g2", "g1", "g0"]
    for many in (mosaic(runtime, *there), mosaic(runtime, few)):
        with pytest.raises(NotExplainedError, match="made of few granules"):
            [*granules_of(runtime, many.key)]


@pytest.mark.parametrize(("size", "words"), [(6, "is not explained: read"), (7, "too much for a")])
def test_so_many_bytes_are_read_for_a_pixel(
    monkeypatch: pytest.MonkeyPatch, size: int, words: str
) -> None:
    monkeypatch.setattr(explanations, "MOST_BYTES", 10)

    def file(size: int) -> ArtifactFile:
        return ArtifactFile(name="a", blob="b/c", size=size, sha256="")

    granule = StoredGranule(key="k", name="g", file=file(4))
    monkeypatch.setattr(explanations, "granules_of", lambda *_: [granule])
    monkeypatch.setattr(explanations, "_fetch", lambda *_: True)
    explainer, reader = Explainer(), Mock(**{"whole.return_value": []})
    monkeypatch.setattr(explainer, "_reading", Mock(**{"run.side_effect": GridError("read")}))
    result = ResultFile(path="a", file=file(size), key="k")
    with pytest.raises(NotExplainedError, match=words):
        explainer.explain(memory_runtime(), reader, result, 0.0, 0.0)


@pytest.mark.parametrize(
    ("lost", "words"), [("a b c", ": a, b, c; "), ("a b c d e", ": a, b, c and 2 more; ")]
)
def test_the_first_that_are_lost_are_named(lost: str, words: str) -> None:
    assert explanations._MOST_NAMED == 3
    assert words in explanations._no_longer_stored(lost.split())
