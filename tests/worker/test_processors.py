"""Processors of a machine, shared by the packages that run on it; and what a run has used."""

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tasks.model.model import RunUse
from tasks.model.packages import SHIPPED, pack
from tests.worker.mill import Mill
from tests.worker.test_packages import make
from tests.worker.test_shipped import group, reduction
from worker.sandbox.messages import Succeeded
from worker.sandbox.processors import processors

ALL = len(os.sched_getaffinity(0))


def hold(folder: Path, wanted: int, pipe: Connection) -> None:
    with processors(folder, wanted) as own:
        pipe.send(own)
        pipe.recv()


def test_two_runs_have_different_processors_and_a_third_waits(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    held, pipes = [], []
    for _ in range(ALL):
        here, there = context.Pipe()
        process = context.Process(target=hold, args=(tmp_path, 1, there))
        process.start()
        pipes.append((here, process))
        assert here.poll(30)
        held += here.recv()
    assert sorted(held) == sorted(os.sched_getaffinity(0))
    here, there = context.Pipe()
    waiting = context.Process(target=hold, args=(tmp_path, 1, there))
    waiting.start()
    assert not here.poll(0.3)
    pipes[0][0].send("end")
    assert here.poll(30)
    assert here.recv() == (held[0],)
    for pipe, process in [(here, waiting), *pipes[1:]]:
        pipe.send("end")
        process.join(30)
    pipes[0][1].join(30)


def test_more_than_the_machine_has_is_all_of_it(tmp_path: Path) -> None:
    with processors(tmp_path, 200) as own:
        assert len(own) == ALL


@pytest.mark.parametrize("tier", ["bubblewrap", "limits"])
def test_a_run_has_its_cores_and_its_parameters(tmp_path: Path, tier: str) -> None:
    own = make(
        tmp_path / "own",
        "name: own\ncommand: [python, run.py]\noutputs: [said.txt]\n"
        "resources: {cores: 1, memory_gb: 0.5, timeout_seconds: 60, output_gb: 0.25}\n",
    )
    (own / "run.py").write_text(
        "import os, sys\n"
        "said = [len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'],"
        " os.environ['PARAMETER_LEAST_SHARE']]\n"
        "sum(range(3 * 10**6))\n"
        "open(sys.argv[2] + '/said.txt', 'w').write(repr(said))\n"
    )
    mill = Mill(tmp_path, tmp_path, sandbox=tier)  # type: ignore[arg-type]
    archive = pack(own)
    mill.world.put_package(archive)
    spec = reduction(group(mill), archive.digest).model_copy(
        update={"outputs": ("said.txt",), "parameters": {"least-share": "0.5"}}
    )
    said = mill.attempt(spec)
    assert isinstance(said, Succeeded), said
    assert mill.fetch(said.files[0]).read_text() == repr([1, "1", "0.5"])
    used = said.used
    assert isinstance(used, RunUse)
    assert used.cpu_seconds > 0.01
    assert used.written == len(repr([1, "1", "0.5"]))
    assert (used.cores, used.most_seconds, used.most_memory) == (1, 60.0, 500_000_000)


def test_a_shipped_package_is_counted_alike(tmp_path: Path) -> None:
    mill = Mill(tmp_path, tmp_path)
    said = mill.attempt(reduction(group(mill), pack(SHIPPED / "mean").digest))
    assert isinstance(said, Succeeded)
    assert said.used is not None
    assert (said.used.cores, said.used.written > 0) == (1, True)
