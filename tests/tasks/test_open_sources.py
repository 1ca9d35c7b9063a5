"""The archives that the settings name: opened, searched and fetched from, with their token."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from archives.errors import SourcesSettingError
from tasks.bag.categories import Category
from tasks.bag.spec import CollectSpec
from tasks.service.classify import AttemptError
from tasks.service.sources import open_sources
from tasks.settings import Settings
from tests.archives.servers import FileServer, Served, body, file_server, granule, redirect
from worker.phases.collect import open_archive

NAME = "MOD13A2.A2018001.h18v04.061.2018059000000.hdf"
DAY = date(2018, 1, 1)
DATA = granule(3000)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        for folder, entry in {
            "allData/61/MOD13A2/2018": {"name": "001", "size": 0},
            "allData/61/MOD13A2/2018/001": {"name": NAME, "size": len(DATA)},
        }.items():
            running.always[f"/archive/{folder}.json"] = body(json.dumps([entry]).encode())
        yield running


def settings(server: FileServer, folder: Path, token: str = "hush") -> Settings:
    return Settings(
        data_dir=folder,
        sources=f"laads+{server.url}/archive",
        earthdata_token=SecretStr(token),
        earthdata_hosts=urlsplit(server.url).netloc,
        host_rate=1000.0,
    )


def test_a_granule_is_found_and_fetched_past_a_redirect(server: FileServer, tmp_path: Path) -> None:
    with file_server() as cloud:
        cloud.files[f"/signed/{NAME}"] = Served(data=DATA)
        path = f"/archive/allData/61/MOD13A2/2018/001/{NAME}"
        server.always[path] = redirect(f"{cloud.url}/signed/{NAME}?X-Amz-Signature=1")
        chosen = open_sources(settings(server, tmp_path), tmp_path / "index.sqlite")
        (record,) = chosen.search("MOD13A2", "61", DAY, DAY)
        spec = CollectSpec(
            product="MOD13A2",
            collection="61",
            granule=NAME,
            production="2018059000000",
            source=record.source,
            url=record.url,
            size=record.size,
        )
        worker = open_archive(spec, settings(server, tmp_path))
        fetched = worker.fetch(record, tmp_path / NAME)
        assert fetched.path.read_bytes() == DATA
        assert all("authorization" in asked.headers for asked in server.asked)
        assert not any("hush" in str(asked) for asked in cloud.asked)


def test_a_token_that_is_none_is_not_sent(server: FileServer, tmp_path: Path) -> None:
    chosen = open_sources(settings(server, tmp_path, token="none"), tmp_path / "index.sqlite")
    assert len(list(chosen.search("MOD13A2", "61", DAY, DAY))) == 1
    assert not any("authorization" in asked.headers for asked in server.asked)


def test_the_token_is_in_no_settings_that_are_printed(server: FileServer, tmp_path: Path) -> None:
    assert "hush" not in repr(settings(server, tmp_path))


def test_no_source_is_refused(tmp_path: Path) -> None:
    bare = Settings(data_dir=tmp_path, archive="", sources="")
    with pytest.raises(SourcesSettingError, match="SWATHMILL_SOURCES"):
        open_sources(bare, tmp_path / "index.sqlite")
    spec = CollectSpec(product="MOD13A2", collection="61", granule=NAME, production="")
    with pytest.raises(AttemptError) as caught:
        open_archive(spec, bare)
    assert caught.value.category is Category.SOURCE_NOT_PUBLISHED
