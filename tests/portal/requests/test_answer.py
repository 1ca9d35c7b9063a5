"""What a request's page opens with: results, what is wrong, what is next."""

from dataclasses import replace

import pytest

from portal.requests.answer import Cause, answer
from tasks.bag.categories import RULES, Category
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount, RequestRow
from tests.portal.scripted import LivePortal, put_failed_task, set_row
from tests.portal.submissions import submitted

ROW = RequestRow(
    id="r", owner="a", state=RequestState.GAPS, submitted=100.0, ended=160.0, outputs=8, delivered=6
)


def test_a_cause_comes_with_its_number_and_what_to_do() -> None:
    rule = RULES[Category.UNREADABLE_INPUT_FILE]
    causes = [Cause(category="unreadable input file", count=1200, rule=rule)]
    found = answer(ROW, causes, 500.0, may_retry=True)
    assert (found.results, found.share) == ("6 of 8", 0.75)
    assert found.wrong[0].text == "1,200 tasks failed: unreadable input file."
    assert found.wrong[0].remedy == rule.remedy
    assert found.facts == (("Time", "1 min"),)


@pytest.mark.parametrize("state", list(RequestState))
def test_each_state_has_a_next_step(state: RequestState) -> None:
    row = RequestRow(id="r", owner="a", state=state, submitted=1.0)
    found = answer(row, [], 2.0, may_retry=False)
    assert found.next.endswith(".")
    assert found.results == ("none" if state.ended else "not planned yet")


def test_failures_are_told_though_their_causes_are_not_read() -> None:
    found = answer(ROW, [Cause(category="", count=2400, rule=None)], 500.0, may_retry=True)
    assert found.wrong[0].text == "2,400 tasks failed."


def test_what_goes_on_by_itself_alone_is_said_to() -> None:
    paused = replace(ROW, state=RequestState.RUNNING, paused=True)
    counted = replace(ROW, state=RequestState.PREVIEWED, delivered=0)
    said = [answer(one, [], 500.0, may_retry=False).next for one in (paused, counted)]
    assert said[0].startswith("Resume")
    assert "submit it again" in said[1]


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("state", list(RequestState))
def test_who_may_give_no_orders_is_not_told_to(state: RequestState, *, paused: bool) -> None:
    said = answer(replace(ROW, state=state, paused=paused), [], 500.0, may_retry=True, mine=False)
    assert not said.next.startswith(("Resume", "Submit", "It needs you"))
    assert "retry" not in said.next


def test_what_failed_is_not_told_again_as_missing_in_the_archive() -> None:
    damaged = Gap(what="A.hdf", reason="unreadable input file: A.hdf is damaged")
    absent = Gap(what="MCD15A2.005 2012-01-01", reason="the archive has no granule of this date")
    causes = [Cause(category="unreadable input file", count=1, rule=None)]
    told = {
        gaps: [one.text for one in answer(row, causes, 500.0, may_retry=True).wrong[1:]]
        for gaps in ((damaged,), (damaged, absent))
        for row in [replace(ROW, gaps=gaps, gap_count=len(gaps))]
    }
    assert told[damaged,] == []
    assert told[damaged, absent] == ["1 input is not available in the archive."]
    many = replace(ROW, gaps=(damaged, absent), gap_count=700)
    assert answer(many, causes, 500.0, may_retry=True).wrong[-1].text == "700 inputs are missing."


@pytest.mark.parametrize("delivered", [0, 2])
def test_a_cancelled_request_keeps_what_there_is(delivered: int) -> None:
    row = replace(ROW, state=RequestState.CANCELLED, delivered=delivered)
    said = answer(row, [], 500.0, may_retry=False).next
    assert said.startswith("Finished results stay.") == bool(delivered)
    assert "Submit it again to go on" in said


def test_the_page_says_what_is_wrong_before_its_parts(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    put_failed_task(runtime, name, "A.hdf", (Category.UNREADABLE_INPUT_FILE,))
    lacks = tuple(Gap(what=f"MCD15A2.005 2012-01-{day}", reason="none") for day in ("01", "09"))
    set_row(
        runtime,
        name,
        state=RequestState.GAPS,
        ended=1e9,
        outputs=8,
        delivered=6,
        gaps=lacks,
        gap_count=2,
        phases={Phase.COLLECTION: PhaseCount(total=8, done=7, failed=1)},
    )
    with portal.browser() as client:
        page = client.get(f"/requests/{name}").text
    before, _, after = page.partition('<nav class="tabs"')
    assert "<b>6 of 8</b>" in before
    assert "1 task failed: unreadable input file." in before
    assert "2 inputs are not available in the archive." in before
    assert after.index('id="lacks"') < after.index('id="document"')
