"""What a request is told of its failures and empty rasters: which cause, of how many."""

from dataclasses import replace

import pytest

from reprojection.read.completeness import Completeness, Missing
from service_manager.events.causes import empty_rasters, first_cause, found_later, inherited, order
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile, Phase, State, Task, TaskOutcome
from tasks.bag.spec import Input
from tasks.bag.task_rows import Interest

BAD, LOST = Category.BAD_IMAGE_FORMAT, Category.DOWNLOAD_FAILED


def failed(
    name: str,
    category: Category | None = BAD,
    message: str = "cut off",
    phase: Phase = Phase.COLLECTION,
    *,
    stopped: bool = False,
) -> Interest:
    return Interest(
        request="r",
        key=f"key of {name}",
        phase=phase,
        name=name,
        outcome=TaskOutcome.FAILED,
        category=category,
        message=message,
        stopped=stopped,
    )


def run(number: int, message: str = "crash", *, stopped: bool = False) -> Interest:
    return failed(
        f"r{number}", Category.USER_CODE_FAILED, message, Phase.REDUCTION, stopped=stopped
    )


@pytest.mark.parametrize(
    ("interests", "expected"),
    [
        ([], ""),
        ([replace(failed("a.hdf"), outcome=TaskOutcome.GAP)], ""),
        ([failed("a.hdf")], "a.hdf: bad image format: cut off"),
        ([failed("a.hdf", None, "")], "a.hdf: unknown"),
        ([failed("a.hdf", message="a.hdf is cut off")], "bad image format: a.hdf is cut off"),
        (
            [failed("c.hdf", LOST), failed("b.hdf"), failed("a.hdf")],
            "a.hdf: bad image format: cut off (and 1 more task)",
        ),
        (
            [failed("a.hdf", message="odd"), failed("b.hdf"), failed("c.hdf")],
            "b.hdf: bad image format: cut off (and 2 more tasks)",
        ),
        (
            [failed(f"g{i:04}", None) for i in range(1500)],
            "g0000: unknown: cut off (and 1,499 more tasks)",
        ),
    ],
)
def test_the_first_cause_is_the_most_frequent_one(interests: list[Interest], expected: str) -> None:
    assert first_cause(interests, 0) == expected


@pytest.mark.parametrize(
    ("runs", "of", "expected"),
    [
        ([run(0)], 0, "(1 of 1 runs)"),
        ([run(0), run(1)], 2000, "(2 of 2,000 runs)"),
        ([run(0), run(1), run(2, "odd")], 3, "(3 of 3 runs, 2 of them in these words)"),
        (
            [run(0), run(1, "not run", stopped=True), run(2, "not run", stopped=True)],
            3,
            "(1 of 3 runs; 2 were not run, because the first all failed)",
        ),
        # Only what was stopped is left of it.
        ([run(n, stopped=True) for n in range(2)], 2, "(2 of 2 runs)"),
    ],
)
def test_failed_runs_of_a_reduction_are_counted(
    runs: list[Interest], of: int, expected: str
) -> None:
    assert first_cause(runs, of) == f"user code failed: crash {expected}"


def test_numbers_of_runs_are_written_as_all_numbers_are() -> None:
    runs = [
        *(run(n) for n in range(2000)),
        run(2000, "odd"),
        *(run(n, stopped=True) for n in range(3000, 6000)),
    ]
    assert first_cause(runs, 0) == (
        "user code failed: crash (2,001 of 5,001 runs, 2,000 of them in these words; 3,000 were "
        "not run, because the first all failed)"
    )


def test_tasks_are_told_by_phase_then_name() -> None:
    late = failed("a", phase=Phase.REPROJECTION)
    twins = [replace(failed("b"), key=key) for key in ("2", "1")]
    assert sorted([late, *twins, failed("a")], key=order) == [
        failed("a"),
        *reversed(twins),
        late,
    ]


