"""Masks: fill, codes, ranges and quality rules, at native resolution."""

from pathlib import Path

import numpy as np
import pytest

from reprojection.errors import ChoiceRefusedError
from reprojection.read.granule import Granule, open_granule
from reprojection.read.qa import QaRule, Reason, decode, reasons, valid_mask
from reprojection.sample.hdfeos_write import FieldToWrite, SwathToWrite, write_granule
from tests.reprojection.reading_samples import small_tile, wrap_up


@pytest.fixture
def tile(tmp_path: Path) -> Granule:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile())
    return open_granule(path)


def test_reasons_say_fill_code_and_quality(tile: Granule) -> None:
    why = reasons(tile, "Lai_1km", "best")
    # The first row: 100, 101, 249, 250, 253, 254, 255, 0 and then data.
    expected = [Reason.VALID] + [Reason.CODE] * 5 + [Reason.FILL] + [Reason.VALID] * 2
    assert why[0, :9].tolist() == expected
    assert (why[1] == Reason.QA).all()  # MODLAND says other
    assert (why[2] == Reason.QA).all()  # saturated is not the best
    assert (why[3] == Reason.QA).all()  # QA that is fill is no quality
    assert (why[4:] == Reason.VALID).all()


def test_good_takes_more_than_best(tile: Granule) -> None:
    good, best = (valid_mask(tile, "Lai_1km", rule) for rule in ("good", "best"))
    assert (best <= good).all()
    assert good[2].all()
    assert not best[2].any()


@pytest.mark.parametrize(
    "rule",
    [
        {"FparLai_QC": {"MODLAND": [0]}},
        {"FparLai_QC": {"modland": [0]}},
        {"FparLai_QC": {"0": [0]}},
        {"FparLai_QC": {"0-0": [0]}},
        {"FparLai_QC": [0, 32]},
        {"FparLai_QC": {"value": [0, 32]}},
    ],
)
def test_a_rule_can_be_spelled_in_several_ways(tile: Granule, rule: QaRule) -> None:
    assert np.array_equal(valid_mask(tile, "Lai_1km", rule), valid_mask(tile, "Lai_1km", "good"))


@pytest.mark.parametrize(
    ("layer", "rule", "word"),
    [
        ("FparLai_QC", "best", "no QA layer is known"),
        ("Lai_1km", "superb", "best, good"),
        ("Lai_1km", {"QC_Day": {"Mandatory": [0]}}, "QC_Day"),
        ("Lai_1km", {"FparLai_QC": {"CLOUDS": [0]}}, "CLOUDSTATE"),
        ("Lai_1km", {"FparLai_QC": {"6-9": [0]}}, "outside its 8 bits"),
        ("Lai_1km", {"FparLai_QC": {"MODLAND": [0, 2]}}, r"2 does not fit .*MODLAND; .* 0 to 1$"),
        ("Lai_1km", {"FparLai_QC": {"1-3": [8]}}, r"8 does not fit .* 0 to 7$"),
        ("Lai_1km", {"FparLai_QC": [-1]}, r"-1 does not fit .* 0 to 255$"),
        ("Lai_1km", {"FparLai_QC": {"MODLAND": []}}, "keeps no value"),
        ("Lai_1km", {"FparLai_QC": {}}, "names no field"),
        ("Lai_1km", {}, "rule is empty"),
        ("Lai_1km", "", "rule is empty"),
    ],
)
def test_a_rule_that_cannot_be_applied_is_refused(
    tile: Granule, layer: str, rule: QaRule, word: str
) -> None:
    with pytest.raises(ChoiceRefusedError, match=word):
        valid_mask(tile, layer, rule)


def test_a_qa_value_is_decoded(tile: Granule) -> None:
    decoded = {item.name: (item.value, item.meaning) for item in decode(tile, "FparLai_QC", 97)}
    assert decoded["MODLAND"] == (1, "other")
    assert decoded["CLOUDSTATE"] == (0, "clear")
    assert decoded["SCF_QC"] == (3, "empirical, other problems")


