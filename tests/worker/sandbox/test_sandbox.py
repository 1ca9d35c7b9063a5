"""The sandbox: what user code cannot do, in both tiers, tried by user code."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from processes import confine, proctree
from tasks.bag.categories import Category
from tasks.service.classify import AttemptError
from tasks.settings import Settings
from worker.sandbox import sandbox
from worker.sandbox.confined import run_confined
from worker.sandbox.sandbox import Places, SandboxLimits, Tier

pytestmark = pytest.mark.slow

PYTHON = ("python", "run.py")
SECRET = "AccountKey=do-not-show"
BOUNDS = SandboxLimits(memory=10**9, seconds=20.0, processes=16, output=10**8)


@pytest.fixture(params=["bubblewrap", "limits"])
def tier(request: pytest.FixtureRequest) -> Tier:
    if request.param == "bubblewrap" and (problem := sandbox.probe_bubblewrap()):
        pytest.skip(f"bubblewrap does not work here: {problem}")
    return "bubblewrap" if request.param == "bubblewrap" else "limits"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    names = ("package", "inputs", "outputs", "temporary")
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / "inputs" / "given.txt").write_text("given", "utf-8")
    (tmp_path / "secret.txt").write_text(SECRET, "utf-8")
    return Places(
        package=tmp_path / "package",
        inputs=tmp_path / "inputs",
        outputs=tmp_path / "outputs",
        temporary=tmp_path / "temporary",
    )


def run(
    tier: Tier,
    places: Places,
    script: str,
    bounds: SandboxLimits = BOUNDS,
    command: tuple[str, ...] = PYTHON,
) -> str:
    """Run a script of user code in a child of its own; returns what it wrote to out.txt.

    The child is what an attempt's child is: the runner reaps whatever descends from it.
    """
    (places.package / "run.py").write_text(textwrap.dedent(script), "utf-8")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, tier, command, places, bounds))
    process.start()
    theirs.close()
    try:
        said = ours.recv()
    except EOFError:
        said = ("died", f"exit code {process.exitcode}")
    process.join(20)
    if said is not None:
        category, message = said
        raise AttemptError(Category(category), message)
    out = places.outputs / "out.txt"
    return out.read_text("utf-8") if out.exists() else ""


def _run(
    connection: Connection,
    tier: Tier,
    command: tuple[str, ...],
    places: Places,
    bounds: SandboxLimits,
) -> None:
    os.environ["SWATHMILL_STORAGE"] = SECRET
    said = None
    try:
        run_confined(tier, command, places, bounds)
    except AttemptError as error:
        said = (error.category.value, str(error))
    left = proctree.descendants(os.getpid())
    assert not left, left
    connection.send(said)


# Tries each line by itself and writes what became of it.
TRY = """
import os, sys
out = open(os.path.join(sys.argv[2], "out.txt"), "w")
def attempt(name, action):
    try:
        action()
    except (OSError, ModuleNotFoundError) as error:
        out.write(f"{name}: {type(error).__name__}\\n")
    else:
        out.write(f"{name}: done\\n")
