"""Which granule's value a pixel gets."""

import numpy as np
import pytest

from modis.axes import Shape
from reprojection.read.qa import Reason
from reprojection.warp.merge import Follower, Merger, nominal_zenith

NODATA = -99


def merged(rule: str, *granules: list[tuple[int, Reason, float]]) -> Merger:
    """Granules of one pixel each or none, as (value, reason, zenith)."""
    merger = Merger(shape=Shape(1, 1), dtype=np.dtype(np.int16), nodata=NODATA, merge=rule)
    for pixels in granules:
        values, why, zenith = zip(*pixels, strict=True) if pixels else ((), (), ())
        merger.add(
            np.zeros(len(pixels), np.intp),
            np.array(values, np.int16),
            np.array(why, np.uint8),
            np.array(zenith, np.float32),
        )
    return merger


THREE = (
    [(10, Reason.VALID, 30.0)],
    [(20, Reason.VALID, 5.0)],
    [(31, Reason.VALID, 30.0)],
)


@pytest.mark.parametrize(
    ("rule", "value", "source"),
    [("nadir", 20, 2), ("latest", 31, 3), ("first", 10, 1), ("mean", 20, 0)],
)
def test_each_rule(rule: str, value: int, source: int) -> None:
    result = merged(rule, *THREE).result()
    assert (result.values.item(), result.sources.item()) == (value, source)
    assert result.counts.item() == 3
    assert result.reasons.item() == Reason.VALID


def test_of_equal_zeniths_the_newest_wins() -> None:
    assert merged("nadir", THREE[0], THREE[2]).result().values.item() == 31


def test_a_granule_without_zenith_gives_way() -> None:
    nameless = [(7, Reason.VALID, float("nan"))]
    assert merged("nadir", nameless, THREE[0], nameless).result().values.item() == 10
    assert merged("nadir", nameless).result().values.item() == 7


@pytest.mark.parametrize("rule", ["nadir", "latest", "first", "mean"])
def test_fill_nearer_to_nadir_does_not_hide_a_value(rule: str) -> None:
    empty = [(-1, Reason.FILL, 0.0)]
    result = merged(rule, empty, THREE[0], empty).result()
    assert (result.values.item(), result.counts.item(), result.sources.item()) == (10, 1, 2)


def test_an_empty_pixel_says_what_came_closest_to_a_value() -> None:
    fill, code = [(-1, Reason.FILL, 0.0)], [(250, Reason.CODE, 9.0)]
    assert merged("nadir", []).result().reasons.item() == Reason.NO_GRANULE
    assert merged("nadir", [], fill).result().reasons.item() == Reason.FILL
    result = merged("nadir", fill, code).result()
    assert result.reasons.item() == Reason.CODE
    assert result.codes.item() == 250
    assert result.values.item() == NODATA


def test_codes_are_kept_by_the_same_rule_and_only_without_a_value() -> None:
    near, far = [(250, Reason.CODE, 3.0)], [(251, Reason.CODE, 40.0)]
    assert merged("nadir", near, far).result().codes.item() == 250
    assert merged("latest", near, far).result().codes.item() == 251
    assert merged("first", far, near).result().codes.item() == 251
    assert merged("nadir", near, THREE[0]).result().codes.item() == NODATA


def test_means_of_whole_numbers_round_half_to_even() -> None:
    pair = ([(1, Reason.VALID, 0.0)], [(2, Reason.VALID, 0.0)])
    assert merged("mean", *pair).result().values.item() == 2
    pair = ([(2, Reason.VALID, 0.0)], [(3, Reason.VALID, 0.0)])
    assert merged("mean", *pair).result().values.item() == 2


def test_the_nominal_zenith_grows_from_nadir_to_65_degrees() -> None:
    zenith = nominal_zenith(1354)
    assert zenith[676] < 0.1
    assert 64.0 < zenith[0] < 66.0
    assert np.allclose(zenith, zenith[::-1])


PIXELS = 2000


