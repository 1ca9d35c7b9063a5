"""A stack whose settings are wrong stops and says so; one without a source takes the sample."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from reprojection.kernels import kernels
from swathmill import diagnosis
from swathmill.commands.shared.options import stack_options, with_some_source
from swathmill.commands.up import archive_warning, run_until_interrupted
from swathmill.console import PlainConsole
from swathmill.diagnosis import Verdict, settings_finding, stack_finding
from swathmill.errors import ArgumentError, StackError
from swathmill.stack.children import ChildSpec
from swathmill.stack.folder import DataFolder, StackState
from swathmill.stack.stack import Stack, StackOptions
from swathmill.stack.storage import embedded
from swathmill.stack.supervisor import Supervisor
from tasks.operators import manager_lease
from tasks.service import exits
from tasks.service.connect import connect_storage
from tests.waiting import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LIMIT = 200.0
LEASE = 4.0


def ended(folder: Path, code: int) -> Supervisor:
    """A supervisor whose one child has ended with this code."""
    supervisor = Supervisor()
    program = f"import sys; print('The reason.'); sys.exit({code})"
    spec = ChildSpec(name="child", argv=(sys.executable, "-c", program), log=folder / "log")
    child = supervisor.start(spec)
    until(lambda: child.exit_code() is not None, LIMIT, "the child has ended")
    return supervisor


def test_a_child_whose_settings_are_wrong_is_not_started_again(tmp_path: Path) -> None:
    supervisor = ended(tmp_path, exits.CONFIGURATION)
    assert ["cannot work with these settings" in said for said in supervisor.tick()] == [True]
    assert supervisor.misconfigured() == ["child"]
    assert supervisor.child("child").last_line() == "The reason."
    time.sleep(1.2)  # longer than the first pause
    assert supervisor.tick() == []
    assert supervisor.restarts("child") == 0


def test_a_child_that_lacks_something_is_started_again(tmp_path: Path) -> None:
    supervisor = ended(tmp_path, exits.UNAVAILABLE)
    assert "next start in 1 s" in supervisor.tick()[0]
    assert supervisor.misconfigured() == []
    supervisor.kill()


def options_of(data: Path, archive: str | None = None) -> StackOptions:
    made = stack_options(storage=None, data=data, archive=archive, workers=1, slots=1)
    # Another file of tests may have opened tables in this process, which then must not be forked.
    return replace(made, fork=False)


@pytest.mark.proof
def test_without_a_source_the_sample_archive_is_made_once_and_told(tmp_path: Path) -> None:
    said: list[str] = []
    options, chosen = with_some_source(options_of(tmp_path), said.append)
    assert options.archive == str(tmp_path / "sample-archive")
    assert len([*Path(options.archive).glob("*.hdf")]) > 5
    assert "synthetic" in chosen
    assert said == ["No source of granules is named: making the sample archive."]
    again, _ = with_some_source(options_of(tmp_path), said.append)
    assert again.archive == options.archive
    assert len(said) == 1


def test_without_a_source_the_archive_of_the_last_time_goes_first(tmp_path: Path) -> None:
    mine, data = tmp_path / "mine", DataFolder(path=tmp_path / "data")
    mine.mkdir()
    data.prepare()
    data.write_state(StackState(archive=str(mine)))
    options, chosen = with_some_source(options_of(data.path), lambda _: None)
    assert options.archive == str(mine)
    assert "as the last time" in chosen


def test_an_absent_archive_of_the_last_time_is_never_replaced_by_the_sample(
    tmp_path: Path,
) -> None:
    mine, data = tmp_path / "mine", DataFolder(path=tmp_path / "data")
    data.prepare()
    data.write_state(StackState(archive=str(mine)))
    for _ in range(2):
        with pytest.raises(
            ArgumentError, match=f"last used archive folder {mine} is absent"
        ) as caught:
            with_some_source(options_of(data.path), lambda _: None)
        assert "--archive" in caught.value.remedy
    assert not (data.path / "sample-archive").exists()
    mine.mkdir()  # the disk is mounted again
    options, _ = with_some_source(options_of(data.path), lambda _: None)
    assert options.archive == str(mine)
    named, _ = with_some_source(options_of(data.path, str(tmp_path)), lambda _: None)
    assert named.archive == str(tmp_path)


def test_a_named_source_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = options_of(tmp_path / "data", str(tmp_path))
    assert with_some_source(named, lambda _: None) == (named, "")
    monkeypatch.setenv("SWATHMILL_SOURCES", "cmr")
    nasa = options_of(tmp_path / "data")
    assert with_some_source(nasa, lambda _: None) == (nasa, "")


def test_a_run_without_a_source_is_refused_before_anything_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "swathmill.cli", "run", "examples/sample.yaml"]
    answer = subprocess.run(
        [*command, "--out", str(tmp_path / "out"), "--data", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert answer.returncode == 2
    assert "No source of granules is named" in answer.stderr
    assert "--archive" in answer.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("process", "setting", "value"),
    [
        ("portal", "SWATHMILL_LEASE_SECONDS", "-1"),
        ("service_manager", "SWATHMILL_SMTP_URL", "mail.example.org"),
        ("worker", "SWATHMILL_STORAGE", "BlobEndpoint=x"),
    ],
)
def test_a_process_with_a_wrong_setting_says_so_and_ends_with_its_code(
    process: str, setting: str, value: str, tmp_path: Path
) -> None:
    plain = {name: text for name, text in os.environ.items() if not name.startswith("SWATHMILL_")}
    ended = subprocess.run(
        [sys.executable, "-m", process],
        env={
            **plain,
            "SWATHMILL_DATA_DIR": str(tmp_path),
            "SWATHMILL_REDIS_URL": "redis://127.0.0.1:9",
            setting: value,
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == exits.CONFIGURATION
    reason = ended.stderr.strip().splitlines()[-1]
    assert "cannot start: " in reason
    assert setting in reason
    assert "Traceback" not in ended.stderr


@pytest.mark.integration
def test_a_stack_with_a_wrong_setting_stops_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWATHMILL_SOURCES", "nowhere")
    stack = Stack(options_of(tmp_path), say=lambda _: None)

    def start_and_look() -> None:
        stack.start()
        run_until_interrupted(stack, PlainConsole(quiet=True))

    with pytest.raises(StackError, match="SWATHMILL_SOURCES names 'nowhere'"):
        start_and_look()
    assert stack.supervisor.names() == []
    assert not list(tmp_path.glob("logs/stack.log")) or (
        "was started again" not in (tmp_path / "logs" / "stack.log").read_text()
    )


def test_a_folder_without_granules_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no granule")
    said = archive_warning(str(tmp_path))
    assert f"{tmp_path} holds no granules (.hdf, " in said
    assert "--archive" in said
    (tmp_path / "2012").mkdir()
    (tmp_path / "2012" / "MCD15A2.A2012105.h17v03.005.2012153134500.hdf").touch()
    assert archive_warning(str(tmp_path)) == ""
    assert archive_warning("") == archive_warning("https://example.org/granules") == ""


@pytest.mark.proof
@pytest.mark.integration
def test_a_stack_without_an_archive_works_and_knows_when_its_manager_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start with nothing named; hold the manager, as a machine may, and let it go on."""
    monkeypatch.setenv("SWATHMILL_LEASE_SECONDS", f"{LEASE:g}")
    folder = DataFolder(path=tmp_path)
    assert stack_finding(folder).verdict is Verdict.GOOD  # none runs
    options, _ = with_some_source(options_of(tmp_path), lambda _: None)
    stack = Stack(options, say=lambda _: None)

    def health() -> httpx.Response:
        stack.tick()
        return httpx.get(f"{stack.portal_url}/healthz", trust_env=False)

    try:
        stack.start()
        manager = stack.supervisor.child("manager").pid
        assert manager is not None
        until(
            lambda: '"acting"' in folder.log("manager").read_text(),
            LIMIT,
            "the manager acts",
        )
        until(lambda: health().status_code == 200, LIMIT, "the portal sees its manager")
        tables = connect_storage(embedded(folder))
        beat = manager_lease.read(tables).beat
        until(lambda: manager_lease.read(tables).beat > beat, LIMIT, "it renews its lease")
        os.kill(manager, signal.SIGSTOP)
        renewed = manager_lease.read(tables).renewed
        until(lambda: time.time() - renewed > 2.5 * LEASE, LIMIT, "it is silent")
        assert health().status_code == 503, "though nobody asked meanwhile"
        assert health().json()["status"] == "no manager acts"
        finding = stack_finding(folder)
        assert finding.verdict is Verdict.FAULT
        assert "No service manager" in finding.found
        assert httpx.get(f"{stack.portal_url}/livez", trust_env=False).status_code == 200
        os.kill(manager, signal.SIGCONT)
        until(lambda: health().status_code == 200, LIMIT, "the portal sees its manager again")
        assert "a service manager acts, the message server answers" in stack_finding(folder).found
        redis = stack.supervisor.child("redis").pid
        assert redis is not None
        os.kill(redis, signal.SIGSTOP)
        missed = "the message server does not answer"
        until(lambda: health().json()["status"] == missed, LIMIT, "the portal misses Redis")
        assert health().status_code == 503
        finding = stack_finding(folder)
        assert finding.verdict is Verdict.FAULT
        assert "no message reaches a worker" in finding.found
        assert "kill it" in finding.remedy
        os.kill(redis, signal.SIGCONT)
        until(lambda: health().status_code == 200, LIMIT, "the portal sees Redis again")
        assert "a service manager acts, the message server answers" in stack_finding(folder).found
    finally:
        stack.stop()


