"""What a source sends in place of a granule, through `find --fetch` and through a request."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from archives.errors import ArchiveError
from reprojection.sample.hdfeos_write import write_granule
from swathmill.cli import application
from tasks.bag.categories import Category
from tasks.bag.model import RequestState
from tests.acceptance.in_process import Work
from tests.acceptance.mirrors import mirror
from tests.archives.servers import Act, body
from tests.reprojection.reading_samples import small_tile

TILE = small_tile(date="2012001")
TEXT = b"HTTP Basic: Access denied.\n"
DOCUMENT: dict[str, Any] = {
    "title": "One tile",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 51.0, -2.0, 57.0]},
    "time": {"start": "2012-01-01", "end": "2012-01-08"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.5},
    "resampling": "nearest",
}


@pytest.fixture
def granules(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    folder.mkdir()
    write_granule(folder / TILE.local_name, TILE)
    return folder


def half(granules: Path) -> Act:
    data = (granules / TILE.local_name).read_bytes()
    return body(data[: len(data) // 2])


BODIES: dict[str, tuple[Callable[[Path], Act], str]] = {
    "text": (lambda _: body(TEXT), "sent 27 bytes of text: HTTP Basic: Access denied."),
    "nothing": (lambda _: body(b""), "sent nothing"),
    "half": (half, "truncated: it has"),
}


@pytest.mark.parametrize("kind", BODIES)
def test_find_keeps_no_body_that_is_no_granule(
    kind: str, granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, said = BODIES[kind]
    asked = ["find", "MCD15A2", "--days", "2012-01-01", "--fetch", str(tmp_path / "to")]
    with mirror("http", granules, tmp_path) as source:
        monkeypatch.setenv("SWATHMILL_SOURCES", source.sources)
        source.answers.append(make(granules))
        refused = CliRunner().invoke(application(), asked)
        assert refused.exit_code == 1
        assert said in str(refused.exception) + refused.output
        assert [*(tmp_path / "to").iterdir()] == []
        assert CliRunner().invoke(application(), asked).exit_code == 0
    assert [path.name for path in (tmp_path / "to").iterdir()] == [TILE.local_name]


def test_find_fetches_the_others_when_one_fails(
    granules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = small_tile(date="2012001", tile=(18, 3))
    write_granule(granules / other.local_name, other)
    asked = ["find", "MCD15A2", "--days", "2012-01-01", "--fetch", str(tmp_path / "to")]
    with mirror("http", granules, tmp_path) as source:
        monkeypatch.setenv("SWATHMILL_SOURCES", source.sources)
        source.answers.append(body(TEXT))
        found = CliRunner().invoke(application(), asked)
    assert found.exit_code == 1
    assert isinstance(found.exception, ArchiveError)
    assert "1 of 2 granules could not be fetched" in str(found.exception)
    assert [path.name for path in (tmp_path / "to").iterdir()] == [other.local_name]


@pytest.mark.parametrize("kind", BODIES)
def test_a_request_fetches_again_what_was_no_granule(
    kind: str, granules: Path, tmp_path: Path
) -> None:
    make, said = BODIES[kind]
    with mirror("http", granules, tmp_path) as source:
        work = Work(folder=tmp_path / "data", archive=Path(), sources=source.sources)
        source.answers.append(make(granules))
        request = work.run(DOCUMENT)
        assert work.row(request).state is RequestState.COMPLETE, work.row(request).message
    attempts = [a for a in work.collections() if a.category is not None]
    assert [a.category for a in attempts] == [Category.DOWNLOAD_FAILED]
    assert said in attempts[0].message


def test_a_source_that_answers_with_text_alone_is_given_up_after_pauses(
    granules: Path, tmp_path: Path
) -> None:
    with mirror("http", granules, tmp_path) as source:
        work = Work(folder=tmp_path / "data", archive=Path(), sources=source.sources)
        source.answers.extend([body(TEXT)] * 20)
        request = work.run(DOCUMENT)
        assert work.row(request).state is RequestState.FAILED
    attempts = work.collections()
    assert [a.category for a in attempts] == [Category.DOWNLOAD_FAILED] * 3
    starts = [a.started for a in attempts]
    assert all(later > earlier for earlier, later in pairwise(starts))
    assert "The source answers with this instead of the granule" in attempts[-1].message


def test_the_next_source_is_asked_in_the_same_attempt(granules: Path, tmp_path: Path) -> None:
    with mirror("http", granules, tmp_path) as source:
        sources = f"{source.sources},folder"
        work = Work(folder=tmp_path / "data", archive=granules, sources=sources)
        source.answers.extend([body(TEXT)] * 20)
        request = work.run(DOCUMENT)
        assert work.row(request).state is RequestState.COMPLETE
    assert all(a.category is None for a in work.collections())
