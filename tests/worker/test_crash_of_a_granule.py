"""A child that ends by a signal may have crashed on a granule, whatever the granule is called."""

import signal
from unittest.mock import create_autospec

import pytest

from tasks.bag.model import ArtifactFile
from tasks.bag.protocol import Claimed
from tasks.bag.spec import ReprojectSpec
from worker.sandbox.messages import Ended
from worker.slots.crash import may_be_a_granules

NAMES = {
    "MYD04_L2.A2007103.0250.006.2014051174308.hdf": True,
    "20190805065501-JPL-L2P_GHRSST-SSTskin-MODIS_A-N-v02.0-fv01.0.nc": True,
    "AQUA_MODIS.20200101T103000.L2.OC.nc": True,
    "renamed.h5": True,
    "cell.tif": False,
    "sites.json": False,
}


def claimed(name: str) -> Claimed:
    """A reprojection of one input."""
    file = ArtifactFile(name=name, blob=name, size=1, sha256="0" * 64)
    spec = create_autospec(ReprojectSpec, instance=True, opens_granules=False)
    return Claimed(task=create_autospec(object), spec=spec, input_files={0: (file,)})


@pytest.mark.parametrize(("name", "may"), NAMES.items())
def test_a_crash_may_be_a_granule_s(name: str, may: bool) -> None:
    ended = Ended(exit_code=-signal.SIGSEGV, peak_memory=0, over_memory=False, log="")
    assert may_be_a_granules(claimed(name), ended) == may
    for other in (
        ended.model_copy(update={"exit_code": 1}),
        ended.model_copy(update={"over_memory": True}),
    ):
        assert not may_be_a_granules(claimed(name), other)