"""


def tried(tier: Tier, places: Places, script: str) -> dict[str, str]:
    text = run(tier, places, TRY + textwrap.dedent(script))
    return dict(line.split(": ") for line in text.splitlines())


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="Rscript is not installed")
def test_r_starts_with_its_usual_packages(tier: Tier, places: Places) -> None:
    """Debian keeps its start-up files in /etc/R."""
    there = "exists('sd') && exists('download.file')"
    code = f"cat({there}, file=file.path(commandArgs(TRUE)[2], 'out.txt'))"
    assert run(tier, places, "", command=("Rscript", "-e", code)) == "TRUE"


def test_inputs_are_read_and_outputs_written(tier: Tier, places: Places) -> None:
    script = """
    import sys, tempfile, numpy, rasterio
    given = open(sys.argv[1] + "/given.txt").read()
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(given)
    open(sys.argv[2] + "/out.txt", "w").write(f"{given} {numpy.arange(3).sum()}")
    """
    assert run(tier, places, script) == "given 3"


def test_the_system_inputs_and_package_cannot_be_changed(tier: Tier, places: Places) -> None:
    script = f"""
    def write(path):
        return lambda: open(path, "w").write("x")
    attempt("input", write(sys.argv[1] + "/given.txt"))
    attempt("new input", write(sys.argv[1] + "/new.txt"))
    attempt("package", write("run.py"))
    attempt("usr", write("/usr/swathmill-test"))
    attempt("etc", write("/etc/swathmill-test"))
    attempt("beside", write({str(places.outputs.parent / "beside")!r}))
    attempt("python", write(os.path.join(sys.prefix, "swathmill-test")))
    attempt("output", write(sys.argv[2] + "/more.txt"))
    """
    found = tried(tier, places, script)
    assert found.pop("output") == "done"
    assert "done" not in found.values(), found
    assert (places.inputs / "given.txt").read_text("utf-8") == "given"


def test_no_network(tier: Tier, places: Places) -> None:
    with __import__("socket").create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        script = f"""
        import socket
        def udp():
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {port}))
            raise SystemExit("UDP was sent") if {tier == "limits"} else OSError("own loopback")
        attempt("tcp", lambda: socket.create_connection(("127.0.0.1", {port}), timeout=2))
        attempt("udp", udp)
        attempt("dns", lambda: socket.getaddrinfo("example.org", 80))
        """
        found = tried(tier, places, script)
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()
    assert "done" not in found.values(), found


def test_no_secrets(tier: Tier, places: Places) -> None:
    secret = places.outputs.parent / "secret.txt"
    script = f"""
    out.write(" ".join(sorted(os.environ)) + ": names\\n")
    attempt("file", lambda: open({str(secret)!r}).read())
    attempt("parent", lambda: open(f"/proc/{os.getpid()}/environ").read())
    attempt("shadow", lambda: open("/etc/shadow").read())
    """
    found = tried(tier, places, script)
    (names,) = [name for name, said in found.items() if said == "names"]
    assert not [name for name in names.split() if "SWATHMILL" in name or "AZURE" in name]
    assert {"PATH", "HOME"} <= set(names.split())
    del found[names]
    assert "done" not in found.values(), found


def test_other_processes_are_out_of_reach(tier: Tier, places: Places) -> None:
    if tier == "limits" and confine.landlock_abi() < 6:
        pytest.skip("this kernel's Landlock cannot hold back signals")
    script = f"""
    attempt("signal", lambda: os.kill({os.getpid()}, 0))
    """
    found = tried(tier, places, script)
    assert found["signal"] in ("ProcessLookupError", "PermissionError")


def failure(
    tier: Tier,
    places: Places,
    script: str,
    bounds: SandboxLimits = BOUNDS,
    command: tuple[str, ...] = PYTHON,
) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        run(tier, places, script, bounds, command)
    return caught.value


def bounds(**changes: float) -> SandboxLimits:
    values = {"memory": BOUNDS.memory, "seconds": 20.0, "processes": 16, "output": 10**8}
    return SandboxLimits(**{**values, **changes})  # type: ignore[arg-type]


def test_a_failure_shows_the_last_line(tier: Tier, places: Places) -> None:
    error = failure(tier, places, "print('reading'); raise SystemExit('no snow today')")
    assert error.category is Category.USER_CODE_FAILED
    assert "exit code 1: no snow today" in str(error)


def test_what_is_printed_loses_control_characters(
    tier: Tier, places: Places, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tier, places, r"print('\x1b[31mred\x07', 'plain\ttext', '\u202e\x9bAä', end='')")
    printed = capfd.readouterr().out
    assert "\x1b" not in printed
    assert r"\x1b[31mred\x07 plain" + "\ttext " + r"\u202e\x9bAä" in printed


def test_time_is_bounded(tier: Tier, places: Places) -> None:
    error = failure(tier, places, "import time; time.sleep(60)", bounds(seconds=0.5))
    assert error.category is Category.USER_CODE_TIMED_OUT


def test_memory_is_bounded_over_all_processes(tier: Tier, places: Places) -> None:
    script = """
    import os, time
    for n in range(4):
        if os.fork() == 0:
            held = os.urandom(1 << 20) * 60
            time.sleep(20)
    time.sleep(20)
    """
    error = failure(tier, places, script, bounds(memory=150 * 10**6))
    assert error.category is Category.OUT_OF_MEMORY
    assert "memory_gb" in str(error)


def test_processes_are_bounded(tier: Tier, places: Places) -> None:
    script = """
    import os, time
    for n in range(30):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    time.sleep(20)
    """
    error = failure(tier, places, script, bounds(processes=10))
    assert error.category is Category.USER_CODE_FAILED
    assert "limit is 10" in str(error)


def test_output_is_bounded(tier: Tier, places: Places) -> None:
    script = """
    import sys, time
    for n in range(20):
        open(f"{sys.argv[2]}/{n}", "wb").write(bytes(10**6))
    time.sleep(20)
    """
    error = failure(tier, places, script, bounds(output=5 * 10**6))
    assert error.category is Category.USER_CODE_FAILED
    assert "output_gb" in str(error)


def test_what_is_left_running_ends_with_the_program(tier: Tier, places: Places) -> None:
    script = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(3)
        open(sys.argv[2] + "/out.txt", "w").write("from the grave")
        os._exit(0)
    """
    assert run(tier, places, script) == ""


