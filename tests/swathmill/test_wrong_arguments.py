"""Every command, asked for what cannot be: a message that names it, an exit code, no traceback."""

import gzip
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from swathmill.cli import COMMANDS, application, main
from tests.swathmill.command_names import options_of_commands

pytestmark = pytest.mark.slow

REFUSED, FAILED = 2, 1
NO_STACK = ("status", "results", "pause", "resume", "cancel", "confirm", "retry")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command line, and what its message must name. `{x}` is a path below the test's folder."""

    line: str
    names: str
    code: int = REFUSED
    env: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False  # in a process of its own: it opens tables, which a fork may not


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a process ended."""

    case: Case
    code: int
    said: str


REPROJECT = "reproject {granule} --layer Lai_1km --resolution 0.1"
CASES = (
    Case(line="submit {absent}", names="{absent}"),
    Case(line="submit {folder}", names="{folder}"),
    Case(line="submit {request}", names="{folder}/data", code=FAILED),
    Case(line="run {request} --out {file}", names="{file}"),
    Case(line="run {request} --out {new} --archive {absent}", names="{absent}"),
    Case(line="run {request} --out {new} --archive {file}", names="{file} is a file"),
    Case(line="run {request} --out {new}", names="--archive"),
    Case(line="run {request} --out {new} --archive {folder} --data {file}/x", names="{file}/x"),
    Case(line="up --archive {absent}", names="{absent}"),
    Case(line="up --archive {folder} --data {file}", names="{file}"),
    Case(line="up --port 70000", names="--port"),
    Case(line="view {absent}", names="{absent}"),
    Case(line="view {file}", names="{file} is a file"),
    Case(line="try --data {file}", names="{file}"),
    *(Case(line=f"{name} some-request", names="{folder}/data", code=FAILED) for name in NO_STACK),
    Case(line="change some-request", names="--labels"),
    Case(line="change some-request --standing 7", names="{folder}/data", code=FAILED),
    Case(line="status --follow", names="--follow"),
    Case(
        line="status --token abc",
        names="http://127.0.0.1:9",
        code=FAILED,
        env={"SWATHMILL_PORTAL_URL": "http://127.0.0.1:9"},
    ),
    Case(
        line="status --token abc",
        names="http://[",
        code=FAILED,
        env={"SWATHMILL_PORTAL_URL": "http://["},
    ),
    Case(line="status", names="token", env={"SWATHMILL_TOKEN": "ä b"}),
    Case(line="results some-request --data {file}", names="{file}"),
    Case(line="prices {absent}", names="{absent}"),
    Case(line="prices {file}", names="Azure Retail Prices API", code=FAILED),
    Case(line="prices core-hour=free", names="core-hour=free"),
    Case(line="prices --forget core-hour=1", names="--forget"),
    Case(line="sample {file}", names="{file} is a file"),
    Case(line="package push {absent}", names="{absent}"),
    Case(line="package push {folder}", names="{folder}"),
    Case(line="package try {folder} --on {absent}", names="{absent}"),
    Case(line="package new {folder}", names="{folder}"),
    Case(line="inputs x", names="{folder}/data", code=FAILED),
    Case(line="package share own --with nobody", names="nobody"),
    Case(line="raster push {absent}", names="{absent}"),
    Case(line="raster share own --with nobody", names="nobody"),
    Case(line="find MCD15A2 --days never --archive {folder}", names="never"),
    Case(line="find MCD15A2 --days 2012-01-01 --archive {absent}", names="{absent}"),
    Case(line="find MCD15A2 --days 2012-01-01 --archive {folder} --fetch {file}", names="{file}"),
    Case(line="find MCD15A2 --days 2012-01-01", names="--archive"),
    Case(
        line="find MCD15A2 --days 2012-01-01 --archive {folder} --box -8 58 6 50",
        names="from 58 to 50",
    ),
    Case(line="find MCD15A2 --days 2012-01-01 --archive foo://x", names="foo://x"),
    Case(line="archive check {absent}", names="{absent}"),
    Case(line="archive check {file}", names="{file}"),
    Case(line="inspect {absent}", names="{absent}"),
    Case(line="inspect {folder}", names="{folder}"),
    Case(line="inspect {file}", names="file is not an HDF file"),
    Case(line="explain {folder} 0 50", names="{folder}"),
    Case(line="explain {file} 0 50", names="{file}"),
    Case(line="explain {file} 0 50 --granules {absent}", names="{absent}"),
    Case(line="explain {file} north 50", names="longitude"),
    Case(line="remake {absent}", names="{absent}"),
    Case(line="remake {file}", names="{file}"),
    Case(line="remake {file} --granules {absent}", names="{absent}"),
    Case(line="remake {file} --packages {absent}", names="{absent}"),
    Case(line="reproject {folder} --layer L --resolution 1 -o {new}", names="{folder}"),
    Case(line=REPROJECT + " -o {new}.tif --resolution 1000", names="about 0.009 degree"),
    Case(line=REPROJECT + "0000 -o {new}.tif --layer Lai", names="Lai_1km"),
    Case(line=REPROJECT + " -o {new}.tif --crs EPSG:99999", names="EPSG:99999"),
    Case(line=REPROJECT + " -o {folder}", names="{folder}", code=FAILED),
    Case(line=REPROJECT + " -o {file}/x.tif", names="{file}/x.tif", code=FAILED),
    Case(line="export {folder}", names="{folder}"),
    Case(line="export {absent}/x.gz", names="{absent}/x.gz"),
    Case(line="export {new}.gz", names="nothing to export", alone=True),
    Case(line="restore {absent}", names="{absent}"),
    Case(line="restore {folder}", names="{folder}"),
    Case(line="restore {file}", names="{file}", code=FAILED),
    Case(line="restore {strange}", names="{strange}", code=FAILED),
    Case(line="storage --data {file}/x", names="{file}/x"),
    Case(line="upgrade --data {file}/x", names="{file}/x"),
    Case(line="fleet cloud:x", names="cloud:x"),
    Case(line="fleet slurm:{absent}", names="{absent}"),
    Case(line="deploy mill. --location here --operator ada --sources cmr", names="mill."),
    Case(line="sign-in ada@example.org --data {absent}", names="{absent}", code=FAILED),
    Case(line="sign-in ada@example.org --token --data {absent}", names="{absent}", code=FAILED),
    Case(line=f"sign-in {'a' * 255}", names="255 characters"),
    Case(line="sign-in ada@example.org --role king", names="king"),
    Case(line="doctor --data", names="--data"),
    Case(line="fly", names="fly"),
    *(
        Case(line=line, names=f"{name} is '{value}'", env={name: value})
        for name, value, line in (
            ("SWATHMILL_LEASE_SECONDS", "abc", "doctor"),
            ("SWATHMILL_LEASE_SECONDS", "-1", "doctor"),
            ("SWATHMILL_SMTP_URL", "mail.example.org", "status"),
            ("SWATHMILL_PORTAL_ADDRESS", "localhost:70000", "up --archive {folder}"),
            ("SWATHMILL_SLOTS", "0", "inspect {granule}"),
            ("SWATHMILL_CACHE_GB", "", "export {new}"),
        )
    ),
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, sample_archive: Path) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "file").write_text("no such thing")
    (folder / "strange.gz").write_bytes(gzip.compress(b'{"swathmill": 1, "schema": 1}\n[1]\n'))
    (folder / "request.yaml").write_text(
        (Path(__file__).parents[2] / "examples/sample.yaml").read_text()
    )
    return {
        "folder": folder,
        "file": folder / "file",
        "strange": folder / "strange.gz",
        "absent": folder / "absent",
        "new": folder / "new",
        "request": folder / "request.yaml",
        "granule": next(sample_archive.rglob("MCD15A2*.hdf")),
    }


def ask(case: Case, places: Mapping[str, Path]) -> Answer:
    """Run the command in a fork, which need not import it again, or alone."""
    said = places["folder"] / "said"
    if case.alone:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "swathmill.cli", *_words(case, places)],
            env=_environment(case, places),
            cwd=places["folder"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Answer(case=case, code=done.returncode, said=done.stdout)
    pid = os.fork()
    if not pid:
        os._exit(_carry_out(case, places, said))
    _, status = os.waitpid(pid, 0)
    return Answer(case=case, code=os.waitstatus_to_exitcode(status), said=said.read_text())


def _words(case: Case, places: Mapping[str, Path]) -> list[str]:
    return [word.format(**places) for word in case.line.split()]


def _environment(case: Case, places: Mapping[str, Path]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("SWATHMILL_")}
    data = str(places["folder"] / "data")
    return own | {"SWATHMILL_DATA_DIR": data, "COLUMNS": "400", "TERM": "dumb"} | dict(case.env)


def _carry_out(case: Case, places: Mapping[str, Path], said: Path) -> int:
    signal.alarm(120)
    with said.open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        sys.stdout = sys.stderr = out
        environment = _environment(case, places)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(places["folder"])
        sys.argv = ["swathmill", *_words(case, places)]
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else bool(end.code)
        except BaseException:  # noqa: BLE001 - it ends as a program would
            traceback.print_exc()
            return 1
    return 0


@pytest.fixture(scope="module")
def answers(places: Mapping[str, Path]) -> list[Answer]:
    application([])  # imports all commands
    return [ask(case, places) for case in CASES]


@pytest.mark.proof
def test_a_wrong_argument_setting_or_path_is_named_without_a_traceback(
    answers: list[Answer], places: Mapping[str, Path]
) -> None:
    wrong = [
        f"{one.case.line} {dict(one.case.env)}: exit {one.code} instead of {one.case.code}, "
        f"names {one.case.names!r}: {one.said[-700:]}"
        for one in answers
        if one.code != one.case.code
        or "Traceback" in one.said
        or one.case.names.format(**places) not in one.said
    ]
    assert wrong == []


def test_every_command_is_asked_for_something_wrong() -> None:
    asked = {case.line.split()[0] for case in CASES}
    assert asked >= {name for names in COMMANDS.values() for name in names}


def test_every_command_answers_in_json() -> None:
    options = options_of_commands()
    assert len(options) > 35
    assert {name for name, has in options.items() if "--json" not in has} == set()


@pytest.mark.parametrize("name", ["file", "strange"])
def test_a_file_that_is_no_export_makes_no_data_folder(
    places: Mapping[str, Path], name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    refused = ask(Case(line=f"restore {{{name}}} --data {folder}", names=""), places)
    assert refused.code == FAILED
    assert not folder.exists()
