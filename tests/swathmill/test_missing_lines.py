"""What a request lacks, as the command prints it."""

import datetime as dt

from swathmill.missing_lines import failure_lines, gap_lines, incomplete_lines, shortened
from tasks.answers.results import GapAnswer, MissingAnswer
from tests.swathmill.answered import read_failure, read_result

RASTER = "MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km.2012-01-09.tif"


def test_four_hundred_gaps_are_one_line_that_names_results() -> None:
    days = [dt.date(2012, 1, 1) + dt.timedelta(days=n) for n in range(454)]
    gaps = [GapAnswer(what=f"MYD04_L2.061 {day}", why="none", affects=(RASTER,)) for day in days]
    assert gap_lines(gaps) == [
        "gap: MYD04_L2.061 each day from 2012-01-01 to 2013-03-29: none "
        "(affects MCD15A2.005/Lai_1km 2012-01-09)"
    ]


def test_a_list_that_is_cut_says_how_much_and_where_to_read_it() -> None:
    run = read_failure(key="e2", phase="reduction", name="mean r0c0", category="user code failed")
    assert failure_lines([run]) == [
        "failed: mean r0c0: user code failed (what it was given: swathmill inputs e2)"
    ]
    (line,) = failure_lines([read_failure(name="x", output="a/b", category="upstream failed")])
    assert line == "failed: a/b: an input could not be made"
    lines = failure_lines([read_failure(name=f"g{n}", category="unknown") for n in range(50)])
    assert shortened(lines, 50, "there") == lines
    cut = shortened(lines, 40, "http://here/api/requests/x/failures")
    assert len(cut) == 41
    assert cut[-1] == "and 10 more lines: http://here/api/requests/x/failures"


def test_failures_by_one_cause_are_one_line() -> None:
    said = "the QA rule names layer 'x', which MOD13A2.A2018001.h18v04.061.1.hdf does not hold"
    failures = [
        *(
            read_failure(key=f"c{n}", name=f"cell {n}", category="choice refused", message=said)
            for n in range(5)
        ),
        read_failure(
            key="m",
            output="MOD13A2.061/NDVI",
            category="upstream failed",
            message=f"a cell of 2018-01-01: choice refused: {said}",
        ),
        read_failure(key="g", name="g", category="unknown", message="boom"),
    ]
    first, second = failure_lines(failures, messages=True)
    assert first == f"failed: cell 0, cell 1, cell 2 and 3 more: choice refused: {said}"
    assert second == "failed: g: unknown: boom"
    assert failure_lines(failures)[0] == "failed: cell 0, cell 1, cell 2 and 3 more: choice refused"


def test_incomplete_results_are_told_with_their_share() -> None:
    missing = (MissingAnswer(what="a", why="not in the archive"),)
    half = read_result(
        name=RASTER, size=1, sha256="0", url="x", completeness=0.5, missing=missing, missing_count=1
    )
    whole = read_result(name=RASTER.replace("09", "17"), size=1, sha256="0", url="y")
    assert incomplete_lines([half, whole]) == [
        "incomplete: MCD15A2.005/Lai_1km 2012-01-09 (50% of the inputs)"
    ]
