"""Pages of large requests: what they read and send does not grow with tasks and files."""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from portal.results import result_files
from swathmill import Client
from tasks.bag import task_table
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile, Phase, RequestState, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Interest
from tasks.canonical import canonical, digest_of
from tasks.requests import request_operations
from tasks.requests.plan import Gap
from tasks.requests.request_operations import gaps_blob
from tasks.requests.request_table import GAPS_ON_ROW, PhaseCount
from tasks.storage.blobs import RESULTS, MemoryBlobs
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Row, Upsert
from tests.portal.scripted import (
    LivePortal,
    live_portal,
    live_runtime,
    put_failed_task,
    set_row,
    settings,
)
from tests.portal.submissions import submitted

TASKS, FILES, GAPS = 100_000, 5_000, 1_000


class Counted(MemoryStore):
    """A store that counts the rows read: of the table `tasks`, and of all by a scan."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = self.every = 0

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        for row in super().scan(table, partition, start, end, limit):
            self.rows += table == task_table.TABLE
            self.every += 1
            yield row


class CountedBlobs(MemoryBlobs):
    """Blobs that count the bytes read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def get_bytes(self, container: str, name: str) -> bytes:
        data = super().get_bytes(container, name)
        self.read += len(data)
        return data


@pytest.fixture(scope="module")
def store() -> Counted:
    return Counted()


@pytest.fixture(scope="module")
def blobs() -> CountedBlobs:
    return CountedBlobs()


@pytest.fixture(scope="module")
def portal(store: Counted, blobs: CountedBlobs) -> Iterator[LivePortal]:
    with live_portal(replace(live_runtime(), store=store, blobs=blobs), settings()) as running:
        yield running


@pytest.fixture(scope="module")
def small(portal: LivePortal) -> str:
    """A request of 10 tasks, which has ended."""
    return filled(portal.runtime, 10, 5, gaps=2)


@pytest.fixture(scope="module")
def large(portal: LivePortal) -> str:
    """A request of 100,000 tasks, 5,000 files and 1,000 gaps, which has ended."""
    return filled(portal.runtime, TASKS, FILES, gaps=GAPS)


def filled(runtime: Runtime, tasks: int, files: int, *, ended: bool = True, gaps: int = 0) -> str:
    name = submitted(runtime)
    batches: dict[str, list[Upsert]] = {}
    for number in range(tasks):
        key = digest_of(canonical([name, number]).decode())
        interest = _result(name, key, number) if number < files else _granule(name, key)
        row = task_table.interest_row(name, key)
        entity = task_table.INTEREST.dump(interest)
        batches.setdefault(shard(key), []).append(Upsert(row=row, entity=entity))
    for part, rows in batches.items():
        for start in range(0, len(rows), 100):
            runtime.store.transact(task_table.TABLE, part, rows[start : start + 100])
    phases = {
        Phase.COLLECTION: PhaseCount(total=tasks - files, done=tasks - files),
        Phase.AGGREGATION: PhaseCount(total=files, done=files),
    }
    lacks = [(f"MCD15A2.005 granule {n}", f"the archive has none of {n}") for n in range(gaps)]
    runtime.blobs.put_bytes(RESULTS, gaps_blob(name), json.dumps(lacks).encode())
    set_row(
        runtime,
        name,
        state=RequestState.COMPLETE if ended else RequestState.RUNNING,
        outputs=files,
        delivered=files,
        ended=runtime.clock.now() if ended else 0.0,
        phases=phases,
        gaps=tuple(Gap(what=what, reason=reason) for what, reason in lacks[:GAPS_ON_ROW]),
        gap_count=gaps,
    )
    return name


def _granule(request: str, key: str) -> Interest:
    return Interest(
        request=request, key=key, phase=Phase.COLLECTION, name="g", outcome=TaskOutcome.DONE
    )


