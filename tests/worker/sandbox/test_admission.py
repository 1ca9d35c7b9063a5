"""What a machine has, shared by the packages that run on it; and what a run has used."""

import multiprocessing
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess as Process
from pathlib import Path
from socket import gethostname

import pytest

from tasks.bag.model import RunUse
from tasks.packages.packages import SHIPPED, pack
from tests.worker.mill import Mill
from tests.worker.sandbox.test_shipped import group, reduction
from tests.worker.test_packages import make
from worker.sandbox import admission
from worker.sandbox.admission import NoRoomError, Share, admitted, machine_memory
from worker.sandbox.messages import Succeeded

pytestmark = pytest.mark.slow

ALL = len(os.sched_getaffinity(0))


def hold(folder: Path, wanted: int, pipe: Connection) -> None:
    with admitted(folder, Share(cores=wanted), folder, 30) as own:
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
    with admitted(tmp_path, Share(cores=200), tmp_path) as own:
        assert len(own) == ALL


def hold_share(folder: Path, share: Share, pipe: Connection) -> None:
    with admitted(folder, share, folder, 30):
        pipe.send("admitted")
        pipe.recv()


@contextmanager
def beside(folder: Path, share: Share) -> Iterator[Process]:
    """Another run on the machine, in a process of its own."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=hold_share, args=(folder, share, there))
    process.start()
    try:
        assert here.poll(30)
        yield process
    finally:
        process.kill()
        process.join(30)


def memory(share: float) -> Share:
    return Share(cores=0, memory=int(share * machine_memory()))


def disk(folder: Path, share: float) -> Share:
    return Share(cores=0, disk=int(share * shutil.disk_usage(folder).free))


def test_runs_share_the_memory_of_the_machine(tmp_path: Path) -> None:
    with beside(tmp_path, memory(0.6)):
        with admitted(tmp_path, memory(0.2), tmp_path):
            pass
        with (
            pytest.raises(NoRoomError, match=r"no room: it waited for .* GB of memory"),
            admitted(tmp_path, memory(0.4), tmp_path, 0),
        ):
            pass
    with admitted(tmp_path, memory(0.4), tmp_path, 0):
        assert len(list((tmp_path / "runs").iterdir())) == 1


def test_runs_share_the_disk(tmp_path: Path) -> None:
    with beside(tmp_path, disk(tmp_path, 0.6)):
        with admitted(tmp_path, disk(tmp_path, 0.1), tmp_path):
            pass
        with pytest.raises(NoRoomError), admitted(tmp_path, disk(tmp_path, 0.6), tmp_path, 0):
            pass


def test_runs_that_declare_no_disk_fit_beside_each_other_on_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every processor one, although each has written what was kept for it."""
    processors = 6
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))

    def free(_: Path) -> int:
        written = (int(path.read_text().split()[1]) for path in (tmp_path / "runs").iterdir())
        return 2**30 - sum(written)

    monkeypatch.setattr(admission, "_free", free)
    with ExitStack() as held:
        for _ in range(processors):
            default = Share(cores=1, disk=8 * 10**9, disk_declared=False)
            held.enter_context(beside(tmp_path, default))
        assert 0 < free(tmp_path) < 0.7 * 2**30


def test_on_a_large_disk_the_default_is_kept_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_free", lambda _: 10**15)
    with beside(tmp_path, Share(cores=1, disk=8 * 10**9, disk_declared=False)):
        (run,) = (tmp_path / "runs").iterdir()
        assert run.read_text().split() == ["0", str(8 * 10**9)]


def test_a_run_that_is_alone_starts_with_all_there_is(tmp_path: Path) -> None:
    with admitted(tmp_path, Share(cores=1, memory=10**18, disk=10**18), tmp_path, 0):
        pass


def test_what_a_killed_run_had_is_free(tmp_path: Path) -> None:
    with beside(tmp_path, memory(0.6)) as process:
        process.kill()
        process.join(30)
        with admitted(tmp_path, memory(0.6), tmp_path, 30):
            pass


def test_a_run_that_waits_keeps_nothing_from_others(tmp_path: Path) -> None:
    """It has given back its processors and its turn when it gives up."""
    with beside(tmp_path, memory(0.6)):
        wanted = replace(memory(0.6), cores=ALL)
        with pytest.raises(NoRoomError), admitted(tmp_path, wanted, tmp_path, 0):
            pass
        with admitted(tmp_path, Share(cores=ALL), tmp_path, 0) as own:
            assert len(own) == ALL


@pytest.mark.parametrize("resource", ["memory_gb", "output_gb"])
def test_a_package_waits_for_what_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    """And a shipped one does not."""
    monkeypatch.setattr(admission, "LONGEST_WAIT", 0.0)
    own = make(
        tmp_path / "own",
        "name: own\ncommand: [python, run.py]\noutputs: [said.txt]\n"
        f"resources: {{memory_gb: 0.5, output_gb: 0.5, {resource}: 1000}}\n",
    )
    (own / "run.py").write_text("import sys; open(sys.argv[2] + '/said.txt', 'w').write('x')\n")
    mill = Mill(tmp_path, tmp_path)
    mill.settings = mill.settings.model_copy(
        update={"attempt_memory_gb": 1000.0, "attempt_disk_gb": 1000.0}
    )
    archive = pack(own)
    mill.world.put_package(archive)
    given = group(mill)
    spec = reduction(given, archive.digest).model_copy(update={"outputs": ("said.txt",)})
    folder = tmp_path / "processors" / gethostname()
    with beside(folder, Share(cores=0, memory=1, disk=1)), pytest.raises(NoRoomError):
        mill.attempt(spec)
    with beside(folder, Share(cores=0, memory=10**18, disk=10**18)):
        shipped = mill.attempt(reduction(given, pack(SHIPPED / "mean").digest))
        assert isinstance(shipped, Succeeded), shipped


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
    assert used.tier == tier


def test_a_shipped_package_is_counted_alike(tmp_path: Path) -> None:
    mill = Mill(tmp_path, tmp_path)
    said = mill.attempt(reduction(group(mill), pack(SHIPPED / "mean").digest))
    assert isinstance(said, Succeeded)
    assert said.used is not None
    assert (said.used.cores, said.used.written > 0) == (1, True)
    assert said.used.tier == "none"
