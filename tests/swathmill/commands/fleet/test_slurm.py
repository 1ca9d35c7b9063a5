"""Workers in Slurm: by imitations of its programs, which keep the jobs in a folder."""

import json
import os
import stat
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from swathmill.client import Client
from swathmill.commands.fleet import fleet
from swathmill.commands.fleet.slurm import JOB, Slurm
from swathmill.errors import ApiError, StackError

SCRIPT = Path(__file__).parents[4] / "infra" / "slurm" / "worker.sbatch"
PROGRAMS = {
    # One file for each element: its name is JOB_ELEMENT, it holds the state.
    "sbatch": """
number=$(($(cat {folder}/last) + 1)); echo $number > {folder}/last
for word; do case $word in --array=1-*) last=${{word#--array=1-}} ;; esac; done
for element in $(seq 1 $last); do echo PENDING > {folder}/jobs/${{number}}_$element; done
""",
    "squeue": """
cd {folder}/jobs; for job in $(ls | sort -t_ -k1,1n -k2,2n); do
    echo ${{job%_*}} ${{job#*_}} $(cat $job); done
""",
    "scancel": """
[ $1 = --state=PENDING ] || exit 9
shift; cd {folder}/jobs; for job; do [ "$(cat $job)" != PENDING ] || rm $job; done
""",
}


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the jobs of the Slurm on PATH."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "last").write_text("16")
    for name, body in PROGRAMS.items():
        path = tmp_path / name
        calls = f'#!/bin/sh\nset -e\necho "{name} $*" >> {tmp_path}/calls\n'
        path.write_text(calls + body.format(folder=tmp_path))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "jobs"


def test_workers_are_elements_of_arrays_and_only_those_that_wait_are_ended(jobs: Path) -> None:
    slurm = Slurm(str(SCRIPT), 4)
    assert slurm.there() == []
    slurm.start(3)
    slurm.start(1)
    (jobs / "17_2").write_text("RUNNING")
    names = [(one.name, one.running) for one in slurm.there()]
    assert names == [
        ("slurm-17-1", False),
        ("slurm-17-2", True),
        ("slurm-17-3", False),
        ("slurm-18-1", False),
    ]
    (jobs / "17_3").write_text("RUNNING")  # it has begun since it was listed
    slurm.end(["slurm-17-3", "slurm-18-1"])
    assert [one.name for one in slurm.there()] == ["slurm-17-1", "slurm-17-2", "slurm-17-3"]
    calls = (jobs.parent / "calls").read_text()
    # By the name they are found: a script of another name would be submitted again at each look.
    named = f"--name={JOB}"
    assert f"sbatch --job-{named[2:]} --array=1-3 --cpus-per-task=4 {SCRIPT}" in calls
    assert f"squeue --me --noheader --array {named} " in calls
    # The name that the batch script gives its worker.
    assert 'SWATHMILL_WORKER_NAME="slurm-${SLURM_ARRAY_JOB_ID' in SCRIPT.read_text()


def test_what_slurm_says_of_jobs_that_wait_for_more_than_their_turn_is_told(jobs: Path) -> None:
    slurm = Slurm(str(SCRIPT), 4)
    slurm.start(3)
    (jobs / "17_1").write_text("PENDING Priority")
    (jobs / "17_2").write_text("PENDING Nodes required for job are DOWN, DRAINED")
    (jobs / "17_3").write_text("RUNNING None")
    assert [one.why for one in slurm.there()] == [
        "",
        "Nodes required for job are DOWN, DRAINED",
        "",
    ]


def test_jobs_of_a_place_have_its_name_and_tell_it_to_their_workers(jobs: Path) -> None:
    slurm = Slurm(str(SCRIPT), 4, "gpu")
    slurm.there()
    slurm.start(2)
    calls = (jobs.parent / "calls").read_text()
    assert f"squeue --me --noheader --array --name={JOB}-gpu " in calls
    assert f"sbatch --job-name={JOB}-gpu --array=1-2" in calls
    assert f"--export=ALL,SWATHMILL_WORKER_PLACE=gpu {SCRIPT}" in calls


def test_a_job_that_was_submitted_by_hand_is_one_of_them(jobs: Path) -> None:
    (jobs.parent / "squeue").write_text("#!/bin/sh\necho '7 N/A PENDING'; echo '8 0 RUNNING'\n")
    slurm = Slurm(str(SCRIPT), 2)
    names = [one.name for one in slurm.there()]
    assert names == ["slurm-7-0", "slurm-8-0"]
    (jobs / "7").write_text("PENDING")
    slurm.end(names[:1])
    assert [*jobs.iterdir()] == []
    # As the batch script names its worker.
    assert "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}-${SLURM_ARRAY_TASK_ID:-0}" in SCRIPT.read_text()