def quality_swath(tmp_path: Path) -> Granule:
    rows, columns = 20, 20
    fine = ("Along_1km", "Across_1km")
    coarse = ("Along_5km", "Across_5km")
    lat = np.linspace(50, 51, 16, dtype=np.float32).reshape(4, 4)
    flag = np.zeros((4, 4), np.int16)
    flag[1, 2] = 3
    bytes_of_qa = np.zeros((rows, columns, 2), np.uint8)
    bytes_of_qa[7, 8, 1] = 0b0100_0000
    swath = SwathToWrite(
        name="S",
        geo_fields=[
            FieldToWrite(name="Latitude", values=lat, dims=coarse),
            FieldToWrite(name="Longitude", values=lat, dims=coarse),
        ],
        data_fields=[
            FieldToWrite(name="Value", values=np.ones((rows, columns), np.int16), dims=fine),
            FieldToWrite(name="Flag", values=flag, dims=coarse),
            FieldToWrite(name="QA", values=bytes_of_qa, dims=(*fine, "Byte")),
            FieldToWrite(name="Elsewhere", values=np.ones((3, 3), np.int16), dims=("a", "b")),
            FieldToWrite(name="Real", values=np.ones((rows, columns), np.float32), dims=fine),
        ],
        maps=[("Along_5km", "Along_1km", 2, 5), ("Across_5km", "Across_1km", 2, 5)],
    )
    path = tmp_path / "swath.hdf"
    name = "XYZ05_L2.A2012065.1200.061.2012153130500.hdf"
    write_granule(path, wrap_up(swath, name, "XYZ05_L2", 61))
    return open_granule(path)


def test_coarser_quality_speaks_for_the_pixels_inside_it(tmp_path: Path) -> None:
    expected = np.zeros((20, 20), bool)
    expected[5:10, 10:15] = True
    with quality_swath(tmp_path) as found:
        assert np.array_equal(valid_mask(found, "Value", {"Flag": [3]}), expected)


def test_bits_run_on_through_the_bytes(tmp_path: Path) -> None:
    expected = np.zeros((20, 20), bool)
    expected[7, 8] = True
    with quality_swath(tmp_path) as found:
        assert np.array_equal(valid_mask(found, "Value", {"QA": {"14": [1]}}), expected)
        assert np.array_equal(valid_mask(found, "Value", {"QA[1]": {"6": [1]}}), expected)


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ({"Elsewhere": [1]}, "cannot be laid over"),
        ({"QA": [1]}, "several bands"),
        ({"Real": [1]}, "not of whole numbers"),
    ],
)
def test_quality_that_cannot_be_placed_is_refused(tmp_path: Path, rule: QaRule, word: str) -> None:
    with quality_swath(tmp_path) as found, pytest.raises(ChoiceRefusedError, match=word):
        valid_mask(found, "Value", rule)


@pytest.mark.real_data
def test_real_masks(granules: Path) -> None:
    path = sorted(granules.glob("l3-tiles/MCD15A2/*h18v03*"))[-1]
    with open_granule(path) as found:
        values, qc = found.read("Lai_1km"), found.read("FparLai_QC")
        assert np.array_equal(valid_mask(found, "Lai_1km"), np.less_equal(values, 100))
        assert np.array_equal(
            valid_mask(found, "Lai_1km", "best"),
            np.less_equal(values, 100) & (np.bitwise_and(qc, 0b1110_0001) == 0),
        )
    with open_granule(next(granules.glob("l3-tiles/MOD09GA/*"))) as found:
        state = np.repeat(np.repeat(found.read("state_1km_1"), 2, axis=0), 2, axis=1)
        clear = valid_mask(found, "sur_refl_b01_1", {"state_1km_1": {"Cloud": [0]}})
        assert np.array_equal(
            clear, valid_mask(found, "sur_refl_b01_1") & ((state & 3) == 0) & (state != 65535)
        )
        assert clear.sum() == 90


def test_a_rule_of_a_layer_of_days_takes_the_same_day_of_its_quality(tmp_path: Path) -> None:
    days = ("Num_Days", "YDim", "XDim")
    fire = np.full((8, 24, 24), 5, np.uint8)
    quality = np.zeros((8, 24, 24), np.uint8)
    quality[3, :5] = 2
    fields = [
        FieldToWrite(name="FireMask", values=fire, dims=days),
        FieldToWrite(name="QA", values=quality, dims=days),
    ]
    path = tmp_path / "fire.hdf"
    write_granule(path, small_tile(product="MOD14A1", collection=6, fields=fields))
    with open_granule(path) as granule:
        rule: QaRule = {"QA": {"Land_Water": [0]}}
        refused = {band: ~valid_mask(granule, f"FireMask[{band}]", rule) for band in range(8)}
        assert [int(refused[band].sum()) for band in range(8)] == [0, 0, 0, 5 * 24, 0, 0, 0, 0]
        bytewise = {"QA[3]": {"Land_Water": [0]}}
        assert valid_mask(granule, "FireMask[0]", bytewise).sum() == 19 * 24