def scattered(seed: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Granules over some pixels at random: place, value, reason and zenith."""
    random = np.random.default_rng(seed)
    granules = []
    for number in range(1, 6):
        at = np.flatnonzero(random.random(PIXELS) < 0.6)
        why = random.choice([Reason.VALID, Reason.FILL, Reason.CODE, Reason.QA], len(at))
        values = np.full(len(at), number, np.int16)
        zenith = random.integers(0, 4, len(at)).astype(np.float32)
        granules.append((at, values, why.astype(np.uint8), zenith))
    return granules


@pytest.mark.parametrize("rule", ["nadir", "latest", "first"])
def test_a_follower_takes_the_granule_that_the_driving_layer_is_taken_from(rule: str) -> None:
    dtype = np.dtype(np.int16)
    driving, own = scattered(1), scattered(2)
    merger = Merger(shape=Shape(1, PIXELS), dtype=dtype, nodata=NODATA, merge=rule)
    itself = Follower(shape=Shape(1, PIXELS), dtype=dtype, nodata=NODATA, merge=rule)
    other = Follower(shape=Shape(1, PIXELS), dtype=dtype, nodata=NODATA, merge=rule)
    for (at, values, why, zenith), (there, mine, reason, _) in zip(driving, own, strict=True):
        merger.add(at, values, why, zenith)
        itself.add((at, why, zenith), at, values, why)
        other.add((at, why, zenith), there, mine, reason)
    lead, same, follows = merger.result(), itself.result(), other.result()
    assert np.array_equal(same.values, lead.values)
    assert np.array_equal(same.codes, lead.codes)
    assert np.array_equal(same.sources, lead.sources)
    assert np.array_equal(same.counts, lead.counts)
    both = (lead.sources > 0) & (follows.sources > 0)
    assert both.sum() > PIXELS / 20
    assert np.array_equal(follows.sources[both], lead.sources[both])
    assert np.array_equal(follows.values[both], lead.sources[both])  # values are their granules'
    # Where the granule has no value of the layer, another one that has one is not taken instead.
    without = (lead.sources > 0) & (follows.sources == 0) & (follows.counts > 0)
    assert without.any()
    assert (follows.values[without] == NODATA).all()
    assert (follows.reasons[without] != Reason.VALID).all()
    assert (follows.reasons[follows.sources > 0] == Reason.VALID).all()


def test_where_the_driving_layer_has_no_value_the_rule_still_chooses_one_granule() -> None:
    fill, valid = np.array([Reason.FILL], np.uint8), np.array([Reason.VALID], np.uint8)
    at = np.zeros(1, np.intp)
    follower = Follower(shape=Shape(1, 1), dtype=np.dtype(np.int16), nodata=NODATA, merge="nadir")
    for value, angle in ((10, 30.0), (20, 5.0), (30, 40.0)):
        zenith = np.array([angle], np.float32)
        follower.add((at, fill, zenith), at, np.array([value], np.int16), valid)
    result = follower.result()
    assert (result.values.item(), result.sources.item(), result.counts.item()) == (20, 2, 3)


@pytest.mark.parametrize("rule", ["nadir", "latest", "first", "mean"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64])
def test_merging_by_footprints_equals_merging_by_pixels(rule: str, dtype: type) -> None:
    random = np.random.default_rng(14)
    shape = Shape(30, 40)
    by_footprints, by_pixels = (
        Merger(shape=shape, dtype=np.dtype(dtype), nodata=NODATA % 100, merge=rule)
        for _ in range(2)
    )
    for _ in range(6):
        seen = random.integers(-60, 50, shape.rows * shape.cols).astype(np.int32)
        seen[seen < 0] = -1
        values = random.integers(0, 120, 50).astype(np.int16)  # cast to the type of the result
        why = random.choice(list(Reason)[:4], 50).astype(np.uint8)
        zenith = random.choice([0.0, 10.0, 20.0, np.nan], 50).astype(np.float32)
        by_footprints.add_seen(seen, values, why, zenith)
        at = np.flatnonzero(seen >= 0)
        by_pixels.add(at, values[seen[at]], why[seen[at]], zenith[seen[at]])
    one, other = by_footprints.result(), by_pixels.result()
    for name in ("values", "codes", "counts", "sources", "reasons"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert getattr(one, name).dtype == getattr(other, name).dtype
