"""What is known of a request's results, and what storage has lost of them."""

from dataclasses import replace

import pytest

from portal.results import result_files
from portal.results.result_files import ResultIndex
from portal.serving.problems import GoneError
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.requests import request_operations
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import ARTIFACTS
from tests.portal.scripted import put_interest, put_result, set_row
from tests.portal.submissions import submitted


@pytest.fixture
def runtime() -> Runtime:
    return memory_runtime()


def test_only_what_storage_has_lost_is_read_again(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = submitted(runtime)
    for number in range(5):
        put_result(runtime, request, "L", f"{number}.csv", b"1")
    key = put_result(runtime, request, "L", "it.csv", b"2")
    set_row(runtime, request, state=RequestState.COMPLETE, delivered=6, ended=1e9)
    row = request_operations.load(runtime, request)
    index = ResultIndex()
    before = index.files(runtime, row)

    def notable(*_: object) -> None:
        raise AssertionError("all rows are read")

    monkeypatch.setattr(request_operations, "notable", notable)
    runtime.blobs.delete(ARTIFACTS, f"{key}/claim/it.csv")
    with pytest.raises(GoneError):
        index.reader(runtime, row).part(index.find(runtime, row, "L/it.csv"))
    assert index.files(runtime, row) is before, "it has not been made again"

    interest = runtime.tasks.interest(request, key)
    assert interest is not None
    stored = runtime.blobs.put_bytes(ARTIFACTS, f"{key}/again/it.csv", b"3")
    file = replace(interest.files[0], blob=f"{ARTIFACTS}/{key}/again/it.csv", sha256=stored.sha256)
    put_interest(runtime, replace(interest, files=(file,)))
    after = index.files(runtime, row)
    assert list(after) == list(before)
    assert {path for path in after if after[path] != before[path]} == {"L/it.csv"}
    assert b"".join(index.reader(runtime, row).part(after["L/it.csv"])) == b"3"
    assert index.files(runtime, row) is after, "nothing is looked at any more"


def test_where_very_much_is_lost_all_is_read_again(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "_LOST", 2)
    request = submitted(runtime)
    keys = [put_result(runtime, request, "L", f"{number}.csv", b"1") for number in range(3)]
    set_row(runtime, request, state=RequestState.COMPLETE, delivered=3, ended=1e9)
    row = request_operations.load(runtime, request)
    index = ResultIndex()
    index.files(runtime, row)
    for key in (keys[0], *keys):
        assert index.is_known(row)
        index.lose(request, key)
    assert not index.is_known(row)
    assert len(index.files(runtime, row)) == 3
