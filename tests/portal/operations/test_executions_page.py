"""Executions beside those of 2010, and the way from a number to an attempt's log."""

import datetime as dt
import re
from collections.abc import Iterator

import pytest

from portal.operations import executions
from portal.operations.executions import TOTAL_2010, parse_filters
from portal.serving.problems import BadCallError
from tasks.bag import history
from tasks.bag.categories import Category
from tasks.bag.history import DayCount
from tasks.bag.model import Phase
from tasks.bag.runtime import Runtime
from tasks.storage.store import BATCH_OPERATIONS, Operation, Upsert
from tests.portal.scripted import LivePortal, put_executions, put_failed_task
from tests.portal.submissions import submitted

OPERATOR = ("op@example.org", "operator")
FIRST, LAST = dt.date(2010, 2, 1), dt.date(2010, 9, 30)
PERIOD = f"first={FIRST}&last={LAST}"
DAYS = (LAST - FIRST).days + 1

# The tables as the study prints them: executions and percent.
PAPER_PHASES = {
    "collection": ("139,609", "4.57"),
    "aggregation": ("8,706", "0.29"),
    "reprojection": ("1,704,002", "55.79"),
    "reduction": ("1,202,113", "39.36"),
}
PAPER_OUTCOMES = {
    "success": ("2,000,656", "65.50"),
    "unknown failure": ("345,180", "11.30"),
    "blob already exists": ("182,726", "5.98"),
    "unknown, null log": ("139,609", "4.57"),
    "download source data failed": ("125,164", "4.10"),
    "connection failure": ("8,966", "0.29"),
    "VM execution timeout": ("5,300", "0.17"),
    "operation timeout": ("4,178", "0.14"),
    "corrupt blob read": ("3,107", "0.10"),
    "server busy": ("1,287", "0.04"),
    "blob read fail": ("638", "0.02"),
    "non-existent source blob": ("519", "0.02"),
    "unable to read input file": ("20", "0.00"),
    "bad image format": ("15", "0.00"),
    "transport error": ("12", "0.00"),
    "internal storage client error": ("10", "0.00"),
    "out of disk space": ("7", "0.00"),
}
OURS = {
    "success": None,
    "unknown failure": Category.UNKNOWN,
    "blob already exists": Category.CANCELLED,
    "unknown, null log": Category.WORKER_LOST,
    "download source data failed": Category.DOWNLOAD_FAILED,
    "connection failure": Category.CONNECTION_FAILURE,
    "VM execution timeout": Category.EXECUTION_TIMEOUT,
    "operation timeout": Category.OPERATION_TIMEOUT,
    "corrupt blob read": Category.CORRUPT_BLOB_READ,
    "server busy": Category.SERVER_BUSY,
    "blob read fail": Category.BLOB_READ_FAILED,
    "non-existent source blob": Category.SOURCE_BLOB_MISSING,
    "unable to read input file": Category.UNREADABLE_INPUT_FILE,
    "bad image format": Category.BAD_IMAGE_FORMAT,
    "transport error": Category.TRANSPORT_ERROR,
    "internal storage client error": Category.STORAGE_CLIENT_ERROR,
    "out of disk space": Category.OUT_OF_DISK,
}
PRODUCTS = ("MOD04_L2.5", "MOD05_L2.5", "MOD06_L2.5", "MOD11_L2.5", "MCD43B3.5", "MCD15A2.5")


def number(text: str) -> int:
    return int(text.replace(",", ""))