def test_other_children_of_the_process_are_none_of_its_business(places: Places) -> None:
    (places.package / "run.py").write_text("print('done')", "utf-8")
    with subprocess.Popen(["sleep", "60"]) as bystander:
        run_confined("limits", PYTHON, places, BOUNDS)
        assert bystander.poll() is None
        bystander.kill()


def test_a_command_that_does_not_exist_is_the_users_failure(tier: Tier, places: Places) -> None:
    error = failure(tier, places, "", command=("no-such-program",))
    assert error.category is Category.USER_CODE_FAILED
    assert "no-such-program" in str(error)


def test_a_module_that_is_not_there_is_told_with_what_to_do(tier: Tier, places: Places) -> None:
    error = failure(tier, places, "import no_such_library")
    assert error.category is Category.USER_CODE_FAILED
    assert "No module named 'no_such_library'. Nothing here has no_such_library: " in str(error)


def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))


def test_the_strongest_tier_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    if problem := sandbox.probe_bubblewrap():
        pytest.skip(f"bubblewrap does not work here: {problem}")
    for least in ("bubblewrap", "limits"):
        assert sandbox.report(Settings(sandbox=least)).tier == "bubblewrap"
    without_bubblewrap(monkeypatch)
    limits = sandbox.report(Settings(sandbox="limits"))
    assert limits.tier == "limits"
    assert limits.line.startswith("limits: no network")
    assert any(text.startswith("own process namespace") for text in limits.lacks)


