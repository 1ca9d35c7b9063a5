"""The kinds of regions."""

from tasks.request.region.kinds import KINDS
from tasks.request.region.region import REGION_KINDS


def test_each_way_to_give_a_region_has_a_kind() -> None:
    assert {*KINDS} == {*REGION_KINDS}