def as_in_2010() -> Iterator[DayCount]:
    """Counts of 242 days whose sums by phase and by outcome are those of the study.

    Outcomes are dealt to the phases in order, and each part to the days and to classes.
    """
    outcomes = [(OURS[name], number(count)) for name, (count, _) in PAPER_OUTCOMES.items()]
    rest = TOTAL_2010 - sum(count for _, count in outcomes)
    outcomes += [(Category.USER_CODE_FAILED, rest - 1000), (Category.OUT_OF_MEMORY, 1000)]
    left = {Phase(name): number(count) for name, (count, _) in PAPER_PHASES.items()}
    turn = 0
    for category, count in sorted(outcomes, key=lambda one: one[1]):
        for phase in Phase:
            share = count if phase is Phase.REDUCTION else min(left[phase], count)
            share = min(share, left[phase])
            left[phase] -= share
            count -= share
            for at in range(DAYS):
                part = share // DAYS + (at < share % DAYS)
                if not part:
                    continue
                turn += 1
                name = PRODUCTS[turn % len(PRODUCTS)]
                task_class = f"{phase.value} {name} 0.01, 1-2 Mpx"
                if phase is Phase.REDUCTION:
                    task_class = f"reduction evapotranspiration-{turn % 3} 01234567"
                if phase is Phase.AGGREGATION:
                    task_class = "aggregation mosaic 0.01"
                yield DayCount(
                    day=FIRST + dt.timedelta(days=at),
                    phase=phase,
                    task_class=task_class,
                    category=category,
                    count=part,
                    seconds=300.0 * part,
                )


@pytest.fixture
def in_2010(runtime: Runtime) -> Runtime:
    """The rows that counting 3,054,430 attempts would leave; each attempt itself is not made."""
    operations: list[Operation] = [
        Upsert(
            row="d|" + history._outcome(one.day, one.phase, one.task_class, one.category),
            entity=history._DAY.dump(one),
        )
        for one in as_in_2010()
    ]
    for start in range(0, len(operations), BATCH_OPERATIONS):
        runtime.store.transact(
            history.TABLE, history.PARTITION, operations[start : start + BATCH_OPERATIONS]
        )
    return runtime


def table(page: str, name: str) -> dict[str, list[str]]:
    """The cells of a table of the page, by the first word-group of each row's head."""
    section = page.split(f'id="{name}"')[1].split("</section>")[0]
    found = {}
    for row in re.findall(r"<tr><th scope=\"row\".*?</tr>", section, re.DOTALL):
        head = re.sub(r"<(?:span|br).*", "", row.split("</th>")[0], flags=re.DOTALL)
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        found[re.sub(r"<[^>]*>", "", head).strip()] = [
            re.sub(r"<[^>]*>", "", cell).strip() for cell in cells
        ]
    return found


def test_executions_as_in_2010_give_the_table_of_the_study_to_the_digit(
    portal: LivePortal, in_2010: Runtime
) -> None:
    assert portal.runtime is in_2010
    with portal.browser(*OPERATOR) as client:
        page = client.get(f"/operations/executions?{PERIOD}").text
        outcomes = client.get(f"/operations/executions/outcomes.csv?{PERIOD}").text
    assert f"{TOTAL_2010:,} executions from" in page
    assert TOTAL_2010 == 3_054_430
    shown = table(page, "phases")
    assert {name: (c[0], c[1]) for name, c in shown.items()} == {
        name: (count, f"{share}%") for name, (count, share) in PAPER_PHASES.items()
    }
    lines = table(page, "outcomes")
    others = lines.pop("others")
    assert {name: (c[0], c[1]) for name, c in lines.items()} == {
        name: (count, f"{share}%") for name, (count, share) in PAPER_OUTCOMES.items()
    }
    # What the page says of 2010 is the same, in the columns beside.
    assert all(cells[:2] == cells[2:] for cells in (*shown.values(), *lines.values(), others))
    assert "VM execution timeout,execution timeout,5300,0.1735,5300,0.1735" in outcomes


