"""Results are downloaded while their request still runs."""

from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from swathmill.answers import RequestStatus
from swathmill.client import Client
from swathmill.delivery import ResultFetcher
from swathmill.errors import ApiError
from tasks.answers.results import ResultAnswer
from tasks.bag.model import RequestState
from tests.swathmill.answered import read_result, read_status
from tests.waiting import until


class _Results:
    """A client whose portal has results that a test adds, and fails as it says."""

    def __init__(self) -> None:
        self.made: list[ResultAnswer] = []
        self.lists = 0
        self.downloads: Counter[str] = Counter()
        self.fails: set[str] = set()

    def make(self, *names: str) -> RequestStatus:
        """Add results; return the status that tells of them."""
        self.made += [read_result(name=name, size=1, sha256=name, url="") for name in names]
        return read_status(
            id="r", state=RequestState.RUNNING, title="", message="", delivered=len(self.made)
        )

    def results(self, _request_id: str) -> list[ResultAnswer]:
        self.lists += 1
        return list(self.made)

    def download(self, result: ResultAnswer, folder: Path) -> Path:
        self.downloads[result.name] += 1
        if result.name in self.fails:
            raise ApiError("It broke off.", "Try again.")
        path = folder / result.name
        path.write_text(result.name)
        return path


def fetching(results: _Results, folder: Path) -> ResultFetcher:
    return ResultFetcher(cast(Client, results), "r", folder)


def test_each_result_is_downloaded_once_and_before_the_end(tmp_path: Path) -> None:
    client = _Results()
    with fetching(client, tmp_path) as fetcher:
        fetcher.begin(client.make("a.tif"))
        until((tmp_path / "a.tif").is_file)
        client.make("b.tif")
        files = fetcher.finish(tick=lambda: None)
    assert [path.name for _, path in files] == ["a.tif", "b.tif"]
    assert client.downloads == {"a.tif": 1, "b.tif": 1}


def test_what_failed_while_the_request_ran_is_tried_again_at_its_end(tmp_path: Path) -> None:
    client = _Results()
    client.fails = {"a.tif"}
    with fetching(client, tmp_path) as fetcher:
        fetcher.begin(client.make("a.tif"))
        until(lambda: client.downloads["a.tif"] > 0)
        client.fails = set()
        assert len(fetcher.finish(tick=lambda: None)) == 1
        client.fails = {"b.tif"}
        client.make("b.tif")
        with pytest.raises(ApiError, match="broke off"):
            fetcher.finish(tick=lambda: None)


def test_each_of_thirty_results_is_told_as_it_comes_and_no_stac_item(tmp_path: Path) -> None:
    client, told = _Results(), list[str]()
    fetcher = ResultFetcher(
        cast(Client, client), "r", tmp_path, lambda path: told.append(path.name)
    )
    with fetcher:
        for number in range(30):
            fetcher.begin(client.make(f"{number}.tif"))
            until(lambda: len(told) == len(client.made))
            until(lambda: fetcher._listing is not None and fetcher._listing.done())
        client.make("30.json")
        fetcher.begin(client.make("30.tif"))
        until(lambda: {*client.downloads} >= {"30.json", "30.tif"} and "30.tif" in told)
    assert told == [f"{number}.tif" for number in range(31)]


def test_results_are_not_listed_at_each_change(tmp_path: Path) -> None:
    client = _Results()
    with fetching(client, tmp_path) as fetcher:
        for number in range(300):
            fetcher.begin(client.make(f"{number}.tif"))
            until(lambda: fetcher._listing is not None and fetcher._listing.done())
        assert client.lists < 90
        assert len(fetcher.finish(tick=lambda: None)) == 300
    assert set(client.downloads.values()) == {1}


def test_what_was_listed_after_the_end_is_not_listed_again(tmp_path: Path) -> None:
    client = _Results()
    with fetching(client, tmp_path) as fetcher:
        status = client.make("a.tif", "b.tif")
        fetcher.begin(status.model_copy(update={"state": RequestState.COMPLETE}))
        files = fetcher.finish(tick=lambda: None)
    assert [path.name for _, path in files] == ["a.tif", "b.tif"]
    assert client.lists == 1
