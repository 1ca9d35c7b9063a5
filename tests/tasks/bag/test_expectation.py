"""What an attempt is expected to take: classes know the amount of work, and similar ones help."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.bag.classes import TaskClass, parse, sized
from tasks.bag.expectation import GENEROUS, Times, at_octave
from tasks.bag.history import ClassStatistics
from tasks.bag.spec import (
    CollectSpec,
    CubeSpec,
    GridSpec,
    GroupSpec,
    Input,
    LayerSpec,
    MosaicSpec,
    RasterSpec,
    ReduceSpec,
    ReprojectSpec,
)
from tasks.bag.time_limits import TimeLimits
from tasks.spec_parts import Band

DAY = date(2012, 1, 1)
TILE = GridSpec(crs="sinusoidal", transform=(231.66, 0, 0, 0, -231.66, 0), width=4800, height=4800)
LIMITS = TimeLimits()


def timed(*classes: tuple[str, float], count: int = 5) -> dict[str, ClassStatistics]:
    return {
        name: ClassStatistics(task_class=name, count=count, mean=mean) for name, mean in classes
    }


def cell(resolution: float = 0.01, inputs: int = 1, product: str = "MOD13A2") -> ReprojectSpec:
    return ReprojectSpec(
        product=product,
        collection="6",
        layer="NDVI",
        day=DAY,
        grid=GridSpec(
            crs="EPSG:4326",
            transform=(resolution, 0, 0, 0, -resolution, 0),
            width=1024,
            height=1024,
        ),
        resampling="nearest",
        inputs=tuple(Input(key=f"{i}") for i in range(inputs)),
    )


def group(bands: int) -> GroupSpec:
    band = Band(product="MOD13A2", collection="6", layer="NDVI", day=DAY, cell="c")
    return GroupSpec(group="g", cell="c", window="w", grid=TILE, bands=(band,) * bands)


def reduction(bands: int, digest: str = "d" * 64, **parameters: str) -> ReduceSpec:
    return ReduceSpec(
        package="mean",
        digest=digest,
        outputs=("mean.tif",),
        parameters=parameters,
        pixels=group(bands).amount,
    )


# --- classes ---


@given(st.integers(1, 2**58), st.sampled_from(["collection M.6", "aggregation cube netcdf", "x"]))
def test_a_class_says_its_work_and_its_amount(amount: int, work: str) -> None:
    found = parse(sized(work, amount))
    assert (found.work, found.octave) == (work, amount.bit_length() - 1)


def test_classes_are_read_by_people() -> None:
    collected = CollectSpec(
        product="MOD13A2", collection="6", granule="g", production="1", size=5_000_000
    )
    assert collected.task_class == "collection MOD13A2.6, 4-8 MB"
    assert cell(inputs=3).task_class == "reprojection MOD13A2.6 0.01, 2-4 Mpx"
    assert group(115).task_class == "aggregation group, 2-4 Gpx"
    assert reduction(1).task_class == "reduction mean dddddddd, 16-32 Mpx"
    assert MosaicSpec(name="m", grid=TILE).task_class == "aggregation mosaic 231.66, 16-32 Mpx"
    cube = CubeSpec(name="c", form="netcdf", grid=TILE, days=(DAY, DAY))
    assert cube.task_class == "aggregation cube netcdf, 32-64 Mpx"
    assert parse("aggregation group") == TaskClass(
        "aggregation group", "aggregation group", "aggregation group", None
    )


def test_rasters_without_cells_have_a_mean_of_their_own() -> None:
    """Until they have one, a raster may take what its family's cells take, several times."""
    common: dict[str, Any] = {one: getattr(cell(), one) for one in LayerSpec.model_fields}
    raster = RasterSpec(**common, name="MOD13A2.006.NDVI.2012-01-01")
    assert raster.task_class == "reprojection MOD13A2.6 0.01 raster, 1-2 Mpx"
    assert parse(raster.task_class).family == parse(cell().task_class).family
    times = Times(timed((cell().task_class, 2.0)), 5)
    assert times.mean(raster.task_class) is None
    assert times.limit(raster.task_class) == GENEROUS * 2.0


def test_parameters_make_another_class_and_the_amount_no_other_key() -> None:
    assert reduction(1, window="3").task_class != reduction(1, window="5").task_class
    one, other = parse(reduction(1, window="3").task_class), parse(reduction(9).task_class)
    assert one.family == other.family == "reduction mean dddddddd"
    assert reduction(1).key == reduction(115).key
    assert ReduceSpec.model_validate_json(reduction(1).model_dump_json(exclude={"pixels"})).key


# --- the curve ---

means = st.dictionaries(st.integers(0, 40), st.floats(0.01, 1e5), min_size=1, max_size=8)


@given(means, st.floats(1.0, 8.0))
def test_more_work_never_takes_less(known: dict[int, float], margin: float) -> None:
    found = [at_octave(known, octave, margin) for octave in range(60)]
    assert found == sorted(found)


@given(means, st.integers(0, 60), st.floats(1.0, 8.0))
def test_it_is_never_below_what_smaller_work_took(
    known: dict[int, float], octave: int, margin: float
) -> None:
    smaller = [mean for at, mean in known.items() if at <= octave]
    assert at_octave(known, octave, margin) >= max(smaller, default=0.0)
    assert at_octave(known, octave, margin) >= min(known.values())


