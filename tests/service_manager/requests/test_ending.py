"""How a request ends: in which state, in which words, and what is written, once."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from reprojection.read.completeness import Completeness
from service_manager.dispatch.manager_cache import Live
from service_manager.requests import ending
from service_manager.requests.ending import Verdict
from tasks.bag.categories import Category
from tasks.bag.model import (
    ArtifactFile,
    MissingPolicy,
    Phase,
    RequestState,
    TaskOutcome,
)
from tasks.bag.task_rows import Interest
from tasks.errors import StoreError
from tasks.request.document import dump_request
from tasks.requests import outbox, request_operations, request_table
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount, Preparation, RequestRow
from tasks.service import tracing
from tasks.service.memory_runtime import memory_runtime
from tasks.service.tracing import Span
from tasks.storage.blobs import RESULTS
from tasks.storage.clock import ManualClock
from tests.service_manager.test_decisions import crashed, interest
from tests.service_manager.workbench import document

DONE, FAILED, GAP = TaskOutcome.DONE, TaskOutcome.FAILED, TaskOutcome.GAP
SUPERSEDED = TaskOutcome.SUPERSEDED
BAD = Category.BAD_IMAGE_FORMAT
NO_GRANULE = Gap(what="day", reason="no granule")


def result(name: str, outcome: TaskOutcome | None = DONE, *, lacks: bool = False) -> Interest:
    file = ArtifactFile(name=f"{name}.tif", blob="b", size=1, sha256="")
    if lacks:
        file = replace(file, completeness=Completeness(share=0.5))
    return replace(interest(name, DONE, output="own/x"), outcome=outcome, files=(file,))


# --- in which state, and in which words ---


def test_a_long_cause_is_cut_in_the_line_of_the_state() -> None:
    cause = "the file holds " + ", ".join(f"layer {n}" for n in range(100))
    failed = replace(interest("g1", FAILED, category=BAD), message=cause)
    said = ending.judge(MissingPolicy.SKIP, [failed, result("a")], []).message
    assert said.startswith(
        "1 of 1 results are there; some lack an input: g1: bad image format: the"
    )
    assert said.endswith(" ...")
    assert len(said) < 400
    assert cause in ending.lacking([failed], [])[0].reason


@pytest.mark.parametrize(
    ("interests", "gaps", "state", "message"),
    [
        ([result("a"), result("b")], [], RequestState.COMPLETE, "all 2 results are there"),
        (
            [interest("g1", FAILED, category=BAD), result("a", GAP), result("b", GAP)],
            [],
            RequestState.FAILED,
            "none of the 2 results could be made: g1: bad image format: said so",
        ),
        (
            [interest("g1", FAILED, category=BAD), result("a", GAP), result("b")],
            [],
            RequestState.GAPS,
            "1 of 2 results are there; 1 could not be made: g1: bad image format: said so",
        ),
        (
            [interest("g1", FAILED), result("a")],
            [],
            RequestState.GAPS,
            "1 of 1 results are there; some lack an input: g1: unknown",
        ),
        (
            [result("a")],
            [NO_GRANULE],
            RequestState.GAPS,
            "1 of 1 results are there; the archive does not have all that was asked for",
        ),
        (
            [result("a", lacks=True), result("b")],
            [NO_GRANULE],
            RequestState.GAPS,
            "2 of 2 results are there; 1 of them lacks an input",
        ),
        (
            [result("a", lacks=True), result("b", lacks=True), result("c", SUPERSEDED)],
            [],
            RequestState.GAPS,
            "2 of 2 results are there; 2 of them lack an input",
        ),
        # What has no outcome yet belongs to a request that is cancelled.
        ([result("a"), interest("g", DONE)], [], RequestState.COMPLETE, "the result is there"),
    ],
)
def test_what_is_said_of_a_request_that_skips_what_is_missing(
    interests: list[Interest], gaps: list[Gap], state: RequestState, message: str
) -> None:
    found = ending.judge(MissingPolicy.SKIP, interests, gaps)
    assert found == Verdict(state=state, message=message)


@pytest.mark.parametrize(
    ("interests", "first"),
    [
        (
            [result("a", GAP), interest("h", FAILED), interest("g1", FAILED, category=BAD)],
            "g1: bad image format: said so",
        ),
        ([result("a", GAP)], "a: none of its inputs could be made"),
        ([replace(result("a", GAP), message="of g")], "a: of g"),
        ([replace(result("a.hdf", GAP), message="bad: a.hdf is cut off")], "bad: a.hdf is cut off"),
        # Its fallback task was made: it was failed by what it lacked.
        ([result("b"), interest("g", SUPERSEDED)], "g: unknown"),
    ],
)
def test_what_is_said_of_a_request_that_fails_when_anything_is_missing(
    interests: list[Interest], first: str
) -> None:
    found = ending.judge(MissingPolicy.FAIL, interests, [])
    assert found == Verdict(
        state=RequestState.FAILED,
        message=f"{first}; the request asks to fail when anything is missing (on_missing: fail)",
    )


@pytest.mark.parametrize(
    ("others", "said"),
    [(1, "1 other result is there"), (2, "2 other results are there")],
)
def test_what_is_said_of_a_reduction_of_several_steps_without_a_result(
    others: int, said: str
) -> None:
    made = [replace(result(f"layer {i}"), output="MOD/x") for i in range(others)]
    interests = [crashed(0), *made, replace(result("r", GAP), output="second/x")]
    found = ending.judge(MissingPolicy.SKIP, interests, [], steps=["first", "second"])
    assert found.state is RequestState.FAILED
    assert found.message.startswith("no result of the reduction first and second could be made: ")
    assert found.message.endswith(f"(1 of 1 runs); {said}")


@pytest.mark.parametrize("others", [1, 0])
def test_a_reduction_that_crashed_is_said_to_have_crashed_though_granules_are_damaged(
    others: int,
) -> None:
    damaged = [interest(f"g{i}", FAILED, category=Category.UNREADABLE_INPUT_FILE) for i in range(3)]
    made = [replace(result(f"layer {i}"), output="MOD/x") for i in range(others)]
    interests = [*damaged, crashed(0), *made, result("r", GAP)]
    found = ending.judge(MissingPolicy.SKIP, interests, [], steps=["own"])
    assert found.state is RequestState.FAILED
    assert " could be made: user code failed: python own.py ended" in found.message


def test_a_reduction_that_was_never_run_lacks_what_failed_before_it() -> None:
    damaged = interest("g", FAILED, category=Category.UNREADABLE_INPUT_FILE)
    found = ending.judge(MissingPolicy.SKIP, [damaged, result("r", GAP)], [], steps=["own"])
    assert found.message == "none of the 1 results could be made: g: unreadable input file: said so"


def test_what_had_been_done_before_is_counted() -> None:
    phases = {
        Phase.COLLECTION: PhaseCount(total=4, reused=2),
        Phase.AGGREGATION: PhaseCount(total=1, reused=1),
    }
    found = ending.judge(MissingPolicy.SKIP, [result("a")], [], phases=phases)
    assert found.message == "the result is there; 3 of 5 tasks had been done before"


def test_what_a_cancelled_request_has_is_counted() -> None:
    counts = {
        Phase.COLLECTION: PhaseCount(total=4000, cancelled=1500),
        Phase.AGGREGATION: PhaseCount(total=1000, cancelled=1000),
    }
    row = RequestRow(
        id="r",
        owner="o",
        state=RequestState.CANCELLING,
        submitted=0.0,
        phases=counts,
        outputs=2000,
        delivered=1000,
    )
    assert ending.cancelled(row) == Verdict(
        state=RequestState.CANCELLED,
        message="1,000 of 2,000 results were finished and are kept; 2,500 of 5,000 tasks were not "
        "carried out",
    )


@pytest.mark.parametrize(
    ("interests", "gaps"),
    [
        ([result("a"), interest("g", GAP)], []),
        (
            [result("b", GAP), interest("h", FAILED), interest("g1", FAILED, category=BAD)],
            [
                Gap(what="g1", reason="bad image format: said so"),
                Gap(what="h", reason="unknown"),
                Gap(what="b", reason="none of its inputs could be made"),
            ],
        ),
        (
            [crashed(0), *(crashed(n, "not run", stopped=True) for n in range(1, 2001))],
            [
                Gap(
                    what="r0c0 2012-04",
                    reason="user code failed: python own.py ended with exit code 1: "
                    "ModuleNotFoundError: No module named 'scipy'",
                ),
                Gap(
                    what="2,000 more runs of the reduction",
                    reason="user code failed: not run",
                ),
            ],
        ),
        (
            [result("b", SUPERSEDED), result("a", SUPERSEDED), result("c")],
            [
                Gap(what=name, reason="made without an input that was lost from storage")
                for name in "ab"
            ],
        ),
    ],
)
def test_what_is_lacking_is_listed_by_phase_then_name(
    interests: list[Interest], gaps: list[Gap]
) -> None:
    assert ending.lacking(interests, [NO_GRANULE]) == (NO_GRANULE, *gaps)


def test_a_gap_is_named_though_its_cause_was_mended_for_another_request() -> None:
    """The input that failed was made since; the cell without it stays a gap of this one."""
    gap = replace(interest("c", GAP), message="g: not there")
    found = ending.lacking([result("a"), interest("g", DONE), gap], [])
    assert found == (Gap(what="c", reason="g: not there"),)


# --- what is written ---


@dataclass
class Ending:
    """A request in the tables, as its manager knows it."""

    state: RequestState = RequestState.RUNNING
    more: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runtime = memory_runtime(ManualClock())
        row = RequestRow(
            **{  # type: ignore[arg-type]
                "id": "r",
                "owner": "o",
                "title": "p",
                "state": self.state,
                "submitted": 5.0,
                "document": dump_request(document("p")),
                **self.more,
            }
        )
        operations = request_table.insert_request(row)
        self.runtime.store.transact(request_table.TABLE, request_table.PARTITION, operations)
        self.live = Live(row=self.row, policy=MissingPolicy.SKIP)

    @property
    def row(self) -> RequestRow:
        return request_operations.load(self.runtime, "r")

    @property
    def mails(self) -> list[outbox.Mail]:
        return list(outbox.mails(self.runtime.store))

    def end(self, interests: Sequence[Interest], stored: RequestRow | None = None) -> RequestRow:
        for one in interests:
            self.live.note(replace(one, key=hashlib.sha256(one.key.encode()).hexdigest()))
        return ending.end(
            self.runtime,
            self.live,
            stored or self.row,
            interests,
            portal_url="https://portal.example/",
            result_days=30.0,
            epoch=7,
        )

    def end_without_plan(self, state: RequestState) -> RequestRow:
        return ending.end_without_plan(
            self.runtime, self.row, state, "why", portal_url="https://portal.example/"
        )


def test_a_request_ends_with_its_counts_its_gaps_and_a_mail() -> None:
    one = Ending()
    interests = [interest("g1", FAILED, category=BAD), result("a")]
    now = one.runtime.clock.now()
    row = one.end(interests)
    assert row == one.row
    assert (row.state, row.ended, row.epoch) == (RequestState.GAPS, now, 7)
    assert row.message == (
        "1 of 1 results are there; some lack an input: g1: bad image format: said so"
    )
    assert (row.outputs, row.delivered) == (1, 1)
    assert row.phases[Phase.COLLECTION] == PhaseCount(total=1, failed=1)
    assert row.gaps == (Gap(what="g1", reason="bad image format: said so"),)
    assert row.gap_count == 1
    assert row.document
    (mail,) = one.mails
    assert (mail.to, mail.written, mail.request) == ("scientist@example.org", now, "r")
    assert mail.subject == "p: complete with 1 gap"
    body = " ".join(mail.body.split())
    assert row.message in body
    assert "https://portal.example/requests/r" in body
    assert "kept until 2023-12-14" in body


@pytest.mark.parametrize("planned", [True, False])
def test_a_request_whose_mail_could_not_be_written_has_not_ended(
    planned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended before its mail, it would never get one."""
    one = Ending(RequestState.RUNNING if planned else RequestState.PLANNING)

    def end() -> RequestRow:
        return one.end([result("a")]) if planned else one.end_without_plan(RequestState.FAILED)

    def away(*_: object) -> None:
        raise StoreError("storage is away")

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "put", away)
        with pytest.raises(StoreError):
            end()
    assert not one.row.state.ended
    assert one.mails == []
    assert end().state.ended
    assert len(one.mails) == 1


