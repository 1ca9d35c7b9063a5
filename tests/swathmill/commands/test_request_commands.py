"""Commands about requests, spoken to a portal that a data folder names."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from portal.serving import tokens
from portal.serving.expected import Expected
from reprojection.read.completeness import Completeness, Missing
from swathmill.cli import application
from swathmill.client import Client
from swathmill.commands.shared.counts import lines_of
from swathmill.errors import ApiError, RefusedError
from swathmill.stack.folder import DataFolder, FolderLock, StackState
from tasks.answers.requests import PreviewAnswer, WindowAnswer
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import PhaseCount, Preparation, Preview, RequestRow
from tests.portal.scripted import (
    SECRET,
    LivePortal,
    live_portal,
    live_runtime,
    put_failed_task,
    put_result,
    set_row,
    settings,
)
from tests.portal.submissions import DOCUMENT

pytestmark = pytest.mark.slow

OWNER = "operator@localhost"
PROGRAM = Path(sys.executable).with_name("swathmill")


@pytest.fixture
def runtime() -> Runtime:
    return live_runtime()


@pytest.fixture
def portal(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LivePortal]:
    """A portal, and a data folder on which its stack runs."""
    for name in [name for name in os.environ if name.startswith("SWATHMILL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SWATHMILL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SWATHMILL_SECRET", SECRET)
    folder = DataFolder(path=tmp_path / "data")
    folder.prepare()
    with live_portal(runtime, settings()) as running, FolderLock(folder):
        folder.write_state(StackState(portal_url=running.url))
        yield running


def run(*words: str) -> Result:
    return CliRunner().invoke(application(), list(words), catch_exceptions=False)


def submitted(runtime: Runtime, owner: str = OWNER) -> str:
    return request_operations.submit(runtime, owner, parse_request(DOCUMENT))


def test_a_token_reaches_the_stack_of_the_data_folder(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    document = tmp_path / "request.json"
    document.write_text(json.dumps(DOCUMENT))
    token = tokens.issue(SECRET, "ada@example.org", tokens.Role.SCIENTIST)
    name = run("submit", str(document), "--token", token).stdout.strip()
    assert request_operations.load(runtime, name).owner == "ada@example.org"
    monkeypatch.setenv("SWATHMILL_TOKEN", token)
    assert name in run("status").stdout
    monkeypatch.setenv("SWATHMILL_PORTAL_URL", "http://127.0.0.1:9")
    with pytest.raises(ApiError, match=r"127\.0\.0\.1:9 does not answer"):
        run("status")
    monkeypatch.delenv("SWATHMILL_TOKEN")
    assert name not in run("status").stdout  # as whoever started the stack
    assert "You have no requests." in run("status").stdout
    assert portal.url != "http://127.0.0.1:9"


@pytest.mark.usefixtures("portal")
def test_a_narrow_terminal_cuts_no_id(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    name = submitted(runtime)
    monkeypatch.setenv("COLUMNS", "40")
    assert name in run("status").stdout


@pytest.mark.usefixtures("portal")
def test_a_request_is_paused_resumed_and_cancelled(runtime: Runtime) -> None:
    name = submitted(runtime)
    set_row(runtime, name, state=RequestState.RUNNING)
    for what, says in (("pause", "paused"), ("resume", "continues")):
        assert says in run(what, name).stdout
        assert request_operations.load(runtime, name).order == what
    assert "is being cancelled" in run("cancel", name).stdout
    assert request_operations.load(runtime, name).state is RequestState.CANCELLING
    with pytest.raises(RefusedError, match="is being cancelled"):
        run("pause", name)
    assert "is cancelled" in run("cancel", submitted(runtime)).stdout


def test_a_paused_request_says_so_everywhere(runtime: Runtime, portal: LivePortal) -> None:
    name, paused = submitted(runtime), "running (paused)"
    set_row(runtime, name, state=RequestState.RUNNING, paused=True)
    assert paused in run("status").stdout
    assert paused in run("status", name).stdout
    token = tokens.issue(SECRET, OWNER, tokens.Role.OPERATOR)
    status = Client(url=portal.url, token=token).status(name)
    assert (status.paused, status.state_text, status.owner) == (True, paused, OWNER)
    assert str(status).startswith(paused), "so says `status --follow`"
    with httpx.Client(base_url=portal.url, headers={"Authorization": f"Bearer {token}"}) as web:
        assert web.get(f"/jobs/{name}").json()["message"] == paused
        assert paused in web.get(f"/requests/{name}").text
        assert paused in web.get("/", headers={"Accept": "text/html"}).text
    set_row(runtime, name, state=RequestState.CANCELLED, ended=1.0)
    assert "paused" not in run("status", name).stdout


@pytest.mark.usefixtures("portal")
def test_an_order_that_cannot_be_obeyed_is_an_error(runtime: Runtime) -> None:
    name = submitted(runtime)
    with pytest.raises(RefusedError, match="does not wait for confirmation: it is submitted"):
        run("confirm", name)
    set_row(runtime, name, state=RequestState.HELD)
    for what in ("pause", "resume"):
        with pytest.raises(RefusedError, match="waits for confirmation"):
            run(what, name)
    assert "is confirmed" in run("confirm", name).stdout
    assert request_operations.load(runtime, name).order == "confirm"
    set_row(runtime, name, state=RequestState.COMPLETE, order=None, ended=1.0)
    for what in ("confirm", "pause", "resume", "cancel"):
        with pytest.raises(RefusedError, match="it is complete"):
            run(what, name)
    assert request_operations.load(runtime, name).order is None


@pytest.mark.usefixtures("portal")
@pytest.mark.parametrize("name", ["nothere", "a/b", "..", "", "ä"])
def test_a_request_that_there_is_not_is_told_in_the_commands_words(name: str) -> None:
    for command in ("status", "results", "pause", "resume", "cancel", "confirm", "retry"):
        with pytest.raises(RefusedError, match="There is no request") as caught:
            run(command, name)
        assert caught.value.remedy == "`swathmill status` lists yours."


@pytest.mark.usefixtures("portal")
def test_facts_are_printed_as_json(runtime: Runtime, tmp_path: Path) -> None:
    document = tmp_path / "request.json"
    document.write_text(json.dumps(DOCUMENT))
    made = json.loads(run("submit", str(document), "--json").stdout)
    name = made["id"]
    put_result(runtime, name, "layer", "x.json", b'{"n": 1}')
    set_row(runtime, name, state=RequestState.RUNNING, outputs=1, delivered=1)
    assert [one["id"] for one in json.loads(run("status", "--json").stdout)] == [name]
    assert json.loads(run("status", name, "--json").stdout)["delivered"] == 1
    assert json.loads(run("pause", name, "--json").stdout)["id"] == name
    (listed,) = json.loads(run("results", name, "--json").stdout)
    out = tmp_path / "out"
    (got,) = json.loads(run("results", name, "--out", str(out), "--json").stdout)
    assert Path(got.pop("path")).read_bytes() == b'{"n": 1}'
    assert got == listed
    assert f"1 result, 8 B in {out}" in run("results", name, "--out", str(out)).stdout


@pytest.mark.usefixtures("portal")
@pytest.mark.parametrize(
    ("state", "code"),
    [(RequestState.COMPLETE, 0), (RequestState.GAPS, 3), (RequestState.FAILED, 1)],
)
def test_following_ends_with_the_request(runtime: Runtime, state: RequestState, code: int) -> None:
    name = submitted(runtime)
    set_row(runtime, name, state=state, ended=1.0)
    ended = run("status", name, "--follow")
    assert (ended.exit_code, state.value in ended.stdout) == (code, True)


@pytest.mark.usefixtures("portal")
def test_a_running_request_without_a_gap_lists_what_lacks_a_failed_input(
    runtime: Runtime,
) -> None:
    name = submitted(runtime)
    granule = "MCD15A2.A2012001.h17v03.005"
    half = Completeness(
        share=0.5, missing=(Missing(what=granule, why="failed: corrupt blob read"),)
    )
    put_result(runtime, name, "layer", "Lai_1km.2012-01-01.tif", b"x", half)
    put_failed_task(runtime, name, granule, (Category.CORRUPT_BLOB_READ,))
    phases = {Phase.COLLECTION: PhaseCount(total=2, done=1, failed=1)}
    set_row(runtime, name, state=RequestState.RUNNING, phases=phases, outputs=2, delivered=1)
    said = run("status", name).stdout
    assert "incomplete: layer 2012-01-01 (50% of the inputs)" in said
    assert f"failed: {granule}: " in said


@pytest.mark.usefixtures("portal")
def test_status_says_how_far_planning_and_writing_are(runtime: Runtime) -> None:
    name = submitted(runtime)
    at = Preparation(done=12, total=3660, unit="days")
    set_row(runtime, name, state=RequestState.PLANNING, preparation=at)
    assert run("status", name).stdout.startswith("planning | 12 of 3,660 days\n")
    at = Preparation(done=1, total=2, unit="tasks")
    set_row(runtime, name, state=RequestState.WRITING, preparation=at)
    assert run("status", name).stdout.startswith("writing | 1 of 2 tasks\n")


def test_counts_are_told_in_plain_words() -> None:
    counts = PreviewAnswer(
        id="r",
        state="complete",
        granules=32,
        tasks=10_000,
        reused=40,
        bytes=1_200_000_000,
        stored=23_649_187_830,
        raster="1,400 x 800 pixels of 0.01 degree, 8° W to 6° E, 50.5° N to 58.5° N",
        exact=False,
        expected_time="3 h 24 min of one core",
        expected_cost="not known",
        notes=("Time and cost leave out 6,816 of 9,960 tasks (68%).",),
        gaps=3,
        missing=("MCD15A2.005 2012-03-05 h17v03: not published",),
        message="It would wait for confirmation.",
        windows=(
            WindowAnswer(step="et", window="2012-01", runs=0, has="A: 0, B: 1", lacks="A 2012-01"),
            WindowAnswer(
                step="et",
                window="2012-041",
                runs=2,
                has="A: 1, B: 1",
                lacks="",
                first="2012-02-10",
                last="2012-02-17",
            ),
        ),
        window_count=5,
    )
    assert lines_of(counts) == [
        "Granules  32, 1.2 GB to fetch",
        "Tasks     10,000, of which 40 are done already, estimated from a sample",
        "Storage   23.6 GB at most",
        "Raster    1,400 x 800 pixels of 0.01 degree, 8° W to 6° E, 50.5° N to 58.5° N",
        "Time      3 h 24 min of one core",
        "Cost      not known",
        "          Time and cost leave out 6,816 of 9,960 tasks (68%).",
        "Gaps      3:",
        "  MCD15A2.005 2012-03-05 h17v03: not published",
        "  and 2 more",
        "Windows   5:",
        "  et 2012-01: no run; has A: 0, B: 1; lacks A 2012-01",
        "  et 2012-041 (2012-02-10 to 2012-02-17): 2 runs; has A: 1, B: 1",
        "  and 3 more",
        "It would wait for confirmation.",
    ]


@pytest.mark.usefixtures("portal")
@pytest.mark.parametrize(
    ("counted", "time", "cost"),
    [
        (Preview(tasks=100, unmeasured=68, busy=2.0), "2.0 s of one core", "at least 0 s of"),
        (Preview(tasks=100, unmeasured=100), "not known", "not known"),
        (
            Preview(tasks=100, similar=40, busy=1.0, cost=1.5, currency="EUR"),
            "1.0 s of one core",
            "1.50 EUR, with",
        ),
        (
            Preview(tasks=100, busy=1.0, cost=0.001, currency="EUR"),
            "1.0 s of one core",
            "less than 0.01 EUR",
        ),
        (Preview(tasks=9, reused=9), "nothing to do: all tasks are done already", "nothing"),
    ],
)
def test_a_dry_run_says_of_time_and_cost_what_the_page_says(
    runtime: Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    counted: Preview,
    time: str,
    cost: str,
) -> None:
    def count(_: Runtime, name: str, *_args: object, **_more: object) -> RequestRow:
        return set_row(runtime, name, state=RequestState.PREVIEWED, preview=counted)

    monkeypatch.setattr("portal.requests.api.wait_for_preview", count)
    document = tmp_path / "request.json"
    document.write_text(json.dumps(DOCUMENT))
    said = run("submit", str(document), "--dry-run").stdout
    assert f"Time      {time}" in said
    assert f"Cost      {cost}" in said
    assert "Cost      0.00" not in said
    for note in Expected.of(counted).notes:
        assert note in said
    facts = json.loads(run("submit", str(document), "--dry-run", "--json").stdout)
    assert facts["expected_cost"].startswith(cost)


@pytest.mark.proof
def test_the_program_tells_its_version_its_help_and_completes_words() -> None:
    def said(*words: str, **more: str) -> str:
        command = [str(PROGRAM), *words]
        env = {**os.environ, "COLUMNS": "120", **more}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout

    assert said("--version").startswith("swathmill 0.")
    for words in (("-h",), ("status", "-h")):
        assert "Usage: swathmill" in said(*words)
    completed = said(_SWATHMILL_COMPLETE="complete_bash", COMP_WORDS="swathmill st", COMP_CWORD="1")
    assert completed.split() == ["status", "storage"]


@pytest.mark.usefixtures("portal")
def test_labels_and_standing_are_changed_and_what_is_not_named_stays(runtime: Runtime) -> None:
    name = submitted(runtime)
    said = run("change", name, "--labels", "thesis, drought", "--standing", "7").stdout
    assert "labels thesis, drought; read by nobody else; goes on each 7 days" in said
    assert run("change", name, "--standing", "0").stdout.endswith("does not go on.\n")
    row = request_operations.load(runtime, name)
    assert (row.labels, row.standing) == (("thesis", "drought"), 0)
    assert json.loads(run("change", name, "--labels", "", "--json").stdout)["labels"] == []
    with pytest.raises(RefusedError, match="there is no group none"):
        run("change", name, "--group", "none")
