"""`swathmill results --to`: the portal copies results to a bucket."""

import io
import json
import sys

import pytest
import s3fs

from tests.portal.scripted import LivePortal, put_result
from tests.portal.submissions import submitted
from tests.swathmill.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.integration]

LAYER = "MCD15A2.005/Lai_1km"
FILES = {"a.tif": b"a" * 1000, "b.tif": b"b"}


@pytest.fixture
def copy_hosts(s3_port: int) -> str:
    return f"localhost:{s3_port}, 127.0.0.0/8, ::1/128"


def test_results_go_to_a_bucket(
    command: Command, portal: LivePortal, s3_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = f"http://localhost:{s3_port}"
    there = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=endpoint, skip_instance_cache=True)
    there.mkdir("by-command")
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "KEYID"),
        ("AWS_SECRET_ACCESS_KEY", "SECRET-KEY"),
        ("AWS_ENDPOINT_URL", endpoint),
    ):
        monkeypatch.setenv(name, value)
    request = submitted(portal.runtime)
    for name, data in FILES.items():
        put_result(portal.runtime, request, LAYER, name, data)
    assert "2 copied, 0 left." in command("results", request, "--to", "s3://by-command/one")
    monkeypatch.setattr(sys, "stdin", io.StringIO("s3://by-command/two\n"))
    assert json.loads(command("results", request, "--to", "-", "--json")) == {"copied": 2}
    for folder in ("one", "two"):
        for name, data in FILES.items():
            assert there.cat_file(f"by-command/{folder}/{LAYER}/{name}") == data
    refused = command("results", request, "--to", "s3://absent", status=1)
    assert "SECRET-KEY" not in refused
    assert "--out and --to" in command("results", request, "--to", "s3://x", "--out", "y", status=2)