def _result(request: str, key: str, number: int) -> Interest:
    layer, day = divmod(number, 500)
    name = f"MCD15A2.005.Layer{layer}.{2000 + day // 28:04d}-01-{1 + day % 28:02d}.tif"
    file = ArtifactFile(
        name=name, blob=f"artifacts/{key}/c/x.tif", size=1000, sha256="0" * 64, valid_share=0.5
    )
    return Interest(
        request=request,
        key=key,
        phase=Phase.AGGREGATION,
        name=name,
        output=f"MCD15A2.005/Layer{layer}",
        outcome=TaskOutcome.DONE,
        files=(file,),
    )


def costs(client: httpx.Client, store: Counted, path: str) -> tuple[int, int, str]:
    """Rows of tasks read, bytes unpacked, and the text of a page."""
    store.rows = 0
    answer = client.get(path).raise_for_status()
    return store.rows, len(answer.content), answer.text


def test_the_page_of_a_large_request_comes_before_its_tasks_are_read(
    portal: LivePortal, store: Counted, small: str, large: str
) -> None:
    with portal.browser() as client:
        of_small = costs(client, store, f"/requests/{small}")
        of_large = costs(client, store, f"/requests/{large}")
        assert of_large[0] == 0
        assert of_large[1] < of_small[1] + 2_000
        parts = re.findall(r'hx-get="([^"]+)"[^>]*hx-trigger="load, request-changed', of_large[2])
        assert parts == [f"/requests/{large}/{part}" for part in ("matrix", "lacks", "results")]
        read = [costs(client, store, part)[0] for part in parts]
        assert read == [TASKS, 0, 0]
        again = costs(client, store, f"/requests/{large}")
        assert again[0] == 0
        assert "Being read" not in again[2]
        assert again[2].count("<tr>") <= 2 + 50 + 50  # a page of dates and one of files
        assert again[1] < 250_000  # bytes, unpacked: 50 dates of 10 layers, and 50 files


def test_pages_that_were_opened_read_and_send_the_same_of_5000_files_as_of_5(
    portal: LivePortal, store: Counted, blobs: CountedBlobs, small: str, large: str
) -> None:
    """All tabs, with 1,000 gaps, too. What is sent is one page of each list."""
    parts = ("", "/matrix", "/lacks", "/results", "/map", "/runs")
    most = 14_000  # bytes, compressed

    def cost(client: httpx.Client, path: str) -> tuple[int, int, int]:
        store.every = blobs.read = 0
        content = client.get(path).raise_for_status().content
        return store.every, blobs.read, len(gzip.compress(content))

    with portal.browser() as client:
        for request in (small, large):
            for part in ("/matrix", "/lacks"):
                client.get(f"/requests/{request}{part}").raise_for_status()
        for part in parts:
            few, many = (cost(client, f"/requests/{one}{part}") for one in (small, large))
            assert many[:2] == few[:2] == (few[0], 0), part
            assert many[2] < most, (part, few, many)


def test_the_api_lists_results_of_a_large_request_in_pages(
    portal: LivePortal, store: Counted, large: str
) -> None:
    path = f"/api/requests/{large}/results"
    with portal.client() as client:
        manifest = client.get(f"/api/requests/{large}/manifest").raise_for_status().json()
        whole = [one["name"] for one in manifest["files"]]
        store.rows = 0
        plain = client.get(path)
        found: list[str] = []
        answer = client.get(path, params={"limit": 2000})
        sizes = [len(answer.json())]
        found += [one["name"] for one in answer.json()]
        while "next" in answer.links and len(sizes) < 9:
            answer = client.get(answer.links["next"]["url"])
            sizes.append(len(answer.json()))
            found += [one["name"] for one in answer.json()]
    assert found == whole
    assert sizes == [2000, 2000, 1000]
    assert [one["name"] for one in plain.json()] == whole[:1000]
    assert parse_qs(urlsplit(plain.links["next"]["url"]).query) == {"after": [whole[999]]}
    assert store.rows == 0  # all that is listed was read once