def test_more_gaps_than_a_row_has_are_kept_in_a_blob_and_an_end_may_be_repeated() -> None:
    one = Ending()
    interests = [interest(f"g{i:03}", FAILED) for i in range(51)]
    stored = one.row
    first = one.end([*interests, result("a")], stored)
    assert (len(first.gaps), first.gap_count) == (50, 51)
    found = request_operations.gaps(one.runtime, first)
    assert [gap.what for gap in found] == [f"g{i:03}" for i in range(51)]
    assert one.end([*interests, result("a")], stored) == first
    assert len(one.mails) == 1


def test_as_many_gaps_as_a_row_has_are_in_no_blob() -> None:
    one = Ending()
    row = one.end([*(interest(f"g{i:03}", FAILED) for i in range(50)), result("a")])
    assert len(request_operations.gaps(one.runtime, row)) == 50
    assert not one.runtime.blobs.exists(RESULTS, request_operations.gaps_blob("r"))


@pytest.mark.parametrize(
    ("state", "known", "orders", "ends"),
    [
        (RequestState.RUNNING, RequestState.RUNNING, (), True),
        (RequestState.RUNNING, RequestState.RUNNING, ("all",), False),
        (RequestState.CANCELLING, RequestState.RUNNING, (), False),  # not heard of yet
        (RequestState.CANCELLING, RequestState.CANCELLING, ("all",), True),
    ],
)
def test_a_request_with_an_order_that_is_not_obeyed_yet_goes_on(
    state: RequestState, known: RequestState, orders: tuple[str, ...], ends: bool
) -> None:
    one = Ending(state, {"retry_orders": orders})
    one.live.row = replace(one.live.row, state=known)
    row = one.end([result("a")])
    assert row.state.ended == ends
    assert row == one.row
    assert len(one.mails) == ends
    if ends:
        assert row.retry_orders == ()