def test_a_slurm_that_fails_says_why(jobs: Path) -> None:
    (jobs.parent / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error' >&2; exit 1\n")
    with pytest.raises(StackError, match="squeue ended with 1: slurm_load_jobs error"):
        Slurm(str(SCRIPT), 2).there()
    (jobs.parent / "squeue").unlink()
    with pytest.raises(StackError, match="squeue cannot be run"):
        Slurm(str(SCRIPT), 2).there()


def test_the_command_starts_what_the_manager_wants(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (jobs / "3_1").write_text("RUNNING")
    workers = [{"name": "slurm-3-1", "draining": True}, {"name": "elsewhere", "draining": False}]
    answer = {"manager": {"wanted_slots": 9}, "workers": workers}
    monkeypatch.setattr(Client, "operations", lambda _: answer)
    monkeypatch.setenv("SWATHMILL_PORTAL_URL", "http://127.0.0.1:9")
    for started in (5, 0):
        fleet(f"slurm:{SCRIPT}", slots=2, most=200, once=True, as_json=True, token="t")
        said = json.loads(capsys.readouterr().out)
        assert (said["start"], said["wanted_slots"]) == (started, 9)
    assert len([*jobs.iterdir()]) == 6


def test_the_command_says_once_for_what_workers_wait(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        (jobs / f"3_{number}").write_text("PENDING QOSMaxCpuPerUserLimit")
    answer = {"manager": {"wanted_slots": 4}, "workers": []}
    monkeypatch.setattr(Client, "operations", lambda _: answer)
    monkeypatch.setenv("SWATHMILL_PORTAL_URL", "http://127.0.0.1:9")
    looks: list[float] = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    own = SimpleNamespace(sleep=wait, monotonic=time.monotonic)
    monkeypatch.setattr("swathmill.commands.fleet.time", own)
    with pytest.raises(KeyboardInterrupt):
        fleet(f"slurm:{SCRIPT}", slots=2, token="t")
    assert capsys.readouterr().out == "2 workers wait: QOSMaxCpuPerUserLimit\n"
    fleet(f"slurm:{SCRIPT}", slots=2, once=True, as_json=True, token="t")
    assert json.loads(capsys.readouterr().out)["waiting"] == {"QOSMaxCpuPerUserLimit": 2}


def test_the_command_goes_by_the_slots_wanted_at_a_place(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (jobs / "3_1").write_text("RUNNING")
    here = {"name": "slurm-3-1", "draining": False, "place": ""}
    places = [{"place": "", "wanted_slots": 9}, {"place": "gpu", "wanted_slots": 5}]
    answer = {"manager": {"wanted_slots": 9}, "places": places, "workers": [here]}
    monkeypatch.setattr(Client, "operations", lambda _: answer)
    monkeypatch.setenv("SWATHMILL_PORTAL_URL", "http://127.0.0.1:9")
    ask = partial(fleet, f"slurm:{SCRIPT}", slots=2, most=200, once=True, as_json=True, token="t")
    ask(place="gpu")
    said = capsys.readouterr()
    assert json.loads(said.out)["wanted_slots"] == 5
    assert "slurm-3-1 is no worker of place gpu" in said.err
    with pytest.raises(StackError, match="knows no place 'cpu'"):
        ask(place="cpu")


def test_the_command_goes_on_whatever_a_look_meets(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An engine that is away or answers another form, and a portal that comes back elsewhere."""
    wanted = {"manager": {"wanted_slots": 2}, "workers": []}
    answers = iter([wanted, wanted, {"manager": None}, ApiError("The portal is away.", ""), wanted])
    clients: list[Client] = []

    def operations(client: Client) -> object:
        clients.append(client)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Client, "operations", operations)
    monkeypatch.setenv("SWATHMILL_PORTAL_URL", "http://127.0.0.1:9")
    there = jobs.parent / "squeue"
    program = there.read_text()
    there.write_text("#!/bin/sh\nexit 1\n")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            raise KeyboardInterrupt
        there.write_text("#!/bin/sh\necho a notice\n" if len(waits) == 1 else program)

    # Not the library's own: other threads of this process may sleep, too.
    own = SimpleNamespace(sleep=wait, monotonic=time.monotonic)
    monkeypatch.setattr("swathmill.commands.fleet.time", own)
    with pytest.raises(KeyboardInterrupt):
        fleet(f"slurm:{SCRIPT}", slots=2, most=200, every=9.0, token="t")
    said = capsys.readouterr().out
    order = ["squeue ended with 1", "not enough values", "NoneType", "is away", "started: 1"]
    found = [said.index(one) for one in order]
    assert found == sorted(found)
    assert (waits, len([*jobs.iterdir()])) == ([9.0] * 5, 1)
    # A token that a client was made with may be over: each look has its own.
    assert len({*map(id, clients)}) == 5