def test_the_client_asks_for_results_failures_and_gaps_in_pages(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = filled(portal.runtime, 10, 5, ended=False)
    keys = [put_failed_task(portal.runtime, name, f"F{n}", (Category.UNKNOWN,)) for n in range(5)]
    lacks = tuple(Gap(what=f"granule {n // 2}", reason=f"{n}") for n in range(5))  # some alike
    set_row(portal.runtime, name, gaps=lacks, gap_count=5)
    monkeypatch.setattr("swathmill.client.PAGE", 2)
    asked: list[str] = []

    class Recording(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            asked.append(request.url.query.decode())
            return super().handle_request(request)

    with portal.client() as http:
        token = http.headers["Authorization"].removeprefix("Bearer ")
        client = Client(url=portal.url, token=token, transport=Recording())
        results = [one.name for one in client.results(name)]
        failures = [one.key for one in client.failures(name)]
        gaps = [one.why for one in client.gaps(name)]
        wrong = http.get(f"/api/requests/{name}/failures", params={"after": "none"})
    assert len(results) == len(set(results)) == 5
    assert sorted(failures) == sorted(keys)
    assert [query.startswith("limit=2") for query in asked] == [True] * 9
    assert gaps == list("01234")
    assert (wrong.status_code, wrong.json()["field"]) == (400, "after")


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
def test_a_manifest_comes_in_pages_of_files_then_gaps(portal: LivePortal, limit: int) -> None:
    name = filled(portal.runtime, 10, 5, ended=False)
    lacks = tuple(Gap(what="granule", reason=f"{n}") for n in range(3))
    set_row(portal.runtime, name, gaps=lacks, gap_count=3)
    address = f"/api/requests/{name}/manifest"
    with portal.client() as client:
        whole = client.get(address)
        sums = client.get(address, params={"format": "sha256"})
        pages = list(_pages(client, address, {"limit": limit}))
        of_sums = list(_pages(client, address, {"limit": limit, "format": "sha256"}))
    read = [page.json() for page in pages]
    assert "next" not in whole.links
    assert [one for page in read for one in page["files"]] == whole.json()["files"]
    assert [one for page in read for one in page["gaps"]] == whole.json()["gaps"]
    assert len(whole.json()["gaps"]) == 3
    sizes = [len(page["files"]) + len(page["gaps"]) for page in read]
    assert sizes == [limit] * (8 // limit) + [8 % limit] * (8 % limit > 0)
    assert "".join(page.text for page in of_sums) == sums.text
    assert len(of_sums) == -(-5 // limit)


def _pages(
    client: httpx.Client, path: str, parameters: Mapping[str, str | int]
) -> Iterator[httpx.Response]:
    answer = client.get(path, params=parameters).raise_for_status()
    yield answer
    for _ in range(20):
        if "next" not in answer.links:
            return
        answer = client.get(answer.links["next"]["url"]).raise_for_status()
        yield answer
    raise AssertionError("the pages do not end")


def test_while_a_large_request_runs_one_read_serves_many_pages(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    runtime = replace(runtime, clock=clock)
    name = filled(runtime, 10, 5, ended=False)
    reads: list[str] = []
    notable = request_operations.notable

    def slow(given: Runtime, request: str) -> list[Interest]:
        reads.append(request)
        clock.sleep(2.0)
        return notable(given, request)

    monkeypatch.setattr(request_operations, "notable", slow)
    index = result_files.ResultIndex()

    def look() -> int:
        row = request_operations.load(runtime, name)
        index.failures(runtime, row)
        return len(index.files(runtime, row)) and len(reads)

    assert [look(), look()] == [1, 1]
    clock.sleep(39.0)
    set_row(runtime, name, delivered=6)
    assert look() == 1
    clock.sleep(2.0)
    assert look() == 2
    set_row(runtime, name, state=RequestState.COMPLETE, ended=1.0)
    assert [look(), look()] == [3, 3]  # its end is told at once, and then nothing changes