def test_a_request_whose_row_has_changed_since_goes_on() -> None:
    one = Ending()
    stored = one.row
    request_operations.change_request(one.runtime, "r", lambda row: replace(row, retried=True))
    assert one.end([result("a")], stored).state is RequestState.RUNNING


@pytest.mark.parametrize(
    ("state", "dry", "told"),
    [
        (RequestState.REFUSED, False, True),
        (RequestState.FAILED, False, True),
        (RequestState.FAILED, True, False),
        (RequestState.PREVIEWED, True, False),
        (RequestState.PREVIEWED, False, False),
    ],
)
def test_a_request_without_a_plan_ends_and_is_told_by_mail_unless_it_is_a_preview(
    state: RequestState, dry: bool, told: bool
) -> None:
    one = Ending(
        RequestState.PLANNING,
        {"dry_run": dry, "preparation": Preparation(total=3, unit="days")},
    )
    row = one.end_without_plan(state)
    assert row == one.row
    assert (row.state, row.message, row.ended) == (state, "why", one.runtime.clock.now())
    assert row.preparation is None
    assert row.document
    assert len(one.mails) == told
    for mail in one.mails:
        assert (mail.to, mail.written) == ("scientist@example.org", row.ended)
        assert "Why." in mail.body
        assert "https://portal.example/requests/r" in mail.body


def test_the_span_of_a_request_says_how_it_ended(spans: list[Span]) -> None:
    one = Ending()
    row = one.end([interest("g", DONE), result("a")])
    assert spans == [
        Span(
            name="request",
            trace=tracing.trace_of("r"),
            id=tracing.root_of("r"),
            began=5.0,
            ended=row.ended,
            attributes={
                "swathmill.request": "r",
                "swathmill.state": "complete",
                "swathmill.tasks": 2,
                "swathmill.results": 1,
            },
        )
    ]


@pytest.mark.parametrize("state", [RequestState.FAILED, RequestState.REFUSED])
def test_the_span_of_a_request_that_failed_says_why(spans: list[Span], state: RequestState) -> None:
    Ending(RequestState.PLANNING).end_without_plan(state)
    assert [span.failure for span in spans] == ["why"]


def test_the_cause_in_the_line_of_a_state_has_so_many_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cause, said in (
        ("abcd " * 60, "abcd " * 60),
        ("abcd " * 60 + "e", "abcd " * 59 + "abcd ..."),
    ):
        monkeypatch.setattr(ending, "first_cause", lambda *_, cause=cause: cause)
        assert ending._cause([], {}) == f": {said}"
    assert ending._LONGEST == 300
