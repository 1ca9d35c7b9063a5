"""What the mail about an ended request says."""

from dataclasses import replace
from datetime import date
from email import message_from_bytes, policy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reprojection.read.completeness import Completeness, Missing
from service_manager.mail.mail_text import RequestSummary, compose, outcome
from service_manager.mail.notify import message
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile, Phase, RequestState, TaskOutcome
from tasks.bag.task_rows import Interest
from tasks.requests.outbox import Mail
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount

LINK = "http://portal/requests/r1"
FILE = ArtifactFile(name="a.tif", blob="artifacts/a", size=1_500_000, sha256="0")
DONE = Interest(
    request="r1",
    key="0a",
    phase=Phase.AGGREGATION,
    name="MCD15A2.005.Lai_1km.2012-01-01",
    output="MCD15A2.005/Lai_1km",
    outcome=TaskOutcome.DONE,
    files=(FILE,),
)


def text(state: RequestState, found: RequestSummary, **more: Any) -> str:
    title = "Leaf area, British Isles and North Sea coast"
    return compose(title=title, state=state, outcome=found, link=LINK, **more).body


def test_it_says_until_when_results_are_kept() -> None:
    day = date(2026, 12, 24)
    kept = "They are kept until 2026-12-24."
    assert kept in text(RequestState.COMPLETE, outcome([DONE]), kept_until=day)
    assert kept not in text(RequestState.FAILED, outcome([]), kept_until=day)


def test_complete() -> None:
    item = replace(FILE, name="a.json", size=0)  # no file that people count
    letter = compose(
        title="Leaf area",
        state=RequestState.COMPLETE,
        outcome=outcome([replace(DONE, files=(FILE, item)), replace(DONE, key="0b")]),
        link=LINK,
    )
    assert letter.subject == "Leaf area: complete"
    assert 'Your request "Leaf area" is complete.' in letter.body
    assert "2 files (3.0 MB)" in letter.body
    assert LINK in letter.body
    assert "MCD15A2.005/Lai_1km" in letter.body
    assert "What is missing" not in letter.body
    assert "What failed" not in letter.body


def test_gaps_say_which_dates_and_why() -> None:
    gaps = [
        Gap(what=f"MCD15A2.005 2012-03-{day:02d}", reason="the archive has no granule of this date")
        for day in (5, 13, 21)
    ]
    gap = replace(DONE, outcome=TaskOutcome.GAP, files=(), name="h17v03 2012-01-09", message="")
    found = outcome([DONE, gap], gaps)
    body = text(RequestState.GAPS, found)
    assert "What is missing (4 gaps)" in body
    assert "2012-03-05, 2012-03-13, 2012-03-21: the archive has no" in " ".join(body.split())
    assert "h17v03 2012-01-09" in body
    letter = compose(title="", state=RequestState.GAPS, outcome=found, link=LINK)
    assert letter.subject == "your request: complete with 4 gaps"


def test_failures_by_category_with_their_remedy() -> None:
    failed = [
        replace(
            DONE,
            key=f"0{n}",
            output="",
            files=(),
            outcome=TaskOutcome.FAILED,
            phase=Phase.COLLECTION,
            name=f"granule {n}",
            message=f"granule {n} is a web page; fetch it again" if n else "",
            category=Category.BAD_IMAGE_FORMAT,
        )
        for n in range(5)
    ]
    body = " ".join(text(RequestState.FAILED, outcome(failed)).split())
    assert "bad image format, 5 tasks" in body
    assert "a web page named .hdf" in body
    assert "Fetch the file by hand" in body
    assert "- granule 0 - granule 1 is a web page; fetch it again - granule 2" in body
    assert "- and 2 more" in body
    assert "There are no results" in body


def test_reuse_is_told() -> None:
    phases = {
        Phase.COLLECTION: PhaseCount(total=1, done=1, reused=1),
        Phase.REPROJECTION: PhaseCount(total=2, done=2, reused=1),
    }
    body = " ".join(text(RequestState.COMPLETE, outcome([DONE], (), phases)).split())
    assert "all 1 granule, 1 of 2 cells and rasters" in body
    assert "Nothing was fetched again." in body
    phases[Phase.REPROJECTION] = PhaseCount(total=2, done=2, reused=2)
    body = " ".join(text(RequestState.COMPLETE, outcome([DONE], (), phases)).split())
    assert "Nothing was fetched or reprojected again." in body


def test_results_that_lack_an_input_are_named_with_the_share_that_they_have() -> None:
    name = "MCD15A2.005 2012-01-09 h17v03"
    said = Completeness(share=0.5, missing=(Missing(what=name, why="not in the archive"),))
    half = replace(FILE, name="MCD15A2.005.Lai_1km.2012-01-09.tif", completeness=said)
    cube = replace(FILE, name="MCD15A2.005.Lai_1km.nc", completeness=replace(said, share=0.97))
    interest = replace(DONE, output="MCD15A2.005/Lai_1km", files=(FILE, half, cube))
    found = outcome([interest], [Gap(what=name, reason="the archive has no granule")])
    body = " ".join(text(RequestState.GAPS, found).split())
    assert (
        "Made without some of their inputs (2 files): MCD15A2.005/Lai_1km 2012-01-09, the cube "
        "(50% to 97% of the inputs)" in body
    )
    assert (
        f"{name}: the archive has no granule. Affects: MCD15A2.005/Lai_1km 2012-01-09, the cube"
        in body
    )


def test_a_refusal_says_why() -> None:
    body = text(RequestState.REFUSED, RequestSummary(), message="grid.crs: EPSG:1 is not known.")
    assert "was refused. grid.crs: EPSG:1 is not known." in " ".join(body.split())


@given(st.text(max_size=300), st.text(max_size=300))
@example("x" * 300, "")
def test_a_subject_is_one_line_whatever_the_title(title: str, message: str) -> None:
    letter = compose(
        title=title, state=RequestState.FAILED, outcome=RequestSummary(), link=LINK, message=message
    )
    assert len(letter.subject.splitlines()) == 1
    assert len(letter.subject) <= 200
    assert letter.subject.endswith(": failed")


@pytest.mark.parametrize(
    "title",
    ["=?utf-8?q?=0D=0AX-Own:_1?=", "=?utf-8?b?ClgtT3duOiAxCgpPd24=?=", "==??utf-8?q?=0AX-Own:_1?="],
)
def test_a_title_writes_no_header_of_a_mail(title: str) -> None:
    letter = compose(title=title, state=RequestState.FAILED, outcome=RequestSummary(), link=LINK)
    sent = message(
        Mail(
            request="r",
            to="scientist@example.org",
            kind="end",
            subject=letter.subject,
            body=letter.body,
            written=1e9,
        ),
        "swathmill@example.org",
    )
    read = message_from_bytes(sent.as_bytes(), policy=policy.default)
    assert read.keys() == sent.keys()
    assert read["Subject"].endswith(": failed")


def test_a_long_list_is_cut_and_says_so() -> None:
    gaps = [Gap(what=f"cell {n}", reason=f"reason {n}") for n in range(100)]
    assert "and 60 more, on the request's page" in text(RequestState.GAPS, outcome([DONE], gaps))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (RequestState.HELD, "Sign in on its page to let it go on, or to cancel it:"),
        (RequestState.CANCELLED, "Sign in on its page to change it and submit it again:"),
        (RequestState.REFUSED, "Sign in on its page to change it and submit it again:"),
    ],
)
def test_what_a_link_does_not_let_its_reader_do_is_said_to_need_signing_in(
    state: RequestState, said: str
) -> None:
    assert f"{said}\n  {LINK}" in text(state, RequestSummary())