@pytest.mark.parametrize(("takes", "works"), [(45.0, True), (600.0, False)])
def test_a_machine_that_is_busy_when_its_worker_starts_keeps_its_sandbox(
    takes: float, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial decides for a worker's whole life: here the program takes so many seconds."""

    def run(command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        cpu = next(word for word in command if word.startswith("RLIMIT_CPU="))
        least = min(given["timeout"], float(cpu.partition("=")[2]))
        if takes > least:
            raise subprocess.TimeoutExpired(command, least)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    fault = sandbox.fault("bubblewrap")
    assert (fault == "", "timed out after" in fault) == (works, not works)


def test_the_report_says_whether_hosts_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(sandbox="limits", network_hosts="data.example.org")
    if not sandbox.probe_bubblewrap():
        assert "bubblewrap: no network but the hosts" in sandbox.report(settings).line
    without_bubblewrap(monkeypatch)
    assert "network: packages that name hosts do not run" in sandbox.report(settings).line


@pytest.mark.parametrize("written", ["exactly:limits", "exactly: limits"])
def test_the_tier_that_is_named_exactly_is_taken_beside_a_stronger_one(written: str) -> None:
    found = sandbox.report(Settings(sandbox=written))
    assert found.tier == "limits"
    assert "demands exactly the tier limits" in found.remedy


def test_bubblewrap_exactly_is_no_other_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    if not sandbox.probe_bubblewrap():
        assert sandbox.report(Settings(sandbox="exactly: bubblewrap")).tier == "bubblewrap"
    without_bubblewrap(monkeypatch)
    assert sandbox.report(Settings(sandbox="exactly: bubblewrap")).tier is None


@pytest.mark.parametrize("written", ["exactly", "exactly:", "exactly: none", "auto", "limits:"])
def test_no_other_word_is_a_tier(written: str) -> None:
    with pytest.raises(ValidationError):
        Settings(sandbox=written)


def test_the_tier_limits_says_what_it_tells_of_files(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program can look up there is named where the tier is shown."""
    folder = places.package.parent
    script = f"""
    attempt("stat", lambda: os.stat({str(folder / "secret.txt")!r}))
    attempt("read", lambda: open({str(folder / "secret.txt")!r}))
    attempt("list", lambda: os.listdir({str(folder)!r}))
    """
    found = tried("limits", places, script)
    assert (found["read"], found["list"]) == ("PermissionError", "PermissionError")
    without_bubblewrap(monkeypatch)
    lacks = " ".join(sandbox.report(Settings(sandbox="limits")).lacks)
    assert ("sizes and times of files" in lacks) == (found["stat"] == "done")


def test_a_weaker_tier_than_allowed_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    without_bubblewrap(monkeypatch)
    found = sandbox.report(Settings(sandbox="bubblewrap"))
    assert found.tier is None
    assert "bwrap is not installed" in found.line
    assert "SWATHMILL_SANDBOX=limits" in found.remedy


def test_without_landlock_the_tier_limits_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    without_bubblewrap(monkeypatch)
    monkeypatch.setattr(confine, "landlock_abi", lambda: 0)
    found = sandbox.report(Settings(sandbox="limits"))
    assert found.tier is None
    assert "Landlock" in found.remedy


@pytest.mark.parametrize("way", ["a link to a file", "a link to a folder"])
def test_a_python_behind_links_outside_the_mounted_folders_starts(
    tier: Tier, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    real = Path(sys.executable).resolve()
    far = tmp_path / "far"
    if way == "a link to a file":
        far.mkdir()
        (far / "snake").symlink_to(real)
        there = far / "snake"
    else:
        far.symlink_to(real.parents[1])
        there = far / "bin" / real.name
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = {there.parent}\n", "utf-8")
    (prefix / "bin" / "python").symlink_to(there)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "executable", str(prefix / "bin" / "python"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(prefix / "bin"))
    script = "import json, sys; open(sys.argv[2] + '/out.txt', 'w').write(sys.executable)"
    assert run(tier, places, script) == str(prefix / "bin" / "python")


def test_a_failure_names_files_as_the_author_knows_them(tier: Tier, places: Places) -> None:
    """The same in each attempt and on each machine: no path of the attempt's own folders."""
    script = """
    import sys
    open(sys.argv[1] + "/missing.tif")
    """
    with pytest.raises(AttemptError) as failed:
        run(tier, places, script)
    assert str(failed.value) == (
        "python run.py ended with exit code 1: FileNotFoundError: [Errno 2] No such file or "
        "directory: 'INPUT_DIR/missing.tif'"
    )


@pytest.mark.parametrize(("processors", "threads"), [((), "1"), ((2,), "1"), ((0, 1, 5), "3")])
def test_libraries_start_a_thread_for_each_processor_of_a_run_and_one_at_least(
    places: Places, processors: tuple[int, ...], threads: str
) -> None:
    found = sandbox.variables_of(places, replace(BOUNDS, processors=processors))
    assert (found["OMP_NUM_THREADS"], found["OPENBLAS_NUM_THREADS"]) == (threads, threads)


@pytest.mark.parametrize("count", [40, 41])
def test_so_many_links_are_followed_on_the_way_to_a_file(tmp_path: Path, count: int) -> None:
    """`_MOST_LINKS` is Linux's own limit: beyond it the file cannot be opened."""
    folder = tmp_path.resolve()
    (folder / "0").write_text("python")
    for number in range(count):
        (folder / str(number + 1)).symlink_to(str(number))
    last = folder / str(count)
    assert len(sandbox.links_to(last)) == sandbox._MOST_LINKS == 40
    if count == 40:
        assert last.read_text() == "python"
    else:
        with pytest.raises(OSError, match="symbolic links"):
            last.read_text()


def test_links_in_a_circle_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, readlink, looks = tmp_path.resolve(), os.readlink, iter(range(100))

    def read(path: Path) -> str:
        next(looks)  # StopIteration where it does not end
        return readlink(path)

    monkeypatch.setattr(os, "readlink", read)
    for one, other in (("a", "b"), ("b", "a")):
        (folder / one).symlink_to(other)
    assert sandbox.links_to(folder / "a") == {str(folder / "a"): "b", str(folder / "b"): "a"}


def test_a_parameter_of_so_many_bytes_is_a_variable(places: Places) -> None:
    """Linux takes 128 KiB of one, and of all together a share of the stack."""
    longest = "é" * (sandbox._LONGEST_VARIABLE // 2)
    given = {"fits": longest, "longer": f"{longest}x"}
    found = sandbox.variables_of(replace(places, parameters=given), BOUNDS)
    assert found["PARAMETER_FITS"] == longest
    assert "PARAMETER_LONGER" not in found


def test_a_program_imports_packages_outside_our_python(
    tier: Tier, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an installation for one user, whose folder of packages the program's user lacks."""
    packages = tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "parcel.py").write_text("SIZE = 42\n", "utf-8")
    monkeypatch.syspath_prepend(str(packages))
    script = "import parcel, sys; open(sys.argv[2] + '/out.txt', 'w').write(str(parcel.SIZE))"
    assert run(tier, places, script) == "42"