@given(
    st.dictionaries(st.integers(1, 2**40), st.floats(0.01, 1e5), max_size=6),
    st.lists(st.integers(1, 2**45), min_size=2, max_size=6),
    st.integers(0, 3),
)
def test_the_bound_never_falls_as_work_grows(
    known: dict[int, float], amounts: list[int], retries: int
) -> None:
    statistics: dict[str, ClassStatistics] = {}
    for amount, mean in known.items():
        statistics |= timed((sized("reprojection A.6 0.01", amount), mean))
    times = Times(statistics, samples=5)
    for work in ("reprojection A.6 0.01", "reprojection A.6 0.05", "reprojection B.6 1"):
        found = [LIMITS.limit(times, sized(work, a), retries) for a in sorted(amounts)]
        assert found == sorted(found)


def test_between_two_amounts_the_larger_is_the_most() -> None:
    known = {10: 1.0, 20: 5.0}
    assert [at_octave(known, k) for k in (5, 10, 11, 12, 13, 19, 20, 21)] == [
        1.0, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 10.0,
    ]  # fmt: skip


# --- the 4x rule ---


def test_a_yearly_group_is_not_killed_by_the_mean_of_daily_ones() -> None:
    """A day's group takes 20 s, so a year's in 365 bands takes some two hours."""
    times = Times(timed((group(1).task_class, 20.0), count=171), samples=5)
    yearly = group(365).task_class
    limits = TimeLimits(ceiling=100_000.0)
    assert limits.limit(times, group(1).task_class, 0) == 80.0
    assert limits.limit(times, yearly, 0) >= 4 * 365 / 2 * 20.0
    assert times.mean(yearly) is None


def test_a_class_goes_by_its_own_mean_as_soon_as_it_has_one() -> None:
    few = timed((group(1).task_class, 20.0)) | timed((group(365).task_class, 600.0), count=4)
    enough = few | timed((group(365).task_class, 600.0))
    limits = TimeLimits(ceiling=100_000.0)
    assert limits.limit(Times(few, 5), group(365).task_class, 0) > 4 * 600.0
    assert limits.limit(Times(enough, 5), group(365).task_class, 0) == 4 * 600.0


def test_another_resolution_has_a_bound_and_another_product_the_ceiling() -> None:
    times = Times(timed((cell(0.01).task_class, 10.0)), samples=5)
    assert LIMITS.limit(times, cell(0.01).task_class, 0) == 60.0
    assert LIMITS.limit(times, cell(0.05).task_class, 0) == 4 * 4 * 10.0
    assert LIMITS.limit(times, cell(0.05, inputs=8).task_class, 0) == 8 * 4 * 4 * 10.0
    assert LIMITS.limit(times, cell(product="MYD13A2").task_class, 0) == LIMITS.ceiling


def test_another_build_of_a_package_is_not_judged_by_this_one() -> None:
    times = Times(timed((reduction(1).task_class, 10.0)), samples=5)
    assert LIMITS.limit(times, reduction(1, digest="e" * 64).task_class, 0) == LIMITS.ceiling
    assert LIMITS.limit(times, reduction(1, window="5").task_class, 0) == 4 * 4 * 10.0


def test_old_statistics_without_amounts_bound_nothing_but_are_an_estimate() -> None:
    times = Times(timed(("aggregation group", 0.4)), samples=5)
    assert LIMITS.limit(times, group(365).task_class, 0) == LIMITS.ceiling
    assert LIMITS.limit(times, "aggregation group", 0) == 60.0
    assert times.seconds(group(1).task_class) == 0.4


# --- estimates ---


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (cell(0.01).task_class, 2.0),
        (cell(0.01, inputs=4).task_class, 8.0),
        (cell(0.05).task_class, 2.0),
        (cell(0.05, inputs=2).task_class, 4.0),
        (cell(product="MYD13A2").task_class, 2.0),
        (group(1).task_class, None),
    ],
)
def test_what_was_never_timed_is_estimated_from_similar_work(
    asked: str, expected: float | None
) -> None:
    assert Times(timed((cell(0.01).task_class, 2.0), count=1)).seconds(asked) == expected


def test_the_most_similar_work_is_asked_first_and_successes_weigh() -> None:
    own, family, kind = cell(0.01).task_class, cell(0.05).task_class, cell(product="A").task_class
    assert Times(timed((own, 2.0), (family, 20.0), (kind, 200.0))).seconds(own) == 2.0
    assert Times(timed((family, 20.0), (kind, 200.0))).seconds(own) == 20.0
    # Two classes of one family and amount: 1 success of 10 s and 3 of 30 s.
    other = timed((family, 10.0), count=1) | timed((cell(0.02).task_class, 30.0), count=3)
    assert Times(other).seconds(own) == 25.0


def test_work_of_an_unknown_amount_takes_what_such_work_took_before() -> None:
    sizes = timed((group(1).task_class, 2.0), (group(4).task_class, 6.0))
    assert Times(sizes).seconds("aggregation group") == 4.0
    assert Times(sizes | timed(("aggregation group", 9.0))).seconds("aggregation group") == 9.0


def test_the_bound_by_a_smaller_amount_is_generous() -> None:
    times = Times(timed((group(1).task_class, 2.0), count=5), samples=5)
    assert times.limit(group(2).task_class) == 4.0 * 2.0 * 2.0