def test_a_worker_without_the_kernels_refuses_to_start(tmp_path: Path) -> None:
    """Without them it would make files of other bytes than workers that have them."""
    ended = subprocess.run(
        [sys.executable, "-m", "worker"],
        env={**os.environ, "SWATHMILL_DATA_DIR": str(tmp_path), "SWATHMILL_KERNELS": "none"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == exits.CONFIGURATION
    reason = ended.stderr.strip().splitlines()[-1]
    assert "The worker cannot start: the C kernels are absent" in reason
    assert "Install Swathmill's wheel for this machine" in reason


def test_doctor_says_that_an_installation_lacks_the_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert diagnosis.kernels_finding().verdict is diagnosis.Verdict.GOOD
    monkeypatch.setenv("SWATHMILL_KERNELS", "none")
    kernels.library.cache_clear()
    finding = diagnosis.kernels_finding()
    kernels.library.cache_clear()
    assert finding.verdict is diagnosis.Verdict.FAULT
    assert "nothing is reprojected" in finding.found
    assert "workers do not start" in finding.found
    assert "make kernels" in finding.remedy


def test_the_doctor_names_a_misspelt_setting() -> None:
    wrong = settings_finding({"SWATHMILL_ARCHIVES": "/data", "SWATHMILL_SLOTS": "2"})
    assert wrong.verdict is Verdict.NOTE
    assert wrong.found.startswith("SWATHMILL_ARCHIVES: there is no such setting")
    assert wrong.remedy.startswith("Did you mean SWATHMILL_ARCHIVE? ")
    good = settings_finding({"SWATHMILL_SLOTS": "2", "SWATHMILL_TOKEN": "secret", "HOME": "/"})
    assert (good.verdict, good.found) == (Verdict.GOOD, "SWATHMILL_SLOTS, SWATHMILL_TOKEN")


def test_a_setting_of_a_version_before_is_told_what_holds_now() -> None:
    gone = diagnosis.settings_finding({"SWATHMILL_TIMEOUT_FACTOR": "8"})
    assert gone.verdict is Verdict.NOTE
    assert "four times the mean" in gone.remedy
    assert "TIMEOUT_CEILING" not in gone.remedy


def test_the_doctor_knows_the_variables_of_the_deployments() -> None:
    root = Path(__file__).parents[2]
    files = [root / "docker-compose.yml", *(root / "infra").rglob("*")]
    text = "".join(file.read_text() for file in files if file.is_file())
    named = set(re.findall(r"\bSWATHMILL_[A-Z0-9_]*[A-Z0-9]\b", text))
    assert len(named) > 40
    assert settings_finding(dict.fromkeys(named, "")).verdict is Verdict.GOOD
