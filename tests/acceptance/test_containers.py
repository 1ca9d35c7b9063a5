"""A package of one's own in containers, from upload to result, on the sample archive."""

from pathlib import Path

import pytest

from bench.containers import REQUEST
from tasks.bag.model import RequestState
from tasks.request.document import parse_request
from tests.acceptance.containers import ENGINE, in_containers

pytestmark = [
    pytest.mark.proof,
    pytest.mark.integration,
    pytest.mark.skipif(not ENGINE, reason="SWATHMILL_TEST_ENGINE names no container engine"),
]


def test_a_private_package_makes_its_results(tmp_path: Path, sample_archive: Path) -> None:
    with in_containers(sample_archive, tmp_path) as stack:
        stack.command("package", "new", "my-mean", cwd=tmp_path)
        stack.command("package", "push", "my-mean", cwd=tmp_path)
        request = stack.client.submit(parse_request(REQUEST)).id
        status = stack.until_ended(request)
        assert status.state is RequestState.COMPLETE, status.message
        names = [one.name for one in stack.client.results(request)]
        assert any("Lai_1km_mean" in name for name in names)