def ended(category: Category | None, reason: str = "why", phase: Phase = Phase.COLLECTION) -> Task:
    return Task(
        key="k",
        phase=phase,
        task_class="class",
        inputs=0,
        state=State.FAILED,
        category=category,
        reason=reason,
    )


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (replace(ended(BAD), state=State.DONE), ""),
        (ended(None), ""),
        (ended(Category.UPSTREAM_FAILED, "g: bad image format"), "g: bad image format"),
        (ended(BAD), "input: bad image format: why"),
        (ended(BAD, ""), "input: bad image format"),
        (ended(BAD, "the input is cut off"), "bad image format: the input is cut off"),
        (ended(Category.USER_CODE_FAILED, "x", Phase.REDUCTION), "user code failed: x"),
    ],
)
def test_a_task_is_told_why_its_input_failed(task: Task, expected: str) -> None:
    assert inherited(Input(key="k", name="input"), task) == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("r-3c-1_r-3c0 2012-03-13", "a cell of 2012-03-13: bad image format: why"),
        ("r0c12 2012-03-13T1035", "a cell of 2012-03-13T1035: bad image format: why"),
        ("h17v03 2012-03-13", "h17v03 2012-03-13: bad image format: why"),
    ],
)
def test_a_cell_of_a_lattice_is_told_in_words(name: str, said: str) -> None:
    failed = ended(BAD, phase=Phase.REPROJECTION)
    assert inherited(Input(key="k", name=name), failed) == said


def raster(name: str, share: float | None, **more: object) -> Interest:
    file = ArtifactFile(name=f"{name}.tif", blob="b", size=1, sha256="", valid_share=share)
    found = Interest(
        request="r",
        key=name,
        phase=Phase.AGGREGATION,
        output="out",
        outcome=TaskOutcome.DONE,
        files=(file,),
    )
    return replace(found, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ([raster("a", 0.5)], ""),
        ([raster("a", 0.0)], "1 of 1 rasters holds no valid pixel: out/a.tif"),
        (
            [raster(name, 0.0) for name in "cab"],
            "3 of 3 rasters hold no valid pixel: out/a.tif, out/b.tif, out/c.tif",
        ),
        (
            [raster(f"{i:04}", 0.0) for i in range(2000)],
            "2,000 of 2,000 rasters hold no valid pixel: out/0000.tif, out/0001.tif, out/0002.tif "
            "and 1,997 more",
        ),
        # Neither what is not made, nor intermediates, nor what is no raster.
        (
            [
                raster("a", 0.0),
                raster("b", 0.0, outcome=TaskOutcome.GAP),
                raster("c", 0.0, output=""),
                raster("d", None),
            ],
            "1 of 1 rasters holds no valid pixel: out/a.tif",
        ),
        # A fallback task is counted with the task in whose place it is.
        (
            [raster("a", 0.0, fallback="b", earlier=("c",)), raster("b", 0.0), raster("c", 0.0)],
            "1 of 1 rasters holds no valid pixel: out/a.tif",
        ),
    ],
)
def test_results_without_a_valid_pixel_are_counted_and_some_named(
    made: list[Interest], expected: str
) -> None:
    assert str(empty_rasters(made)) == expected


def test_what_was_found_later_is_a_gap_and_what_is_told_is_not_told_twice() -> None:
    why = {
        "night.nc": "holds no layer M05, as granules of night do",
        "struck.hdf": Category.UNREADABLE_INPUT_FILE.value,
        "failed.hdf": Category.UNREADABLE_INPUT_FILE.value,
        "MCD15A2 2012-01-01 h18v03": "the archive does not have it",
    }
    missing = tuple(Missing(what=what, why=reason) for what, reason in why.items())
    made = raster("a", 0.5)
    file = replace(made.files[0], completeness=Completeness(share=0.5, missing=missing))
    whole = [replace(made, files=(file,)), replace(made, key="b", files=(file,))]
    found = found_later([*whole, failed("failed.hdf")])
    assert [gap.what for gap in found] == ["night.nc", "struck.hdf"]
    assert found[0].reason == why["night.nc"]
    assert found[1].reason.startswith("unreadable input file. See `swathmill archive check`")
    assert found_later([replace(whole[0], output=""), failed("failed.hdf")]) == ()