def test_counting_attempts_leaves_the_rows_that_the_page_adds_up(
    portal: LivePortal, runtime: Runtime
) -> None:
    day = dt.datetime(2010, 3, 1, tzinfo=dt.UTC)
    put_executions(runtime, day, {None: 65, Category.EXECUTION_TIMEOUT: 16, Category.UNKNOWN: 19})
    with portal.browser(*OPERATOR) as client:
        page = client.get(f"/operations/executions?{PERIOD}").text
        days = client.get(f"/operations/executions/timeouts.csv?{PERIOD}").text
    assert table(page, "outcomes")["VM execution timeout"][:2] == ["16", "16.00%"]
    assert table(page, "phases")["collection"][:2] == ["100", "100.00%"]
    assert "2010-03-01,100,35,16,16.0" in days
    assert len(days.splitlines()) == DAYS + 1
    assert "The highest day is 2010-03-01 with 16.00% (16 of 100)" in page


def test_filters_take_what_they_name(runtime: Runtime) -> None:
    day = dt.datetime(2010, 3, 1, tzinfo=dt.UTC)
    put_executions(runtime, day, {None: 3}, "collection MCD15A2.5", owner="a@example.org")
    put_executions(runtime, day, {None: 4}, "reprojection MOD04_L2.5 0.01", worker="w 2")
    put_executions(runtime, day, {None: 5}, "reduction ada/lai@2 01234567", owner="b@example.org")
    put_executions(runtime, day + dt.timedelta(days=1), {None: 6}, "collection MCD15A2.5")

    def count(**named: str) -> int:
        meant = parse_filters(LAST, 14, {"first": str(FIRST), "last": str(LAST), **named})
        return executions.executions(runtime.store, meant).total

    assert count() == 18
    assert count(phase="collection") == 9
    assert count(product="MCD15A2.5") == 9
    assert count(package="ada/lai@2") == 5
    assert count(owner="a@example.org") == 3
    assert count(owner="a@example.org", phase="reduction") == 0
    assert count(worker="w 2") == 4
    assert count(worker="w") == 0
    assert count(last="2010-03-01") == 12
    with pytest.raises(BadCallError, match="not by both"):
        count(owner="a", worker="b")
    for wrong in ({"first": "2010-13-01"}, {"phase": "x"}, {"last": "2009-01-01"}):
        with pytest.raises(BadCallError):
            count(**wrong)


def test_from_a_bar_to_the_attempts_to_a_log(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    key = put_failed_task(runtime, name, "A.hdf", (Category.EXECUTION_TIMEOUT,))
    now = dt.datetime.fromtimestamp(runtime.clock.now(), dt.UTC)
    put_executions(runtime, now, {Category.EXECUTION_TIMEOUT: 1}, keys=[key])
    with portal.browser(*OPERATOR) as client:
        page = client.get("/operations/executions").text
        bar = re.search(r'<svg class="drawn-chart".*?<a href="([^"]+)"', page, re.DOTALL)
        assert bar is not None
        listed = client.get(bar[1].replace("&amp;", "&")).text
        assert f'href="/tasks/{key}#log-1"' in listed
        log = client.get(f"/tasks/{key}").text
        csv = client.get(f"/operations/attempts.csv?first={now.date()}").text
    assert re.search(r'<pre[^>]* id="log-1"[^>]*>fetching A.hdf', log)
    assert f",{key},1," in csv


@pytest.mark.parametrize(
    "address",
    [
        "/operations/executions",
        "/operations/executions/outcomes.csv",
        "/operations/attempts",
        "/operations/attempts.csv",
    ],
)
def test_executions_are_for_operators(portal: LivePortal, address: str) -> None:
    with portal.browser() as scientist:
        assert scientist.get(address).status_code == 403
        scientist.cookies.clear()
        assert scientist.get(address).status_code == 401


def test_so_many_days_are_looked_at_at_once() -> None:
    today = dt.date(2026, 1, 1)
    last = today + dt.timedelta(days=executions._LONGEST)
    named = {"first": str(today), "last": str(last)}
    assert executions.parse_filters(today, 14, named).last == last
    later = {"first": str(today), "last": str(last + dt.timedelta(days=1))}
    with pytest.raises(BadCallError) as said:
        executions.parse_filters(today, 14, later)
    assert "at most 3660 days earlier" in said.value.remedy
